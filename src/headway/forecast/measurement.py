"""What is measured: seconds of real updates on batches that stand for an epoch, a validation and a checkpoint."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from itertools import cycle, islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.data.batches import Batch
from headway.data.feed import Feed
from headway.data.plan import Plan
from headway.data.preparation import Report
from headway.models.model import Autoregressive, Encoded, Model
from headway.training.background import Background
from headway.training.checkpoint import Snapshot
from headway.training.trainer import Trainer
from headway.trial import memory
from headway.validation import Validator

CHOSEN = 16
"""Batches that stand for the epoch, from cheap to dear."""
WARM_UP = 3.0
"""Seconds of updates that do not count; at most once through the chosen batches."""
MEASURED = 8.0
"""Seconds of updates that do."""
MOST = 320
"""Updates measured at most."""
FEWEST = 3
"""Updates measured however long they take."""
TOGETHER = 4
"""Batches of one measured update at most; more, where `accumulate` asks for them, cost in proportion."""
VALIDATED = 4.0
"""Seconds that the loss of a validation, and its translations, are measured for."""


@dataclass(frozen=True)
class Measured:
    """Seconds and bytes, as they were found."""

    update: float
    """Seconds of an update of one process."""
    updates: int
    """How many were timed."""
    peak: int
    """Bytes used at the highest moment."""
    activations: int
    """Bytes kept for the backward pass of the dearest batch."""
    loss: float
    """Seconds of the loss on all validation pairs."""
    translating: float
    """Seconds of translating validation sentences into as many tokens as their references have."""
    saving: float
    """Seconds that training stands still for a checkpoint."""
    checkpoint: int
    """Bytes of a checkpoint."""


@dataclass(frozen=True)
class Chosen(Feed):
    """A feed of the same data with a plan of its own."""

    fixed: Plan = field(kw_only=True)

    @classmethod
    def of(cls, feed: Feed, plan: Plan) -> "Chosen":
        """The feed with another plan."""
        return cls(**{each.name: getattr(feed, each.name) for each in fields(Feed)}, fixed=plan)

    def plan(self, epoch: int) -> Plan:
        """The same batches in every epoch."""
        del epoch
        return self.fixed


def spread(costs: NDArray[np.float64]) -> list[int]:
    """Positions of batches from cheap to dear, in such an order that the first few of them are spread as well."""
    count = min(CHOSEN, len(costs))
    order = np.argsort(costs, kind="stable")
    strata = [int(order[(2 * place + 1) * len(order) // (2 * count)]) for place in range(count)]
    bits = max(1, (count - 1).bit_length())
    turned = sorted(range(count), key=lambda place: int(f"{place:0{bits}b}"[::-1], 2))
    return [strata[place] for place in turned]


def repeated(plan: Plan, positions: list[int]) -> Plan:
    """Some batches of a plan, any of them more than once, as one of their own."""
    batches = [plan[position] for position in positions]
    cuts: NDArray[np.int64] = np.cumsum([0, *map(len, batches)]).astype(np.int64)
    return Plan(np.concatenate(batches), cuts, plan.layout, plan.budget)


def measure_updates(trainer: Trainer, plan: Plan, costs: NDArray[np.float64], report: Report) -> tuple[float, int]:
    """Seconds of an update of average cost, and how many were timed."""
    together = min(trainer.config.accumulate, TOGETHER)
    positions = list(islice(cycle(spread(costs)), together * (MOST + CHOSEN)))
    _, stream = _feed(trainer, plan, positions).epoch(0, 0)
    begun, warm = time.monotonic(), 0
    while warm < CHOSEN // together and (time.monotonic() < begun + WARM_UP or not warm):
        trainer.update(list(islice(stream, together)))
        warm += 1
    times: list[float] = []
    begun = now = time.monotonic()
    while len(times) < MOST and (now < begun + MEASURED or len(times) < FEWEST):
        trainer.update(list(islice(stream, together)))
        before, now = now, time.monotonic()
        times.append(now - before)
        report("measuring updates", len(times), None)
    timed = positions[warm * together : (warm + len(times)) * together]
    groups = costs[timed].reshape(-1, together).sum(1)
    each = typical(np.array(times), groups, together * float(costs.mean()))
    return each * trainer.config.accumulate / together, len(times)


def _feed(trainer: Trainer, plan: Plan, positions: list[int]) -> Feed:
    """The feed of the trainer, but of these batches."""
    assert isinstance(trainer.feed, Feed)
    return Chosen.of(trainer.feed, repeated(plan, positions))


def typical(times: NDArray[np.float64], costs: NDArray[np.float64], cost: float) -> float:
    """Seconds of something that costs `cost`: a line through what was measured, moved to its middle.

    Half of what was measured may be far too slow, and the middle stays. Dearer is never cheaper, and never dearer than
    in proportion.
    """
    deviation = costs - costs.mean()
    spread_out = float((deviation**2).sum())
    proportion = float(np.median(times) / costs.mean())
    slope = float((deviation * times).sum()) / spread_out if spread_out else 0.0
    slope = min(max(slope, 0.0), proportion)
    return float(np.median(times - slope * costs)) + slope * cost


@dataclass
class _Kept:
    bytes: int = 0


@contextmanager
def kept_tensors(model: Model) -> Iterator[_Kept]:
    """Count the bytes of all tensors that are kept for the backward pass, but for the weights, each storage once."""
    kept = _Kept()
    seen = {weight.untyped_storage().data_ptr() for weight in model.parameters()}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in seen:
            seen.add(storage.data_ptr())
            kept.bytes += storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield kept


@dataclass
class Script:
    """When outputs end."""

    end: int
    """The symbol."""
    ratio: float
    """Their length for each token of the source."""
    until: float
    """The time at which all end at once."""
    written: int = 0
    """Tokens so far."""


def scripted(model: Autoregressive[Any, Any], script: Script) -> Autoregressive[Any, Any]:
    """A model with another's weights that writes outputs of known length, whatever they say.

    How long a validation takes hangs on when outputs end, and an untrained model does not know.
    """
    kind = type("Scripted", (Scripted, type(model)), {"capturable": False})
    made: Autoregressive[Any, Any] = object.__new__(kind)
    made.__dict__.update(model.__dict__, script=script)
    return made


class Scripted:
    """What a model with a script does otherwise; its state holds the model's, lengths of sources, and tokens so far."""

    def start(self, encoded: Encoded, *, coverage: bool = False) -> tuple[Any, Tensor, int]:
        """See `Autoregressive.start`."""
        return super().start(encoded, coverage=coverage), encoded.source.lengths, 0  # type: ignore[misc]  # of the model

    def step(self, tokens: Tensor, parents: Tensor | None, state: tuple[Any, Tensor, int]) -> tuple[Tensor, Any]:
        """See `Autoregressive.step`; the end is certain where it is due, and else impossible."""
        inner, lengths, length = state
        log_probabilities, after = super().step(tokens, parents, inner)  # type: ignore[misc]  # of the model
        script: Script = self.__dict__["script"]
        due = length + 1 >= script.ratio * lengths
        if time.monotonic() > script.until:
            due = torch.ones_like(due)
        log_probabilities[:, :, script.end] = torch.where(due, 0.0, -torch.inf)[:, None]
        script.written += tokens.numel()
        return log_probabilities, (after, lengths, length + 1)

    def keep(self, state: tuple[Any, Tensor, int], sentences: Tensor) -> tuple[Any, Tensor, int]:
        """See `Autoregressive.keep`."""
        inner, lengths, length = state
        kept = super().keep(inner, sentences)  # type: ignore[misc]  # of the model
        return kept, lengths.index_select(0, sentences.to(lengths.device)), length


def measure_validation(trainer: Trainer, valid: int) -> tuple[float, float]:
    """Seconds of a validation on `valid` pairs: of the loss, and of the translations."""
    validator, model = trainer.validate, trainer.model
    assert isinstance(validator, Validator)
    model.eval()
    with torch.no_grad(), trainer.arithmetic():
        most = trainer.config.validation_pairs or max(valid, len(validator.pairs))
        loss = _loss_seconds(validator, model) * min(valid, most) / max(1, min(len(validator.pairs), most))
        return loss, _translation_seconds(validator, model)


def _translation_seconds(validator: Validator, model: Model) -> float:
    """Of outputs as long as the references; if need be, by those there is time for."""
    pairs = validator.translated_pairs
    sides = validator.source.encode([pair.source for pair in pairs]), validator.target.encode([p.target for p in pairs])
    read, written = (sum(len(ids) + 1 for ids in side) for side in sides)

    def timed(count: int) -> float:
        begun = time.monotonic()
        if not isinstance(model, Autoregressive) or not model.config.reads_source:  # as long whatever it writes
            replace(validator, batches=[], pairs=pairs[:count])(model, lambda: None)
            return time.monotonic() - begun
        script = Script(validator.target.end, written / read, begun + VALIDATED)
        replace(validator, batches=[], pairs=pairs[:count])(scripted(model, script), lambda: None)
        return (time.monotonic() - begun) * max(1.0, written / max(1, script.written))

    timed(2)  # warm-up
    return timed(len(pairs))


def _loss_seconds(validator: Validator, model: Model) -> float:
    """Of all batches, by as many of them, from short to long, as there is time for."""
    batches = [
        validator.batches[place] for place in spread(np.array([float(batch.units) for batch in validator.batches]))
    ]
    batches += [batch for batch in validator.batches if not any(batch is each for each in batches)]
    replace(validator, batches=batches[:1]).loss(model, lambda: None)  # warm-up
    done: list[Batch] = []
    begun = time.monotonic()
    while len(done) < len(batches) and (time.monotonic() < begun + VALIDATED or not done):
        done.append(batches[len(done)])
        replace(validator, batches=done[-1:]).loss(model, lambda: None)
    units = sum(batch.units for batch in done)
    return (time.monotonic() - begun) * sum(batch.units for batch in batches) / max(1, units)


def measure_saving(trainer: Trainer, beside: Batch) -> tuple[float, int]:
    """Seconds that training stands still for a checkpoint, and the bytes of one; it is written beside an update."""
    begun = time.monotonic()
    snapshot = Snapshot.take(trainer.model, trainer.optimiser, trainer.progress, trainer.average, trainer.parallel)
    seconds = time.monotonic() - begun
    background = Background()
    background.start(lambda: trainer.checkpoints.write(snapshot))
    trainer.update([beside])  # memory is fullest now
    background.wait()
    folder = trainer.checkpoints.path(trainer.progress.step)
    return seconds, sum(path.stat().st_size for path in folder.iterdir())


def measure(trainer: Trainer, plan: Plan, costs: NDArray[np.float64], valid: int, report: Report) -> Measured:
    """Everything there is to measure."""
    update, updates = measure_updates(trainer, plan, costs, report)
    loss, translating = measure_validation(trainer, valid)
    _, stream = _feed(trainer, plan, [int(np.argmax(costs))] * 2).epoch(0, 0)
    dearest = next(stream)
    with kept_tensors(trainer.model) as kept:
        trainer.model.train()
        trainer.gradients([dearest], dearest.units, trainer.progress.step + 1)  # a replayed graph would show nothing
    trainer.optimiser.zero_grad()
    saving, checkpoint = measure_saving(trainer, next(stream))
    peak, _ = memory(trainer.device)
    return Measured(update, updates, peak, kept.bytes, loss, translating, saving, checkpoint)

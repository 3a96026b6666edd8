"""The training loop: `Trainer.fit` begins updates and hears later what became of them."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from headway.data.batches import Batch
from headway.errors import HeadwayError, Interrupted
from headway.models.model import Model
from headway.objectives import countable
from headway.training.average import MovingAverage
from headway.training.background import Background
from headway.training.captured import CapturedUpdates, Outcome
from headway.training.checkpoint import Checkpoints, Snapshot, load_parameters
from headway.training.collapse import RECOVERIES, RISE, WINDOW, LossHistory
from headway.training.config import TrainingConfig, seconds
from headway.training.gradients import Gradients
from headway.training.journal import Journal
from headway.training.optimiser import Optimiser
from headway.training.pace import Pace
from headway.training.parallel import Parallel, number, whole
from headway.training.progress import Progress
from headway.training.schedule import ENDING, learning_rate, shortened_warmup
from headway.training.signals import Stopper, interrupted
from headway.training.stream import Feed, Stream

VALIDATIONS = 8
"""Validations within a time budget, at most."""
REPLANNED = 10
"""Updates after which a time budget is planned anew: the machine may have become faster or slower."""
VALIDATING = 0.03
"""The share of a time budget they may take."""
CLOSING = 2
"""Validations after the last update: of the best checkpoint, and of the average of the best."""
SPARED = 0.02
"""The share of what is left of a time budget that is not planned for."""
SAVED_AFTER = 600.0
"""Seconds after which a checkpoint is written where `save_every` does not say when."""
MOST_SKIPPED = 10
"""Updates in a row that may be skipped for not being finite."""


@dataclass(frozen=True)
class Validation:
    """What a validation found."""

    scores: dict[str, float]
    """`loss` in nats a token, and `bleu` and `chrf` where sentences were translated."""
    samples: list[str]
    """A few sources, references and outputs, as lines."""
    constant: bool = False
    """All sentences were translated alike, though their references differ."""


@dataclass(frozen=True)
class Update:
    """One update, for the journal and the screen."""

    step: int
    steps: int | None
    epoch: int
    loss: float
    learning_rate: float
    gradient_norm: float
    tokens_per_second: float
    seconds_left: float | None
    """To the end if `steps` is known, else to the next validation."""


class _Begun(NamedTuple):
    """An update under way."""

    step: int
    epoch: int
    units: int
    rate: float
    outcome: Outcome | None = None
    """Known at once where the host took the update."""


@dataclass
class Trainer:
    """Everything one run needs, wired; `fit` may be called after a kill and goes on from the latest checkpoint."""

    config: TrainingConfig
    model: Model
    gradients: Gradients
    captured: CapturedUpdates | None
    """What takes whole updates by replaying graphs, where the device and the settings allow it."""
    judged: Model | None
    """A whole copy that is validated in place of the model: where a moving average is kept or the model is divided."""
    optimiser: Optimiser
    average: MovingAverage | None
    feed: Feed
    validate: Callable[[Model, Callable[[], None]], Validation]
    checkpoints: Checkpoints
    journal: Journal
    on_update: Callable[[Update], None]
    device: torch.device
    parallel: Parallel
    stopper: Stopper
    progress: Progress
    initial_weights: Callable[[], dict[str, Tensor]]
    """Builds the weights that training began with once more."""
    clock: Callable[[], float] = time.monotonic
    """Seconds from any beginning: all that training knows of time."""
    _began: float = field(default=0.0, init=False)
    _agreed: float = field(default=0.0, init=False)
    """Seconds since then by the clock of the first process, when all last agreed on it."""
    _saved: float = field(default=0.0, init=False)
    """The same at the last checkpoint."""
    _pace: Pace = field(default_factory=Pace, init=False)
    _most: int | None = field(default=None, init=False)
    """Updates of all epochs, where their number is set."""
    _background: Background = field(default_factory=Background, init=False)
    _begun: list["_Begun"] = field(default_factory=list, init=False)
    """Updates whose outcome has not been told yet."""

    def fit(self) -> str:
        """Train until done and say why it is; a signal saves at the current step and raises `Interrupted`."""
        self._began = self.clock() - self.progress.seconds
        self._agreed = self._saved = self.progress.seconds
        try:
            reason = self._loop()
        except Interrupted:
            self._save()
            self._background.wait()
            self.parallel.exchange(0.0)  # nobody leaves before it is written
            raise
        except BaseException:
            with suppress(HeadwayError):  # what went wrong first is told
                self._background.wait()  # while the folder is ours
            raise
        self._background.wait()
        if self.parallel.first:  # once more: a kill may have left something half removed
            self.checkpoints.prune(self.progress.step, {step for _, step in self.progress.best})
        return reason

    def _loop(self) -> str:
        stream = Stream(self.feed, self.parallel)
        while True:
            over = self._over()
            if self._validation_due(bool(over)):
                self._validate()
            elif over:
                return over
            else:
                batches = stream.take(self.progress, self.config.accumulate)
                self._limit(stream.length)
                self._begin(batches)
                self._advance(stream.length)
                if self._settling_due():
                    self._settle()
                if self.progress.step % WINDOW == 0:
                    self._guard()
                if self.progress.step % REPLANNED == 0:
                    self._plan()
                if self._saving_due():
                    self._save()

    def _limit(self, length: int) -> None:
        """Hear how many batches an epoch has: the epochs that are set then set the number of steps."""
        progress, together = self.progress, self.config.accumulate * self.parallel.world
        if self.config.epochs is None or self.config.curriculum:
            return
        later = (self.config.epochs - progress.epoch - 1) * -(-length // together)
        self._most = progress.step + -(-(length - progress.position) // together) + later
        if self.config.time is None and (progress.steps is None or not progress.step):
            self.progress = replace(progress, steps=min(self._most, progress.steps or self._most))

    def _settling_due(self) -> bool:
        """Updates taken by the host are known at once; the outcome of captured ones is asked for now and then."""
        step = self.progress.step
        planned = self.config.time is not None and step % REPLANNED == 0
        asked = step == 1 or planned or step % self.config.log_every == 0 or step % WINDOW == 0
        asked = asked or self._validation_due(bool(self._over()))
        return self.captured is None or self.captured.failed or self.captured.full or asked

    def check(self) -> None:
        """Raise `Interrupted` in all processes if one of them was asked to stop."""
        self._agree(0)

    def _agree(self, units: int) -> int:
        """The units of all processes together; where one was asked to stop, all do."""
        rows = self.parallel.exchange(units, self.stopper.signal or 0, self.clock() - self._began)
        self._agreed = rows[0][2]
        asked = max(int(row[1]) for row in rows)
        if asked:
            raise interrupted(self.progress.step, asked)
        return sum(int(row[0]) for row in rows)

    def update(self, batches: Sequence[Batch]) -> Update:
        """Take one optimiser step on the union of all processes' `batches`, every target token weighing the same."""
        self._settle()
        self._begin(batches)
        (update,) = self._settled()
        return update

    def _begin(self, batches: Sequence[Batch]) -> None:
        """Begin the next update; a captured one is under way when this returns."""
        batches = [countable(self.model.config, batch) for batch in batches]
        step = self.progress.step + 1
        units = max(1, self._agree(sum(batch.units for batch in batches)))  # of none, the gradient is zero
        begun = _Begun(step, self.progress.epoch, units, self._rate(step))
        self.model.train()
        if self._replayed(batches, begun):
            self._begun.append(begun)
            finite = True  # or nothing was moved
        else:
            self._settle()
            surprise = self.parallel.total(self.gradients(batches, units, step))
            self.progress = replace(self.progress, cells=self.gradients.limit)
            norm = number(torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip or math.inf))
            finite = math.isfinite(norm)
            if finite:
                self.optimiser.step(begun.rate)
            self._begun.append(begun._replace(outcome=Outcome(float(surprise), norm)))
        if self.average is not None and finite:
            self.average.update(step - self.progress.recovered)

    def _replayed(self, batches: Sequence[Batch], begun: _Begun) -> bool:
        """Begin an update by replaying a graph, where there can be one."""
        if self.captured is None or not self.captured.serves(batches):
            return False
        if self.captured(batches[0], begun.rate):
            return True
        self.journal.say(f"step {begun.step}: too little memory to capture updates; they are taken one by one")
        return False

    def _settle(self) -> None:
        """Tell what became of the updates begun."""
        for update in self._settled():
            self._log(update)

    def _settled(self) -> Iterator[Update]:
        """What became of the updates begun, oldest first; the ones that were skipped are counted."""
        begun, self._begun = self._begun, []
        captured = iter(self.captured.settle() if self.captured is not None else [])
        outcomes = [each.outcome or next(captured) for each in begun]
        if begun:
            self._pace.tick(self.clock(), sum(each.units for each in begun), len(begun))
        for each, outcome in zip(begun, outcomes, strict=True):
            self._judge_gradient(each.step, outcome.norm)
            if math.isfinite(outcome.surprise):
                losses = self.progress.losses.add(outcome.surprise, each.units)
                self.progress = replace(self.progress, losses=losses)
            yield Update(
                each.step,
                self.progress.steps,
                each.epoch,
                outcome.surprise / each.units,
                each.rate,
                outcome.norm,
                self._pace.tokens_per_second,
                self._pace.seconds_for(self._until(each.step)),
            )

    def _until(self, step: int) -> int | None:
        """Updates to the end or, where that is not known, to the next validation."""
        if self.progress.steps is not None:
            return self.progress.steps - step
        every = self.config.validate_every
        return None if every is None else max(0, self.progress.validated + every - step)

    def arithmetic(self) -> AbstractContextManager[object]:
        """Where matrix products are computed in the configured precision."""
        return self.gradients.arithmetic()

    def _judge_gradient(self, step: int, norm: float) -> None:
        """Count updates that were skipped because their gradient was not finite, and give up after many in a row."""
        if math.isfinite(norm):
            self.progress = replace(self.progress, skipped=0)
            return
        self.progress = replace(self.progress, skipped=self.progress.skipped + 1)
        self.journal.say(f"step {step}: the gradient is not finite; update skipped")
        if self.progress.skipped >= MOST_SKIPPED:
            raise HeadwayError(f"step {step}: {MOST_SKIPPED} updates in a row were not finite; lower the learning rate")

    def _guard(self) -> None:
        """Compare the loss of late with its lowest, and recover where training has collapsed."""
        losses = self.progress.losses.close(WINDOW)
        self.progress = replace(self.progress, losses=losses)
        stationary = not self.config.curriculum and not self.config.scheduled_sampling  # else the loss may rise
        if losses.collapsed and stationary:
            self._recover(f"loss {losses.latest:.2f}, it was {losses.lowest:.2f}")

    def _recover(self, found: str) -> None:
        """Go back to the best weights and go on from them at half the rate."""
        if self.progress.collapses >= RECOVERIES:
            self.progress = replace(self.progress, collapses=RECOVERIES + 1)  # and training ends
            return
        step, back = self.progress.step, self._restore_best()
        where = f"the checkpoint of step {back}" if back else "the initial weights"
        said = f"step {step}: training collapsed ({found}); going back to {where} with half the learning rate"
        self.journal.say(said)
        self.journal.scalars(step, {"train/collapsed": float(back)})
        collapses = self.progress.collapses + 1
        self.progress = replace(self.progress, losses=LossHistory(), collapses=collapses, recovered=step, stale=0)

    def _restore_best(self) -> int:
        """Load the best checkpoint into the model, or 0 where there is none: the initial weights."""
        self._background.wait()
        known = [step for _, step in self.progress.best] if self.parallel.first else []
        sound = (step for step in known if self.checkpoints.sound(step, self.journal.say))
        step = int(self.parallel.exchange(next(sound, 0))[0][0])
        if step:
            self.checkpoints.restore(step, self.model, self.optimiser, self.average)
        else:
            self.optimiser.forget()
            weights = self.initial_weights()
            load_parameters(self.model, weights, "the initial weights")
            if self.average is not None:
                self.average.load(weights)
        return step

    def _advance(self, length: int) -> None:
        epoch, position = self.progress.epoch, self.progress.position + self.config.accumulate * self.parallel.world
        if position >= length:
            epoch, position = epoch + 1, 0
        step = self.progress.step + 1
        self.progress = replace(self.progress, step=step, epoch=epoch, position=position, seconds=self._elapsed())

    def _elapsed(self) -> float:
        """Seconds of training, the same for all processes."""
        return self._agreed if self.parallel.world > 1 else self.clock() - self._began

    def _rate(self, step: int) -> float:
        peak, warmup, kind = self.config.learning_rate, self.config.warmup, self.config.schedule
        assert peak is not None and warmup is not None and kind is not None  # resolved before training
        steps = self.progress.steps
        if self.config.time is not None:
            warmup = shortened_warmup(warmup, steps) if steps else warmup
        if steps is None and kind in ENDING:  # where it will fall to is not known yet
            kind = "inverse_sqrt"
        rate = learning_rate(step, peak=peak, warmup=warmup, kind=kind, steps=steps)
        if self.progress.collapses:
            rate *= 0.5**self.progress.collapses * min(1.0, (step - self.progress.recovered) / max(warmup, 1))
        return rate

    def _plan(self) -> None:
        """Fit the number of steps to what is left of a time budget, at the speed of late."""
        if self.config.time is None or not self._pace.sure or self.progress.step == self.progress.steps:
            return
        total, spent = seconds(self.config.time), self._elapsed()
        ahead = self._validations * (1 - spent / total) + CLOSING
        left = (1 - SPARED) * (total - spent) - ahead * self.progress.validating
        planned = int(self.parallel.exchange(self.progress.step + self._pace.updates_in(left))[0][0])
        limits = [limit for limit in (self.config.steps, self._most) if limit is not None]
        self.progress = replace(self.progress, steps=min([planned, *limits]))

    @property
    def _validations(self) -> int:
        """Validations within a time budget: as many as are worth their time, but at least one."""
        if self.config.time is None or not self.progress.validating:
            return VALIDATIONS
        return max(1, min(VALIDATIONS, int(VALIDATING * seconds(self.config.time) / self.progress.validating)))

    def _over(self) -> str:
        """Why training is over, or nothing."""
        progress, config = self.progress, self.config
        if progress.collapses > RECOVERIES:
            return f"it has collapsed {progress.collapses} times; lower training.learning_rate in another folder"
        if progress.stale >= config.patience:
            return f"{progress.stale} validations in a row brought no improvement"
        if progress.steps is not None and progress.step >= progress.steps:
            return f"all {progress.steps} steps are done"
        if config.epochs is not None and progress.epoch >= config.epochs:
            return f"all {config.epochs} epochs are done"
        if config.time is not None and progress.seconds > seconds(config.time):
            return f"its time of {config.time} is over"
        return ""

    def _validation_due(self, over: bool) -> bool:
        progress, every = self.progress, self.config.validate_every
        if progress.validated >= progress.step:
            return False
        if every is None:  # a time budget, in which the number of steps is not known at first
            every = max(1, progress.steps // self._validations) if progress.steps else progress.step + 1
            if progress.steps and progress.steps - progress.step < every / 2:  # the last one comes soon
                return over
        return over or progress.step - progress.validated >= every

    def _saving_due(self) -> bool:
        every = self.config.save_every
        if self._validation_due(bool(self._over())):  # after which there is a checkpoint anyway
            return False
        if every is None:
            return self._elapsed() - self._saved > SAVED_AFTER
        return self.progress.step % every == 0

    def _validate(self) -> None:
        began = self.clock()
        found = self._judge()
        scores, step = found.scores, self.progress.step
        value = self.rank(scores)
        known = self.progress.known_loss
        collapsed = found.constant and known is not None and scores["loss"] > known + RISE
        added = [(value, step)] if math.isfinite(value) and not collapsed else []  # else never among the best
        better = bool(added) and (not self.progress.best or value < self.progress.best[0][0])
        best = tuple(sorted([*self.progress.best, *added])[: self.config.average])
        learned = math.isfinite(scores["loss"]) and (known is None or scores["loss"] < known)
        known = scores["loss"] if learned else known
        stale = 0 if better or learned else self.progress.stale + 1
        self.progress = replace(
            self.progress, validated=step, best=best, stale=stale, known_loss=known, seconds=self._elapsed()
        )
        self.journal.scalars(step, {f"valid/{name}": number for name, number in scores.items()})
        self.journal.text(step, "samples", found.samples)
        told = ", ".join(f"{name} {number:.3f}" for name, number in scores.items())
        self.journal.say(f"step {step}: validation {told}{' (best)' if better else ''}")
        for line in found.samples:
            self.journal.say(line)
        if collapsed:
            self._recover("all outputs have become identical")
        taken = self.parallel.exchange(self.clock() - began)[0][0]
        self.progress = replace(self.progress, validating=taken)
        self._save()
        self._plan()
        self._pace.pause()

    def rank(self, scores: dict[str, float]) -> float:
        """The score that tells a better checkpoint from a worse one, less being better."""
        metric = self.config.metric or "loss"
        return scores[metric] if metric == "loss" else -scores[metric]

    def _judge(self) -> Validation:
        """Validate the weights as they are, or their moving average; all processes hear what the first one found."""
        model = self.judged or self.model
        if self.judged is not None:
            current = self.average.weights if self.average is not None else dict(self.model.named_parameters())
            load_parameters(
                model, {name: whole(weight) for name, weight in current.items()}, f"step {self.progress.step}"
            )
        model.eval()
        with torch.no_grad(), self.arithmetic():
            found = self.validate(model, self.check)
        *agreed, constant = self.parallel.exchange(*found.scores.values(), int(found.constant))[0]
        return Validation(dict(zip(found.scores, agreed, strict=True)), found.samples, bool(constant))

    def _save(self) -> None:
        """Copy the state and write it beside the training that goes on."""
        self._settle()
        self._saved = self._elapsed()
        snapshot = Snapshot.take(self.model, self.optimiser, self.progress, self.average, self.parallel)
        if not self.parallel.first:
            return

        def write() -> None:
            self.checkpoints.write(snapshot)
            self.checkpoints.prune(snapshot.progress.step, {step for _, step in snapshot.progress.best})

        self._background.start(write)

    def _log(self, update: Update) -> None:
        self.on_update(update)
        if update.step % self.config.log_every == 0 or update.step == 1:
            values = {
                "train/loss": update.loss,
                "train/learning_rate": update.learning_rate,
                "train/grad_norm": update.gradient_norm,
            }
            if update.tokens_per_second:
                values["train/tokens_per_second"] = update.tokens_per_second
            self.journal.scalars(update.step, values)

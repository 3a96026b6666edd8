"""How fast this machine trains: the real training loop, timed slice by slice, beside the fastest product it makes."""

import os
import platform
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.assemble import deterministic, trainer_of
from headway.beginning import begin, stored_recipe
from headway.config import validated
from headway.data.batches import Batch
from headway.data.preparation import reopen
from headway.data.tokenizer import SPECIALS, Tokenizer, TokenizerConfig
from headway.forecast.sizes import Shapes
from headway.models.catalog import CATALOG, architecture_of
from headway.recipe import SIZES, Recipe
from headway.runtime.speed import matrix_peak
from headway.screen import Screen, Silent
from headway.training.parallel import ALONE
from headway.training.signals import Stopper
from headway.training.stream import Feed
from headway.training.trainer import Trainer, Update
from headway.trial import memory

SLICES = 8
"""Stretches of time that are judged one by one."""
WARM_UP = 0.4
"""What goes before them, uncounted, as a share of their time: kernels are compiled and graphs captured."""
HELD = 32
"""Batches of random sentences, about, that are trained on in turn."""
MOST = 200_000
"""Pairs of them at most."""
LENGTHS = (3.05, 0.55)
"""Mean and spread of the logarithm of the length of a random source."""
SHORTEST, LONGEST = 3, 120
RATIO = (0.85, 1.25)
"""The length of a random target for each token of its source."""
ENDLESS = 1 << 40
"""Updates that nobody waits for."""


@dataclass(frozen=True)
class Slice:
    """A stretch of training."""

    seconds: float
    updates: int
    tokens: int
    """Target tokens, end symbols included."""
    operations: float
    """Floating-point operations that the tokens call for, padding left out."""


@dataclass(frozen=True)
class Throughput:
    """What was measured."""

    machine: str
    model: str
    parameters: int
    vocabulary: int
    settings: dict[str, object]
    captured: bool
    """Whole updates are replayed on the GPU, rather than launched kernel by kernel."""
    data: str
    slices: list[Slice]
    peak: float
    """Floating-point operations a second of one large product of matrices."""
    memory: int
    """Bytes in use at the highest moment."""
    machine_memory: int

    @property
    def speeds(self) -> list[float]:
        """Target tokens a second of every slice."""
        return [each.tokens / each.seconds for each in self.slices]

    @property
    def update(self) -> float:
        """Seconds of an update."""
        return statistics.median(each.seconds / each.updates for each in self.slices)

    @property
    def operations(self) -> float:
        """Floating-point operations a second."""
        return statistics.median(each.operations / each.seconds for each in self.slices)

    def to_json(self) -> dict[str, Any]:
        """All of it, and what follows from it."""
        return {
            **asdict(self),
            "tokens_per_second": statistics.median(self.speeds),
            "tokens_per_second_spread": [min(self.speeds), max(self.speeds)],
            "updates_per_second": 1 / self.update,
            "seconds_per_update": self.update,
            "operations_per_second": self.operations,
            "share_of_peak": self.operations / self.peak,
        }

    def lines(self) -> list[str]:
        """The same for people."""
        updates = sum(each.updates for each in self.slices)
        settings = ", ".join(f"{name} {value}" for name, value in self.settings.items())
        way = "captured" if self.captured else "eager"
        spread = f"{min(self.speeds):,.0f} to {max(self.speeds):,.0f} in {len(self.slices)} slices"
        shown = {
            "machine": self.machine,
            "model": f"{self.model}, {self.parameters:,} parameters, {self.vocabulary:,} known tokens",
            "training": f"{settings}, {way} updates",
            "data": self.data,
            "speed": f"{statistics.median(self.speeds):,.0f} target tokens/s ({spread})",
            "an update": f"{1000 * self.update:,.2f} ms, {1 / self.update:,.2f} a second ({updates} timed)",
            "arithmetic": f"{self.operations / 1e12:,.3f} TFLOP/s, {100 * self.operations / self.peak:.1f} % of "
            f"the {self.peak / 1e12:,.3f} of one large product",
            "memory": f"{self.memory / 2**30:,.2f} of {self.machine_memory / 2**30:,.1f} GiB at the most",
        }
        return [f"{name:<13}{told}" for name, told in shown.items()]


def measure_training(
    tree: dict[str, Any], *, device: torch.device, screen: Screen, seconds: float, vocabulary: int | None, real: bool
) -> Throughput:
    """Train as a recipe says for about this long and keep nothing: on its own data, or on random sentences.

    The settings are valid but for those of the data, which random sentences do without.
    """
    with tempfile.TemporaryDirectory(prefix="headway-") as name:
        folder = Path(name)
        given = _endless(tree if real else _with_random_data(tree, folder, device, vocabulary))
        recipe = validated(Recipe, given, "recipe")
        screen.working("preparing the data", 0, None)
        begin(recipe, folder / "run", device=device, screen=Silent())
        recipe = stored_recipe(folder / "run")
        peak = matrix_peak(device, recipe.training.precision == "bf16")
        with deterministic(recipe.training), _trainer(recipe, folder / "run", device, screen) as trainer:
            held = None if real else _Held.of(trainer.feed, recipe.training.curriculum)
            # Every size of batch is captured when it is first met.
            met = len(held.batches) if held and trainer.captured is not None else 0
            stretches = _timed(trainer, _Watched(held or trainer.feed), seconds, screen, met)
            used, total = memory(device)
        longest = min(LONGEST, trainer.model.config.longest - 1)
        data = "the recipe's" if real else f"random sentences of {SHORTEST} to {longest} tokens, log-normal"
        return _drawn_up(recipe, trainer, stretches, data, (peak, used, total))


def _endless(tree: dict[str, Any]) -> dict[str, Any]:
    """The recipe without an end, and without validations and checkpoints on the way."""
    training = {name: value for name, value in tree.get("training", {}).items() if name not in ("time", "epochs")}
    never = dict.fromkeys(("steps", "validate_every", "save_every"), ENDLESS)
    return {**tree, "training": training | never}


def _with_random_data(
    tree: dict[str, Any], folder: Path, device: torch.device, vocabulary: int | None
) -> dict[str, Any]:
    """The recipe with a random corpus, written to `folder`, and a vocabulary of so many tokens for it."""
    model = tree.get("model", {})
    settings, _ = CATALOG[architecture_of(model)]
    if SIZES.isdisjoint(model) and "preset" in settings.model_fields:
        model = {"preset": "base" if device.type == "cuda" else "tiny", **model}
    large = model.get("preset") in ("base", "big")
    size = vocabulary or tree.get("tokenizer", {}).get("vocabulary") or (37_000 if large else 10_000)
    budget = tree.get("training", {}).get("batch_tokens")
    if not isinstance(budget, int):
        budget = 25_000 if device.type == "cuda" else 2048
    words = [f"w{number}" for number in range(size - len(SPECIALS))]
    Tokenizer.train([" ".join(words)], TokenizerConfig(kind="words", vocabulary=size)).save(folder / "tokenizer.json")
    mean = np.exp(LENGTHS[0] + LENGTHS[1] ** 2 / 2)
    _write_sentences(folder, words, pairs=min(max(200, int(HELD * budget / mean)), MOST))
    data = {"folder": str(folder), "source": "source", "target": "target"}
    kept = {name: group for name, group in tree.items() if name not in ("data", "tokenizer", "start")}
    return kept | {"model": model, "data": data, "tokenizer": {"file": "tokenizer.json"}}


def _write_sentences(folder: Path, words: list[str], pairs: int) -> None:
    chance, spelled = np.random.default_rng(1), np.array(words, dtype=object)
    source = np.exp(chance.normal(*LENGTHS, pairs)).clip(SHORTEST, LONGEST).astype(int)
    target = (source * chance.uniform(*RATIO, pairs)).clip(SHORTEST, LONGEST).astype(int)
    for name, lengths in (("source", source), ("target", target)):
        drawn = np.split(spelled[chance.integers(len(words), size=lengths.sum())], lengths.cumsum()[:-1])
        (folder / name).write_text("".join(" ".join(sentence) + "\n" for sentence in drawn), encoding="utf-8")


@contextmanager
def _trainer(recipe: Recipe, run: Path, device: torch.device, screen: Screen) -> Iterator[Trainer]:
    prepared = reopen(recipe.data, run / "data")
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)  # of what came before
    trainer = trainer_of(recipe, prepared, run, device, screen, ALONE, Stopper())
    with trainer.journal:
        yield trainer


@dataclass(frozen=True)
class _Held:
    """Batches in memory, over and over, as one endless epoch: data that costs nothing."""

    batches: list[Batch]

    @classmethod
    def of(cls, feed: Feed, number: int) -> "_Held":
        return cls(list(feed.epoch(number, 0, rank=0, world=1)[1]))

    def epoch(self, number: int, start: int, *, rank: int, world: int) -> tuple[int, Iterator[Batch]]:
        """See `Feed`."""
        del number, start, rank, world
        return ENDLESS, cycle(self.batches)


@dataclass
class _Watched:
    """A feed that remembers how long the sentences were that were taken from it."""

    feed: Feed
    taken: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    """Lengths of sources and targets, a batch each."""

    def epoch(self, number: int, start: int, *, rank: int, world: int) -> tuple[int, Iterator[Batch]]:
        """See `Feed`."""
        length, batches = self.feed.epoch(number, start, rank=rank, world=world)
        return length, self._noted(batches)

    def _noted(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        for batch in batches:
            self.taken.append((batch.source.lengths, batch.target.lengths))
            yield batch


class _Enough(Exception):  # noqa: N818  # not a fault
    """All slices are full."""


@dataclass
class _Clock:
    """Cuts training into slices; hears of updates when the device is done with them."""

    trainer: Trainer
    feed: _Watched
    seconds: float
    """Of a slice."""
    screen: Screen
    met: int = 0
    """Batches that are part of the warm-up at least."""
    marks: list[tuple[float, int, int]] = field(default_factory=list)
    """Times at which slices begin or end, and the updates and batches until then."""
    begun: float = field(default_factory=time.monotonic)

    def __call__(self, update: Update) -> None:
        # Captured updates run ahead of the host and are told of in bursts; the device is done with the last of one.
        if update.step < self.trainer.progress.step:
            return
        now = time.monotonic()
        warming = WARM_UP * SLICES * self.seconds
        since, wanted = (self.marks[-1][0], self.seconds) if self.marks else (self.begun, warming)
        if now - since < wanted or len(self.feed.taken) < self.met:
            return
        if not self.marks:
            self._shorten_bursts((now - self.begun) / update.step)
        self.marks.append((now, update.step, len(self.feed.taken)))
        self.screen.working("measuring", len(self.marks) - 1, SLICES)
        if len(self.marks) > SLICES:
            raise _Enough

    def _shorten_bursts(self, update: float) -> None:
        """Let no burst of slow updates, of so many seconds each, take more than a quarter of a slice."""
        config = self.trainer.config
        every = max(1, min(config.log_every, int(self.seconds / update / 4)))
        if self.trainer.captured is not None:
            self.trainer.config = config.model_copy(update={"log_every": every})


def _timed(trainer: Trainer, feed: _Watched, seconds: float, screen: Screen, met: int) -> list[Slice]:
    """The slices of the trainer's own loop."""
    trainer.feed = feed
    clock = _Clock(trainer, feed, seconds / SLICES, screen, met)
    trainer.on_update = clock
    screen.working("warming up", 0, None)
    with suppress(_Enough):
        trainer.fit()
    found = []
    for (begun, first, start), (ended, last, stop) in zip(clock.marks, clock.marks[1:], strict=False):
        tokens, operations = _work(trainer, feed.taken[start:stop])
        found.append(Slice(ended - begun, last - first, tokens, operations))
    return found


def _work(trainer: Trainer, taken: list[tuple[Tensor, Tensor]]) -> tuple[int, float]:
    """Target tokens of some batches, and the operations they call for."""
    source, target = (np.concatenate([each.numpy() for each in side]) for side in zip(*taken, strict=True))
    squares = _sum(source**2), _sum(target**2), _sum(target * source)
    shapes = Shapes(source=_sum(source), target=_sum(target), tokens=_sum(target), squares=squares)
    done = shapes.operations(trainer.model.config, len(trainer.model.output.weight), trainer.config)
    return int(target.sum()), float(done.sum())


def _sum(values: NDArray[np.int64]) -> NDArray[np.int64]:
    return values.sum(keepdims=True)


def _drawn_up(
    recipe: Recipe, trainer: Trainer, slices: list[Slice], data: str, found: tuple[float, int, int]
) -> Throughput:
    config, training, device = trainer.model.config, recipe.training, trainer.device
    peak, used, total = found
    machine = f"{platform.machine()} CPU, {torch.get_num_threads()} of {os.cpu_count()} threads"
    names = ("batch_tokens", "accumulate", "layout", "precision", "optimiser", "recompute")
    return Throughput(
        machine=torch.cuda.get_device_name(device) if device.type == "cuda" else machine,
        model=config.shape_in_words,
        parameters=sum(weight.numel() for weight in trainer.model.parameters()),
        vocabulary=len(trainer.model.output.weight),
        settings={name: getattr(training, name) for name in names if name != "recompute" or training.recompute},
        captured=trainer.captured is not None and not trainer.captured.failed,
        data=data,
        slices=slices,
        peak=peak,
        memory=used,
        machine_memory=total,
    )

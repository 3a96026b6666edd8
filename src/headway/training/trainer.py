"""The training loop: `Trainer.fit` to `Trainer.update` to `backward()`."""

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch

from headway.data.batches import Batch
from headway.errors import HeadwayError, Interrupted
from headway.models.catalog import Model
from headway.objectives import LabelSmoothedLikelihood
from headway.training.checkpoint import Checkpoints
from headway.training.config import TrainingConfig, seconds
from headway.training.journal import Journal
from headway.training.progress import Progress
from headway.training.schedule import learning_rate
from headway.training.signals import Stopper

CALIBRATION = 3, 13
"""The updates between which speed is measured for a time budget: after the first slow ones."""
RESERVE = 0.12
"""The share of a time budget kept for validation, averaging and writing the model."""
MOST_SKIPPED = 10
"""Updates in a row that may be skipped for not being finite."""


class Feed(Protocol):
    """Batches in an order that depends on the seed and the data alone."""

    def length(self, epoch: int) -> int:
        """Batches of an epoch."""
        ...

    def batches(self, epoch: int, start: int) -> Iterator[Batch]:
        """The batches of an epoch from one on."""
        ...


@dataclass(frozen=True)
class Validation:
    """What a validation found."""

    scores: dict[str, float]
    """`loss` in nats a token, and `bleu` and `chrf` where sentences were translated."""
    samples: list[str]
    """A few sources, references and outputs, as lines."""


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


@dataclass
class Trainer:
    """Everything one run needs, wired; `fit` may be called after a kill and goes on from the latest checkpoint."""

    config: TrainingConfig
    model: Model
    optimiser: torch.optim.Optimizer
    objective: LabelSmoothedLikelihood
    feed: Feed
    validate: Callable[[Model, Callable[[], None]], Validation]
    checkpoints: Checkpoints
    journal: Journal
    on_update: Callable[[Update], None]
    device: torch.device
    progress: Progress
    _began: float = field(default=0.0, init=False)
    _calibrating_since: float = field(default=0.0, init=False)
    _recent: list[tuple[float, int]] = field(default_factory=list, init=False)

    def fit(self) -> str:
        """Train until done and say why it is; a signal saves at the current step and raises `Interrupted`."""
        self._began = time.monotonic() - self.progress.seconds
        with Stopper() as stopper:
            try:
                return self._loop(stopper)
            except Interrupted:
                self._save()
                raise

    def _loop(self, stopper: Stopper) -> str:
        stream = _Stream(self.feed)
        while True:
            stopper.check(self.progress.step)
            over = self._over()
            if self._validation_due(bool(over)):
                self._validate(stopper)
            elif over:
                return over
            else:
                group = stream.take(self.progress, self.config.accumulate)
                self._log(self.update(group))
                self._advance(len(group))
                self._calibrate()

    def update(self, batches: Sequence[Batch]) -> Update:
        """Take one optimiser step on the union of `batches`, every target token weighing the same."""
        step, units = self.progress.step + 1, sum(batch.units for batch in batches)
        rate = self._rate(step)
        self.model.train()
        surprise = torch.zeros((), device=self.device)
        for batch in batches:
            with self.arithmetic():
                loss = self.objective(self.model, batch.to(self.device))
            (loss.total / units).backward()
            surprise += loss.surprise
        limit = self.config.clip if self.config.clip is not None else math.inf
        norm = float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), limit))
        self._step(rate, norm, step)
        self.optimiser.zero_grad(set_to_none=True)
        now = time.monotonic()
        self._recent = [*self._recent[-20:], (now, units)]
        return Update(
            step,
            self.progress.steps,
            self.progress.epoch,
            float(surprise) / units,
            rate,
            norm,
            self._speed(),
            self._seconds_left(step, now),
        )

    def arithmetic(self) -> AbstractContextManager[object]:
        """Where matrix products are computed in the configured precision."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.config.precision == "bf16")

    def _step(self, rate: float, norm: float, step: int) -> None:
        if math.isfinite(norm):
            for group in self.optimiser.param_groups:
                group["lr"] = rate
            self.optimiser.step()
            self.progress = replace(self.progress, skipped=0)
            return
        self.progress = replace(self.progress, skipped=self.progress.skipped + 1)
        self.journal.say(f"step {step}: the gradient is not finite; update skipped")
        if self.progress.skipped >= MOST_SKIPPED:
            raise HeadwayError(f"step {step}: {MOST_SKIPPED} updates in a row were not finite; lower the learning rate")

    def _advance(self, batches: int) -> None:
        epoch, position = self.progress.epoch, self.progress.position + batches
        if position >= self.feed.length(epoch):
            epoch, position = epoch + 1, 0
        elapsed = time.monotonic() - self._began
        step = self.progress.step + 1
        self.progress = replace(self.progress, step=step, epoch=epoch, position=position, seconds=elapsed)

    def _rate(self, step: int) -> float:
        peak, warmup, kind = self.config.learning_rate, self.config.warmup, self.config.schedule
        assert peak is not None and warmup is not None and kind is not None  # resolved before training
        steps = self.progress.steps
        if self.config.time is not None:
            if steps is None:  # still measuring: go easy
                return peak * min(1.0, step / 200)
            warmup = min(warmup, steps // 8)
        return learning_rate(step, peak=peak, warmup=warmup, kind=kind, steps=steps)

    def _calibrate(self) -> None:
        """Fit the number of steps to a time budget, once, when speed is known."""
        (first, last), progress = CALIBRATION, self.progress
        if self.config.time is None or progress.steps is not None:
            return
        if progress.step == first:
            self._calibrating_since = progress.seconds
        elif progress.step >= last:
            each = (progress.seconds - self._calibrating_since) / (last - first)
            left = seconds(self.config.time) * (1 - RESERVE) - progress.seconds
            self.progress = replace(progress, steps=progress.step + max(1, int(left / each)))

    def _over(self) -> str:
        """Why training is over, or nothing."""
        progress, config = self.progress, self.config
        if progress.stale >= config.patience:
            return f"{progress.stale} validations in a row brought no improvement"
        if progress.steps is not None and progress.step >= progress.steps:
            return f"all {progress.steps} steps are done"
        if progress.epoch >= config.epochs:
            return f"all {config.epochs} epochs are done"
        if config.time is not None and progress.seconds > seconds(config.time) * (1 - RESERVE / 3):
            return f"its time of {config.time} is over"
        return ""

    def _validation_due(self, over: bool) -> bool:
        progress, every = self.progress, self.config.validate_every
        if progress.validated >= progress.step:
            return False
        if every is None:  # a time budget: eight validations, once the number of steps is known
            every = max(1, progress.steps // 8) if progress.steps else progress.step + 1
        return over or progress.step % every == 0

    def _validate(self, stopper: Stopper) -> None:
        self.model.eval()
        with torch.no_grad(), self.arithmetic():
            found = self.validate(self.model, lambda: stopper.check(self.progress.step))
        scores, step = found.scores, self.progress.step
        value = scores[self.config.metric] * (1 if self.config.metric == "loss" else -1)
        better = not self.progress.best or value < self.progress.best[0][0]
        best = tuple(sorted([*self.progress.best, (value, step)])[: self.config.average])
        stale = 0 if better else self.progress.stale + 1
        elapsed = time.monotonic() - self._began
        self.progress = replace(self.progress, validated=step, best=best, stale=stale, seconds=elapsed)
        self.journal.scalars(step, {f"valid/{name}": number for name, number in scores.items()})
        self.journal.text(step, "samples", found.samples)
        told = ", ".join(f"{name} {number:.3f}" for name, number in scores.items())
        self.journal.say(f"step {step}: validation {told}{' (best)' if better else ''}")
        for line in found.samples:
            self.journal.say(line)
        self._recent.clear()
        self._save()

    def _save(self) -> None:
        self.checkpoints.save(self.model, self.optimiser, self.progress)
        self.checkpoints.prune({step for _, step in self.progress.best})

    def _log(self, update: Update) -> None:
        self.on_update(update)
        if update.step % self.config.log_every == 0 or update.step == 1:
            values = {
                "train/loss": update.loss,
                "train/learning_rate": update.learning_rate,
                "train/grad_norm": update.gradient_norm,
                "train/tokens_per_second": update.tokens_per_second,
            }
            self.journal.scalars(update.step, values)

    def _speed(self) -> float:
        if len(self._recent) < 2:
            return 0.0
        elapsed = self._recent[-1][0] - self._recent[0][0]
        return sum(units for _, units in self._recent[1:]) / max(elapsed, 1e-9)

    def _seconds_left(self, step: int, now: float) -> float | None:
        steps = self.progress.steps
        if steps is None or len(self._recent) < 2:
            return None
        each = (now - self._recent[0][0]) / (len(self._recent) - 1)
        return each * (steps - step)


@dataclass
class _Stream:
    """The feed as one stream that follows the position in the run."""

    feed: Feed
    _batches: Iterator[Batch] = field(default_factory=lambda: iter(()), init=False)
    _place: tuple[int, int] = field(default=(-1, -1), init=False)

    def take(self, progress: Progress, most: int) -> list[Batch]:
        """The next batches of the epoch, `most` of them or what is left."""
        if self._place != (progress.epoch, progress.position):
            self._batches = self.feed.batches(progress.epoch, progress.position)
        group = list(itertools.islice(self._batches, most))
        self._place = (progress.epoch, progress.position + len(group))
        return group

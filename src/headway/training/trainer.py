"""The training loop: `Trainer.fit` to `Trainer.update` to `backward()`."""

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import torch

from headway.data.batches import Batch
from headway.errors import HeadwayError, Interrupted
from headway.models.catalog import Model
from headway.objectives import LabelSmoothedLikelihood
from headway.training.checkpoint import Checkpoints
from headway.training.config import TrainingConfig, seconds
from headway.training.journal import Journal
from headway.training.pace import Pace
from headway.training.progress import Progress
from headway.training.schedule import learning_rate
from headway.training.signals import Stopper

VALIDATIONS = 8
"""Validations within a time budget, at most."""
REPLANNED = 10
"""Updates after which a time budget is planned anew: the machine may have become faster or slower."""
VALIDATING = 0.25
"""The share of a time budget they may take."""
MOST_SKIPPED = 10
"""Updates in a row that may be skipped for not being finite."""


@runtime_checkable
class Feed(Protocol):
    """Batches in an order that depends on the seed and the data alone."""

    def epoch(self, number: int, start: int) -> tuple[int, Iterator[Batch]]:
        """How many batches an epoch has, and those from `start` on."""
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
    """To the end if `steps` is known, else to the next validation."""


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
    _pace: Pace = field(default_factory=Pace, init=False)
    _validating: float = field(default=0.0, init=False)
    """Seconds the last validation took, checkpoint included."""
    _validations: int = field(default=VALIDATIONS, init=False)

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
                self._advance(len(group), stream.length)
                if self.progress.step % REPLANNED == 0:
                    self._plan()

    def update(self, batches: Sequence[Batch]) -> Update:
        """Take one optimiser step on the union of `batches`, every target token weighing the same."""
        step, units = self.progress.step + 1, sum(batch.units for batch in batches)
        rate = self._rate(step)
        self.model.train()
        self.optimiser.zero_grad(set_to_none=True)
        surprise = torch.zeros((), device=self.device)
        try:
            for batch in batches:
                with self.arithmetic():
                    loss = self.objective(self.model, batch.to(self.device))
                (loss.total / units).backward()
                surprise += loss.surprise
        except torch.OutOfMemoryError:
            told = f"a batch of {self.config.batch_tokens} tokens does not fit into memory"
            raise HeadwayError(f"step {step}: {told}; halve training.batch_tokens and double accumulate") from None
        limit = self.config.clip or math.inf
        norm = float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), limit))
        self._step(rate, norm, step)
        self._pace.tick(units)
        steps = self.progress.steps
        return Update(
            step,
            steps,
            self.progress.epoch,
            float(surprise) / units,
            rate,
            norm,
            self._pace.tokens_per_second,
            self._pace.seconds_for(self._until(step)),
        )

    def _until(self, step: int) -> int | None:
        """Updates to the end or, where that is not known, to the next validation."""
        if self.progress.steps is not None:
            return self.progress.steps - step
        every = self.config.validate_every
        return None if every is None else max(0, self.progress.validated + every - step)

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

    def _advance(self, batches: int, length: int) -> None:
        epoch, position = self.progress.epoch, self.progress.position + batches
        if position >= length:
            epoch, position = epoch + 1, 0
        elapsed = time.monotonic() - self._began
        step = self.progress.step + 1
        self.progress = replace(self.progress, step=step, epoch=epoch, position=position, seconds=elapsed)

    def _rate(self, step: int) -> float:
        peak, warmup, kind = self.config.learning_rate, self.config.warmup, self.config.schedule
        assert peak is not None and warmup is not None and kind is not None  # resolved before training
        steps = self.progress.steps
        if self.config.time is not None:
            if steps is None and kind == "linear":  # still measuring: where it will fall to is not known
                return peak * min(1.0, step / max(warmup, 1))
            warmup = min(warmup, steps // 8) if steps else warmup
        return learning_rate(step, peak=peak, warmup=warmup, kind=kind, steps=steps)

    def _plan(self) -> None:
        """Fit the number of steps to what is left of a time budget, at the speed of late."""
        if self.config.time is None or not self._pace.sure or self.progress.step == self.progress.steps:
            return
        total, spent = seconds(self.config.time), time.monotonic() - self._began
        if self._validating:
            self._validations = max(1, min(VALIDATIONS, int(VALIDATING * total / self._validating)))
        ahead = self._validations * (1 - spent / total) + 2  # two more when the best checkpoints are averaged
        left = 0.98 * (total - spent) - ahead * self._validating
        planned = self.progress.step + self._pace.updates_in(left)
        self.progress = replace(self.progress, steps=min(planned, self.config.steps or planned))

    def _over(self) -> str:
        """Why training is over, or nothing."""
        progress, config = self.progress, self.config
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
        return over or progress.step - progress.validated >= every

    def _validate(self, stopper: Stopper) -> None:
        began = time.monotonic()
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
        self._save()
        self._validating = time.monotonic() - began
        self._plan()
        self._pace.pause()

    def _save(self) -> None:
        self.checkpoints.save(self.model, self.optimiser, self.progress)
        self.checkpoints.prune(self.progress.step, {step for _, step in self.progress.best})

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


@dataclass
class _Stream:
    """The feed as one stream that follows the position in the run."""

    feed: Feed
    length: int = field(default=0, init=False)
    """Batches of the epoch last taken from."""
    _batches: Iterator[Batch] = field(default_factory=lambda: iter(()), init=False)
    _place: tuple[int, int] = field(default=(-1, -1), init=False)

    def take(self, progress: Progress, most: int) -> list[Batch]:
        """The next batches of the epoch, `most` of them or what is left."""
        if self._place != (progress.epoch, progress.position):
            self.length, self._batches = self.feed.epoch(progress.epoch, progress.position)
        group = list(itertools.islice(self._batches, most))
        self._place = (progress.epoch, progress.position + len(group))
        return group

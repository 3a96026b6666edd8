"""When a run ends: updates, validations and seconds, from the settings and what was measured."""

import math
from dataclasses import dataclass

from headway.forecast.measurement import Measured
from headway.training.config import TrainingConfig, seconds
from headway.training.trainer import CLOSING, SPARED, VALIDATING, VALIDATIONS


@dataclass(frozen=True)
class Epochs:
    """How many updates an epoch has."""

    updates: int
    shortened: float = 0.0
    """Epochs that a curriculum leaves out of the first ones."""
    every: int = 100
    """Updates between two validations, where neither settings nor a time budget say."""


@dataclass(frozen=True)
class Ending:
    """How long a run goes on at the most, and what it then has done."""

    reason: str
    """What sets the end: steps, epochs or time."""
    updates: int
    epochs: float
    validations: int
    seconds: float
    """From the first update to the saved model."""
    every: int
    """Updates between two validations."""


def ending(training: TrainingConfig, epochs: Epochs, measured: Measured) -> Ending:
    """When a run ends that goes on improving."""
    costs = _Costs.of(training, measured)
    limits: dict[str, float] = {"time": math.inf}
    if training.steps is not None:
        limits["steps"] = training.steps
    if training.epochs is not None:
        limits["epochs"] = max(1, math.ceil((training.epochs - epochs.shortened) * epochs.updates))
    count = None
    if training.time is not None:
        total = seconds(training.time)
        count = max(1, min(VALIDATIONS, int(VALIDATING * total / costs.validation)))
        limits["time"] = costs.fitting((1 - SPARED) * total, count)
    reason = min(limits, key=lambda name: limits[name])
    updates = int(limits[reason])
    every = training.validate_every or (max(1, updates // count) if count else epochs.every)
    timed = training.validate_every is None and count is not None  # none shortly before the last one
    validations = max(1, math.floor(updates / every + 0.5)) if timed else math.ceil(updates / every)
    done = updates / epochs.updates + epochs.shortened
    return Ending(reason, updates, done, validations, costs.spent(updates, validations), every)


@dataclass(frozen=True)
class _Costs:
    """Seconds, everything that belongs to it included."""

    update: float
    validation: float
    closing: float

    @classmethod
    def of(cls, training: TrainingConfig, measured: Measured) -> "_Costs":
        saving = measured.saving / training.save_every if training.save_every else 0.0
        judging = measured.loss + measured.translating
        return cls(measured.update + saving, judging + measured.saving, CLOSING * judging)

    def spent(self, updates: int, validations: int) -> float:
        return updates * self.update + validations * self.validation + self.closing

    def fitting(self, total: float, validations: int) -> int:
        """Updates that fit into a time, with so many validations spread over them."""
        return max(1, int((total - self.spent(0, validations)) / self.update))

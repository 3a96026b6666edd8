"""Noticing that training collapses: the loss is far above where it was, and stays there."""

from dataclasses import dataclass, replace

WINDOW = 100
"""Updates whose mean loss is compared. Fewer are too noisy: batches of like lengths differ by a nat and more."""
RISE = 0.7
"""Nats per token above the lowest window that count as far above."""
WINDOWS = 3
"""Windows in a row far above the lowest that are a collapse."""
RECOVERIES = 4
"""Collapses that are recovered from; after the last one the rate is 1/16, and a lower one would not help."""


@dataclass(frozen=True)
class LossHistory:
    """The training loss in windows of updates; part of the progress of a run, so that resuming notices the same."""

    nll: float = 0.0
    """Negative log-likelihood of the current window."""
    units: int = 0
    """Its target tokens."""
    updates: int = 0
    """Its updates."""
    lowest: float | None = None
    """The lowest mean loss of a window."""
    latest: float | None = None
    """That of the last whole window."""
    high: int = 0
    """Windows in a row that were far above the lowest."""

    def add(self, nll: float, units: int) -> "LossHistory":
        """Count one more update."""
        return replace(self, nll=self.nll + nll, units=self.units + units, updates=self.updates + 1)

    def close(self, window: int = WINDOW) -> "LossHistory":
        """End the window and compare its mean with the lowest; one that is too short goes on."""
        if self.updates < window or not self.units:
            return self
        mean = self.nll / self.units
        if self.lowest is None or mean < self.lowest:
            return LossHistory(lowest=mean, latest=mean)
        return LossHistory(lowest=self.lowest, latest=mean, high=self.high + 1 if mean > self.lowest + RISE else 0)

    @property
    def collapsed(self) -> bool:
        """Whether the loss rose far above its lowest level and stayed there."""
        return self.high >= WINDOWS

"""How far a run has come: the part of its state that is not tensors."""

import json
from dataclasses import asdict, dataclass, field

from headway.training.collapse import LossHistory


@dataclass(frozen=True)
class Progress:
    """A position in a run; with the seed it decides every later step."""

    step: int = 0
    """Updates done."""
    epoch: int = 0
    """The pass over the data we are in."""
    position: int = 0
    """Batches of this epoch that are done."""
    steps: int | None = None
    """Updates planned, where that is known."""
    time: str | None = None
    """The time budget they were planned for, if for one."""
    asked: int | None = None
    """The updates that were asked for, if any were."""
    epochs: int | None = None
    """The epochs they were planned for, if for a number of them."""
    seconds: float = 0.0
    """Wall-clock time spent so far."""
    validated: int = 0
    """The step of the last validation."""
    validating: float = 0.0
    """Seconds that it took, by the clock of the first process."""
    best: tuple[tuple[float, int], ...] = ()
    """Value (lower is better) and step of the best validations, best first."""
    stale: int = 0
    """Validations since the best one, or the lowest loss."""
    skipped: int = 0
    """Updates skipped in a row because something was not finite."""
    cells: int | None = None
    """Batches of this many cells did not fit into memory: as large ones are split."""
    world: int = 1
    """Processes that trained together."""
    losses: LossHistory = field(default_factory=LossHistory)
    """The training loss of late and at its lowest."""
    known_loss: float | None = None
    """The lowest validation loss."""
    collapses: int = 0
    """Collapses so far; each halves the learning rate."""
    recovered: int = 0
    """The step at which training last went back to earlier weights; the learning rate is warmed up again from there."""

    def to_json(self) -> str:
        """The progress as JSON."""
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Progress":
        """The inverse of `to_json`."""
        tree = json.loads(text)
        tree["best"] = tuple((float(value), int(step)) for value, step in tree["best"])
        tree["losses"] = LossHistory(**tree.get("losses", {}))
        return cls(**tree)

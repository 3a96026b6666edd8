"""The settings of training."""

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from headway.config import Settings
from headway.training.schedule import ScheduleKind

Positive = Annotated[int, Field(gt=0, le=1 << 40)]


class TrainingConfig(Settings):
    """How a model is trained; what is left unset is chosen for the data and the machine."""

    seed: int = Field(1, ge=0, lt=1 << 31)
    """The source of all chance: same seed, same data, same machine, same model."""
    steps: Positive | None = None
    """Updates at most; unset: until it no longer improves."""
    epochs: Positive | None = None
    """Passes over the data at most; unset: 200 where neither steps nor time set an end."""
    time: str | None = None
    """A wall-clock budget such as 90s, 30m or 2h; schedule and validation are fitted to it."""
    batch_tokens: Positive | None = None
    """Cells of a batch on its larger side, end symbols and padding included."""
    layout: Literal["padded", "packed"] | None = None
    """padded: rows of similar length; packed: sentences end to end without padding. Unset: the faster."""
    accumulate: Positive = 1
    """Batches to an update, every target token weighing the same."""
    learning_rate: float | None = Field(None, gt=0.0, le=10.0)
    """The highest learning rate; unset: 0.4 / dim."""
    schedule: ScheduleKind | None = None
    """After warm-up: inverse_sqrt as in the paper, or linear down to zero at the last step (needs steps or time)."""
    warmup: int | None = Field(None, ge=0, le=1 << 40)
    """Updates to the highest learning rate; unset: 4,000 (2,000 below dim 512), a tenth of the steps at most."""
    beta1: float = Field(0.9, ge=0.0, lt=1.0)
    """Adam's memory of the gradient."""
    beta2: float = Field(0.98, ge=0.0, lt=1.0)
    """Adam's memory of the squared gradient."""
    clip: float = Field(1.0, ge=0.0)
    """The longest gradient let through unscaled; 0 lets all through."""
    label_smoothing: float = Field(0.1, ge=0.0, lt=1.0)
    """The probability spread evenly over the vocabulary in the training target (section 5.4)."""
    precision: Literal["fp32", "bf16"] | None = None
    """Arithmetic of the matrix products; unset: bf16 on GPUs that have it, else fp32."""
    validate_every: Positive | None = None
    """Updates between validations; unset: about an epoch, or a tenth of the steps."""
    metric: Literal["loss", "bleu", "chrf"] = "loss"
    """What tells a better checkpoint from a worse one."""
    patience: Positive = 8
    """Validations without improvement after which training ends."""
    average: Positive = 5
    """How many of the best checkpoints are averaged into the model."""
    samples: int = Field(3, ge=0, le=100)
    """Sample translations shown at each validation."""
    validation_sentences: Positive = 200
    """Validation sentences that are translated for BLEU and chrF; the loss always takes all."""
    log_every: Positive = 50
    """Updates between two lines of the journal."""

    @field_validator("time")
    @classmethod
    def _readable(cls, text: str | None) -> str | None:
        if text is not None:
            seconds(text)
        return text

    @model_validator(mode="after")
    def _linear_ends(self) -> "TrainingConfig":
        if self.schedule == "linear" and self.steps is None and self.time is None:
            raise ValueError("schedule linear must know its end; set steps or time")
        return self


def seconds(text: str) -> float:
    """A duration such as 90s, 30m, 2h or 1h30m in seconds."""
    match = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?", text.strip())
    total = (
        sum(float(part or 0) * unit for part, unit in zip(match.groups(), (3600, 60, 1), strict=True)) if match else 0
    )
    if not 0 < total < 1e9:
        raise ValueError(f"{text!r} is not a duration; write 90s, 30m or 2h")
    return total

"""The settings of training."""

import math
import re
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from headway.config import Settings
from headway.training.optimiser import OptimiserKind
from headway.training.schedule import ENDING, ScheduleKind

Positive = Annotated[int, Field(gt=0, le=1 << 40)]


class TrainingConfig(Settings):
    """How a model is trained; what is left unset is chosen for the data and the machine."""

    seed: int = Field(1, ge=0, lt=1 << 31)
    """The source of all chance: same seed, same data, same machine, same model."""
    steps: Positive | None = None
    """Updates at most; unset: until the time is over or all epochs are done."""
    epochs: Positive | None = None
    """Passes over the data at most; unset: 10 to 300, more for a small corpus; at least 100 with a time budget."""
    time: str | None = None
    """A wall-clock budget such as 90s, 30m or 2h; schedule and validation are fitted to it."""
    batch_tokens: Positive | Literal["auto"] | None = None
    """Cells of a batch on its larger side, end symbols and padding included; auto: as many as memory holds."""
    layout: Literal["padded", "packed"] | None = None
    """padded: rows of similar length; packed: sentences end to end without padding. Unset: the faster."""
    accumulate: Positive = 1
    """Batches of every process to an update, every target token weighing the same."""
    learning_rate: float | None = Field(None, gt=0.0, le=10.0)
    """The highest learning rate; unset: by the width of the model and the batch, lower where start.model is set."""
    schedule: ScheduleKind | None = None
    """After warm-up: linear or cosine to zero at the last step, or inverse_sqrt as in the paper."""
    warmup: int | None = Field(None, ge=0, le=1 << 40)
    """Updates to the highest learning rate; unset: 4,000 (2,000 below dim 512), fewer in a short run."""
    optimiser: OptimiserKind = "adam"
    """adam as in the paper; adamw: with weight decay; muon: orthogonal updates of matrices, AdamW for the rest."""
    weight_decay: float = Field(0.0, ge=0.0, lt=1.0)
    """The share, times the learning rate, by which matrices shrink at every update; never biases, norms, embeddings."""
    beta1: float = Field(0.9, ge=0.0, lt=1.0)
    """Adam's memory of the gradient."""
    beta2: float = Field(0.98, ge=0.0, lt=1.0)
    """Adam's memory of the squared gradient."""
    clip: float = Field(1.0, ge=0.0)
    """The longest gradient let through unscaled; 0 lets all through."""
    label_smoothing: float = Field(0.1, ge=0.0, lt=1.0)
    """The probability spread evenly over the vocabulary in the training target (section 5.4)."""
    r_drop: float = Field(0.0, ge=0.0, le=100.0)
    """R-Drop: the weight of how much two passes with different dropout disagree; above 0 every batch is read twice."""
    scheduled_sampling: float = Field(0.0, ge=0.0, lt=1.0)
    """The share of target inputs replaced by own guesses, reached at half of the steps, or at 50,000 without them."""
    guided_alignment: float = Field(0.0, ge=0.0, le=100.0)
    """The weight of pulling one head's attention towards the word alignments of data.alignment."""
    curriculum: int = Field(0, ge=0, le=1000)
    """Epochs of a length curriculum: epoch k of them takes the shortest k-th part of the pairs, the last one all."""
    ema: float = Field(0.0, ge=0.0, lt=1.0)
    """The decay of a moving average of the weights, which is then what is validated and kept; 0: none."""
    freeze: tuple[str, ...] = ()
    """Parts of the model that do not learn, by the beginning of their names, such as encoder or source_embedding."""
    deterministic: bool = False
    """Kernels whose results are the same to the last bit in every run, where a GPU also has faster ones."""
    sharded: bool = False
    """Divide weights, gradients and moments over all processes (FSDP2) instead of copying them into each (DDP)."""
    recompute: bool = False
    """Keep only the input of every layer and compute the rest again backwards: far less memory, a third more work."""
    precision: Literal["fp32", "bf16"] | None = None
    """Arithmetic of the matrix products; unset: bf16 on GPUs that have it, else fp32."""
    validate_every: Positive | None = None
    """Updates between validations; unset: a tenth of the steps, an eighth of the time, else about an epoch."""
    save_every: Positive | None = None
    """Updates between checkpoints, besides those of every validation; unset: about ten minutes."""
    metric: Literal["loss", "bleu", "chrf"] | None = None
    """How checkpoints are ranked; unset: by chrf where at least 50 sentences are translated, else by loss."""
    patience: Positive = 8
    """Training ends after so many validations in a row that improve neither the metric nor the loss."""
    average: Positive = 5
    """How many of the best checkpoints are averaged into the model."""
    samples: int = Field(3, ge=0, le=100)
    """Sample translations shown at each validation."""
    validation_pairs: Positive | None = None
    """Validation pairs whose loss is measured, spread over all; unset: all, fewer where time is short."""
    validation_sentences: Positive | None = None
    """Validation sentences that are translated for BLEU and chrF; unset: 200, fewer where time is short."""
    log_every: Positive = 50
    """Updates between two lines of the journal."""

    @field_validator("batch_tokens", mode="before")
    @classmethod
    def _budget(cls, given: object) -> object:
        if isinstance(given, bool) or not (given in (None, "auto") or (isinstance(given, int) and given > 0)):
            raise ValueError('should be a positive integer or "auto"')
        return given

    @field_validator("time")
    @classmethod
    def _readable(cls, text: str | None) -> str | None:
        if text is not None:
            seconds(text)
        return text

    @model_validator(mode="after")
    def _fits(self) -> "TrainingConfig":
        if self.schedule in ENDING and self.curriculum and self.steps is None and self.time is None:
            raise ValueError(f"schedule {self.schedule}: a curriculum has epochs of unequal length; set steps or time")
        if self.weight_decay and self.optimiser == "adam":
            raise ValueError("weight_decay is not Adam's; set optimiser to adamw or muon")
        if self.optimiser == "muon" and self.sharded:
            raise ValueError("muon needs whole matrices; leave sharded out")
        methods = [name for name in ("r_drop", "scheduled_sampling", "guided_alignment") if getattr(self, name)]
        if len(methods) > 1:
            raise ValueError(f"{' and '.join(methods)} cannot be combined; leave one out")
        return self


def seconds(text: str) -> float:
    """A duration such as 90s, 30m, 2h or 1h30m in seconds."""
    match = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?", text.strip())
    total = (
        sum(float(part or 0) * unit for part, unit in zip(match.groups(), (3600, 60, 1), strict=True)) if match else 0
    )
    if not 0 < total < 1e9:
        raise ValueError(f"{text!r} is not a duration; write a positive one, such as 90s, 30m or 2h")
    return total


def duration(seconds: float) -> str:
    """A duration as `seconds` reads it, rounded up: 90s, 25m, 1h30m."""
    if seconds <= 120:
        return f"{max(1, math.ceil(seconds))}s"
    minutes = math.ceil(seconds / 60)
    if minutes <= 120:
        return f"{minutes}m"
    hours, minutes = divmod(5 * math.ceil(minutes / 5), 60)
    return f"{hours}h{minutes}m" if minutes else f"{hours}h"

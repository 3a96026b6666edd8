"""A recipe: every setting of a run."""

from collections.abc import Iterator
from typing import Any

from pydantic import model_validator

from headway.config import Settings
from headway.data.config import DataConfig
from headway.data.tokenizer import TokenizerConfig
from headway.models.catalog import AnyModelConfig
from headway.models.model import ModelConfig
from headway.search import DecodingConfig
from headway.start import StartConfig
from headway.training.config import TrainingConfig

MAY_CHANGE = frozenset(
    {
        "training.steps",
        "training.epochs",
        "training.time",
        "training.log_every",
        "training.samples",
        "training.patience",
        "training.save_every",
        "training.recompute",
    }
    | {f"decoding.{name}" for name in DecodingConfig.model_fields}
)
"""Settings that may differ when a run is resumed: how long it goes on, its schedule fitted to that; what it shows; how
its gradients are had, which stay the same."""


SIZES = frozenset({"preset", "dim", "heads", "hidden", "layers", "encoder_layers", "decoder_layers"})
"""Settings of a model that say its size: where none is given, a preset is chosen."""


class Recipe(Settings):
    """A whole run: what to learn from, how to cut it into tokens, the model, its training and its decoding."""

    data: DataConfig
    """What to learn from."""
    tokenizer: TokenizerConfig = TokenizerConfig()
    """How text becomes tokens."""
    model: AnyModelConfig | None = None
    """The model; where no size is set, a preset is chosen for the amount of data and the machine."""
    start: StartConfig | None = None
    """A trained model to go on from."""
    training: TrainingConfig = TrainingConfig()
    """How it is trained."""
    decoding: DecodingConfig = DecodingConfig()
    """How outputs are searched for."""

    @model_validator(mode="after")
    def _sides_fit(self) -> "Recipe":
        problem = None if self.model is None else mismatch(self.model, self.data, self.training)
        if problem is not None:
            raise ValueError(problem)
        return self


def mismatch(model: ModelConfig, data: DataConfig, training: TrainingConfig) -> str | None:
    """Why a model cannot learn from such data, if it cannot."""
    alone = data.text is not None
    if alone and model.reads_source:
        return f"data.text has no source, which a {model.architecture} model reads; give data.source and data.target"
    if not alone and not model.reads_source:
        return f"a {model.architecture} model has no source; give its text by data.text, or on the command line --text"
    if alone and training.metric not in (None, "loss"):
        return f"training.metric: a {model.architecture} model translates nothing to have a {training.metric}; use loss"
    return None


def differences(before: Recipe, after: Recipe) -> list[str]:
    """The dotted names of the settings in which two recipes differ."""
    old, new = dict(_flat(before.model_dump(mode="json"))), dict(_flat(after.model_dump(mode="json")))
    return sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))


def _flat(tree: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value

"""A recipe: every setting of a run, and the choices made where the user made none."""

from collections.abc import Iterator
from typing import Any

import torch
from pydantic import model_validator

from headway.config import Settings, validated
from headway.data.config import DataConfig
from headway.data.tokenizer import TokenizerConfig
from headway.errors import ConfigError
from headway.models.catalog import AnyModelConfig
from headway.models.language import LanguageConfig
from headway.models.layered import Preset
from headway.models.model import ModelConfig
from headway.models.transformer import TransformerConfig
from headway.nn.compiling import compiles
from headway.search import DecodingConfig
from headway.search.parallel import WRITERS, check
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
        problem = None if self.model is None else _mismatch(self.model, self.data, self.training)
        if problem is not None:
            raise ValueError(problem)
        return self


def _mismatch(model: ModelConfig, data: DataConfig, training: TrainingConfig) -> str | None:
    """Why a model cannot learn from such data, if it cannot."""
    alone = data.text is not None
    if alone and model.reads_source:
        return f"data.text has no source, which a {model.architecture} model reads; give data.source and data.target"
    if not alone and not model.reads_source:
        return f"a {model.architecture} model has no source; give its text by data.text, or on the command line --text"
    if alone and training.metric != "loss":
        return f"training.metric: a {model.architecture} model translates nothing to have a {training.metric}; use loss"
    return None


def choose(recipe: Recipe, pairs: int, device: torch.device) -> Recipe:
    """The recipe with every open choice made for this many training pairs on this device."""
    model = _model(recipe.model, recipe.data, pairs, device)
    problem = _mismatch(model, recipe.data, recipe.training)  # which may come from the model that a run begins from
    if problem is not None:
        raise ConfigError(problem)
    if model.architecture in WRITERS:
        check(model.architecture, recipe.decoding)
    if model.tie == "three-way" and not recipe.tokenizer.joint:
        model = model.model_copy(update={"tie": "two-way"})
    tokenizer = recipe.tokenizer
    if tokenizer.vocabulary is None and tokenizer.kind == "bpe" and tokenizer.file is None:
        tokenizer = tokenizer.model_copy(update={"vocabulary": vocabulary_for(pairs)})
    training = _training(recipe.training, model, device, tuned=recipe.start is not None)
    chosen: dict[str, Any] = {"model": model, "tokenizer": tokenizer, "training": training}
    if not model.reads_source:
        chosen["decoding"] = _drawing(recipe.decoding, model)
    return recipe.model_copy(update=chosen)


def _drawing(given: DecodingConfig, model: ModelConfig) -> DecodingConfig:
    """How texts are asked of a language model: drawn, and as long as it knows, unless the recipe says otherwise."""
    usual = {"sample": True, "longest": model.longest - 1, "limit_extra": model.longest - 1}
    return validated(DecodingConfig, {**usual, **given.model_dump(exclude_unset=True)}, "decoding")


def _model(given: ModelConfig | None, data: DataConfig, pairs: int, device: torch.device) -> ModelConfig:
    """A Transformer of no given size, or half of one, gets one; the sizes of others have defaults of their own."""
    if given is not None and not isinstance(given, TransformerConfig | LanguageConfig):
        return given
    kind = type(given) if given is not None else TransformerConfig if data.text is None else LanguageConfig
    settings = given.model_dump(exclude_unset=True) if given is not None else {}
    if settings.keys().isdisjoint(SIZES):
        settings = {"preset": preset_for(pairs, device), "longest": 256, **settings}
    return kind.model_validate(settings)


def _training(given: TrainingConfig, model: ModelConfig, device: torch.device, *, tuned: bool) -> TrainingConfig:
    gpu = device.type == "cuda"
    bounded = given.time is not None or given.steps is not None
    warmup = 4000 if model.dim >= 512 else 2000
    if given.steps is not None:
        warmup = min(warmup, given.steps // 10)
    half = gpu and torch.cuda.is_bf16_supported(including_emulation=False)
    dropping = isinstance(model, TransformerConfig | LanguageConfig) and model.attention_dropout > 0.0
    dropping = dropping and not (half and compiles())  # only our own kernel knows how
    packed = half and model.packable and not dropping and not given.guided_alignment
    if given.layout == "packed" and not model.packable and not isinstance(model, TransformerConfig):
        raise ConfigError(f"training.layout: a {model.architecture} model reads padded batches; leave the setting out")
    chosen: dict[str, Any] = {
        "epochs": None if bounded else 200,
        "batch_tokens": (25_000 if model.dim >= 512 else 8192) if gpu else 2048,
        "layout": "packed" if packed else "padded",
        "learning_rate": (0.1 if tuned else 0.4) / model.dim,  # what was learnt before is not to be shaken off
        "schedule": "linear" if bounded else "inverse_sqrt",
        "warmup": warmup,
        "precision": "bf16" if half else "fp32",
        "validate_every": max(1, given.steps // 10) if given.steps is not None and given.time is None else None,
    }
    unset = {name: value for name, value in chosen.items() if getattr(given, name) is None}
    if not model.reads_source and "label_smoothing" not in given.model_fields_set:
        unset["label_smoothing"] = 0.0  # a language model is for its probabilities
    return TrainingConfig.model_validate({**given.model_dump(), **unset})


def preset_for(pairs: int, device: torch.device) -> Preset:
    """A size that this much data can fill and this machine can train."""
    if pairs < 100_000:
        return "tiny"
    if device.type != "cuda" or pairs < 500_000:
        return "small"
    return "base" if pairs < 10_000_000 else "big"


def vocabulary_for(pairs: int) -> int:
    """Subwords a corpus of this size can support."""
    for limit, size in ((2_000, 1000), (20_000, 4000), (200_000, 8000), (2_000_000, 16_000)):
        if pairs < limit:
            return size
    return 32_000


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

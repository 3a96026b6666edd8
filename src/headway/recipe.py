"""A recipe: every setting of a run, and the choices made where the user made none."""

from collections.abc import Iterator
from typing import Any

import torch

from headway.config import Settings
from headway.data.config import DataConfig
from headway.data.tokenizer import TokenizerConfig
from headway.models.catalog import ModelConfig
from headway.models.transformer import Preset, TransformerConfig
from headway.nn.compiling import compiles
from headway.nn.positions import PositionKind
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
    }
    | {f"decoding.{name}" for name in DecodingConfig.model_fields}
)
"""Settings that may differ when a run is resumed: how long it goes on, its schedule fitted to that; what it shows."""


SIZES = frozenset({"preset", "dim", "heads", "hidden", "encoder_layers", "decoder_layers"})
"""Settings of a model that say its size: where none is given, a preset is chosen."""


BIASED: tuple[PositionKind, ...] = ("relative", "alibi")
"""Positions that are added to the scores of attention, which no kernel for packed batches does."""


class Recipe(Settings):
    """A whole run: what to learn from, how to cut it into tokens, the model, its training and its decoding."""

    data: DataConfig
    """What to learn from."""
    tokenizer: TokenizerConfig = TokenizerConfig()
    """How text becomes tokens."""
    model: ModelConfig | None = None
    """The model; where no size is set, a preset is chosen for the amount of data and the machine."""
    start: StartConfig | None = None
    """A trained model to go on from."""
    training: TrainingConfig = TrainingConfig()
    """How it is trained."""
    decoding: DecodingConfig = DecodingConfig()
    """How outputs are searched for."""


def choose(recipe: Recipe, pairs: int, device: torch.device) -> Recipe:
    """The recipe with every open choice made for this many training pairs on this device."""
    given = recipe.model.model_dump(exclude_unset=True) if recipe.model is not None else {}
    if given.keys().isdisjoint(SIZES):
        given = {"preset": preset_for(pairs, device), "longest": 256, **given}
    model = TransformerConfig.model_validate(given)
    if model.tie == "three-way" and not recipe.tokenizer.joint:
        model = model.model_copy(update={"tie": "two-way"})
    tokenizer = recipe.tokenizer
    if tokenizer.vocabulary is None and tokenizer.kind == "bpe" and tokenizer.file is None:
        tokenizer = tokenizer.model_copy(update={"vocabulary": vocabulary_for(pairs)})
    training = _training(recipe.training, model, device, tuned=recipe.start is not None)
    return recipe.model_copy(update={"model": model, "tokenizer": tokenizer, "training": training})


def _training(given: TrainingConfig, model: ModelConfig, device: torch.device, *, tuned: bool) -> TrainingConfig:
    gpu = device.type == "cuda"
    bounded = given.time is not None or given.steps is not None
    warmup = 4000 if model.dim >= 512 else 2000
    if given.steps is not None:
        warmup = min(warmup, given.steps // 10)
    half = gpu and torch.cuda.is_bf16_supported(including_emulation=False)
    dropping = model.attention_dropout > 0.0 and not (half and compiles())  # only our own kernel knows how
    packed = half and model.positions not in BIASED and not dropping and not given.guided_alignment
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

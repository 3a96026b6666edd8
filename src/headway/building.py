"""The parts of a run, each from the recipe."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import torch

from headway.data.arrays import maximum
from headway.data.feed import Feed
from headway.data.preparation import Prepared
from headway.errors import ConfigError
from headway.models.catalog import CATALOG
from headway.models.model import Model, ModelConfig
from headway.models.transformer import TransformerConfig
from headway.nn.compiling import compiles
from headway.objectives import (
    AlignmentLikelihood,
    ConsistentLikelihood,
    FertilityLikelihood,
    GuidedLikelihood,
    LabelSmoothedLikelihood,
    MaskedLikelihood,
    Objective,
    ScheduledSampling,
)
from headway.recipe import Recipe
from headway.runtime.memory import all_memory
from headway.training.config import TrainingConfig
from headway.training.optimiser import Optimiser

SAMPLING_RAMP = 100_000
"""Updates scheduled sampling reckons with where their number is not known."""


def build_model(recipe: Recipe, prepared: Prepared) -> Model:
    """A new model for the recipe."""
    assert recipe.model is not None  # chosen before
    _refuse_too_large(recipe.model, prepared.target.size)
    _, architecture = CATALOG[recipe.model.architecture]
    try:
        model = architecture(recipe.model, prepared.source.size, prepared.target.size)
    except ValueError as error:
        raise ConfigError(f"model: {error}") from None
    model.prepare(map(prepared.source.spelling, range(prepared.source.size)))
    return model


def _refuse_too_large(config: ModelConfig, vocabulary: int) -> None:
    """Refuse a model that this machine could not hold, before it is tried."""
    count = config.fewest_parameters(vocabulary)
    memory = all_memory()
    if 16 * count > memory:  # weights, gradients and two moments of four bytes each
        told = f"{count / 1e6:,.0f} M parameters take {16 * count / 2**30:,.0f} GiB to train"
        raise ConfigError(f"model: {told}, there are {memory / 2**30:,.0f} here; lower dim, hidden or the layers")


def feed_of(recipe: Recipe, prepared: Prepared, out: Path) -> Feed:
    """The batches of every epoch, as the recipe wants them."""
    training = recipe.training
    assert isinstance(training.batch_tokens, int) and training.layout and recipe.model is not None  # chosen before
    return Feed(
        prepared,
        seed=training.seed,
        budget=training.batch_tokens,
        layout=training.layout,
        folder=out / "data" / "plans",
        dropout=recipe.tokenizer.dropout,
        longest=recipe.model.longest - 1,
        curriculum=training.curriculum,
        word_dropout=recipe.data.word_dropout,
    )


OWN_OBJECTIVES: dict[str, Callable[[float], Objective]] = {
    "ctc": AlignmentLikelihood,
    "fertility": FertilityLikelihood,
    "mask-predict": MaskedLikelihood,
}
"""What models are trained by that are not trained to predict the next token: by architecture, from the smoothing."""


def objective_of(recipe: Recipe) -> Objective:
    """What training minimises."""
    assert recipe.model is not None  # chosen before
    training, model = recipe.training, recipe.model
    smoothing = training.label_smoothing
    if model.architecture in OWN_OBJECTIVES:
        for name in ("r_drop", "scheduled_sampling", "guided_alignment"):
            if getattr(training, name):
                told = f"training.{name}: a {model.architecture} model is trained by a loss of its own"
                raise ConfigError(f"{told}; leave the setting out")
        return OWN_OBJECTIVES[model.architecture](smoothing)
    if training.r_drop:
        return ConsistentLikelihood(smoothing, training.r_drop)
    if training.scheduled_sampling:
        ramp = (training.steps or SAMPLING_RAMP) // 2
        return ScheduledSampling(smoothing, training.scheduled_sampling, ramp)
    if training.guided_alignment:
        return GuidedLikelihood(smoothing, training.guided_alignment)
    return LabelSmoothedLikelihood(smoothing)


def judged_by(model: ModelConfig) -> Objective:
    """What a model is judged by on the validation pairs: the surprise of its own objective."""
    return OWN_OBJECTIVES.get(model.architecture, LabelSmoothedLikelihood)(0.0)


def optimiser_of(training: TrainingConfig, model: Model) -> Optimiser:
    """What moves the weights."""
    return Optimiser(model, training.optimiser, (training.beta1, training.beta2), training.weight_decay)


def longest_of(recipe: Recipe, prepared: Prepared) -> int:
    """Cells of the longest sentence that training may meet."""
    assert recipe.model is not None  # chosen before
    if recipe.tokenizer.dropout:
        return recipe.model.longest
    store = prepared.store
    return 1 + max(map(maximum, (store.source_lengths, store.target_lengths)))


def arithmetic_of(training: TrainingConfig, device: torch.device) -> Callable[[], AbstractContextManager[object]]:
    """Where matrix products are computed in the configured precision."""
    return partial(torch.autocast, device.type, torch.bfloat16, enabled=training.precision == "bf16")


def capturable(recipe: Recipe, device: torch.device) -> bool:
    """Whether nothing in an update depends on what the host knows only then, or takes room for every sentence."""
    training, model = recipe.training, recipe.model
    assert model is not None  # chosen before
    plain = training.accumulate == 1 and training.optimiser != "muon"
    plain = plain and not training.scheduled_sampling and not training.guided_alignment
    packed = training.layout == "packed" and training.precision == "bf16"
    packed = packed and model.packable and isinstance(model, TransformerConfig) and model.feedforward != "convolutional"
    if not (device.type == "cuda" and plain and packed and compiles()):
        return False
    return not training.recompute or _drawn_by_seed(model)


def _drawn_by_seed(model: ModelConfig) -> bool:
    """Whether kernels of our own draw all dropout: torch's generator cannot be turned back inside of a graph."""
    from headway.nn.attention.short import FORWARDS  # there is Triton where this is asked

    if not isinstance(model, TransformerConfig) or model.attention_dropout == 0.0:
        return True
    return model.width in FORWARDS

"""Guided alignment: one head learns to look at the words it translates (Chen et al. 2016; Garg et al. 2019)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from headway.config import Settings
from headway.data.batches import Batch
from headway.data.config import DataConfig
from headway.data.plan import Layout
from headway.data.tokenizer import TokenizerConfig
from headway.errors import ConfigError
from headway.models.model import Model, ModelConfig, autoregressive
from headway.objectives.likelihood import LabelSmoothedLikelihood
from headway.objectives.loss import Loss


class GuidedHead(Settings):
    """The head that was taught where words come from, layers and heads counted from 0."""

    layer: int = Field(ge=0, lt=256)
    """The decoder layer it stands in."""
    head: int = Field(0, ge=0, lt=256)
    """Its place among the heads of that layer."""


def guided_head(model: ModelConfig) -> GuidedHead:
    """The head that training guides: as in Garg et al. the first of the last decoder layer but one, or of the only."""
    return GuidedHead(layer=max(model.attending - 2, 0))


Layer = TypeVar("Layer", Tensor, np.ndarray)


def decisive(cross: Sequence[Layer], guided: GuidedHead | None) -> Layer:
    """Of the weights of every layer, `[..., heads, target, source]`, those that decide which words are linked.

    They are those of the guided head or, where none was guided, the mean over all heads of the last two layers: which
    of the two looks at what is being translated differs from model to model, and the other one is diffuse.
    """
    if guided is None:
        return (cross[-2:][0].mean(-3) + cross[-1].mean(-3)) / 2
    try:
        return cross[guided.layer][..., guided.head, :, :]
    except IndexError:
        told = f"head {guided.head} of layer {guided.layer} is said to be guided, and there is none"
        raise ConfigError(f"alignment: {told}; use another copy of the model") from None


@dataclass(frozen=True)
class GuidedLikelihood:
    """The label-smoothed likelihood plus `weight` times the cross-entropy of one head's attention to the source.

    The attention of `guided_head` at the position that predicts a target token should be spread evenly over the source
    tokens that token is linked to; what it misses is summed over the linked target tokens, so that the trainer divides
    both sums by the same count. Targets without a link are left alone.
    """

    smoothing: float = 0.0
    weight: float = 0.05

    def __call__(self, model: Model, batch: Batch, step: int = 0) -> Loss:  # noqa: ARG002  # the same at every step
        """The loss of all target tokens of a padded batch that knows its alignment."""
        if batch.alignment is None:
            raise ConfigError("training.guided_alignment: this batch has no word alignments; set data.alignment")
        writer = autoregressive(model, "training.guided_alignment")
        decoded = writer.decode(batch.target, writer.encode(batch.source), need_weights=True)
        loss = LabelSmoothedLikelihood(self.smoothing).of(model, decoded.states, batch)
        missed = misalignment(decisive(decoded.cross_weights, guided_head(model.config)), batch.alignment)
        return loss._replace(total=loss.total + self.weight * missed)


def misalignment(
    weights: Float[Tensor, "batch target source"], linked: Bool[Tensor, "batch target source"]
) -> Float[Tensor, ""]:
    """The sum over linked target tokens of the mean of -log attention over the source tokens each is linked to."""
    weights = weights.float() if weights.dtype in (torch.bfloat16, torch.float16) else weights
    surprise = -weights.clamp_min(torch.finfo(weights.dtype).tiny).log()
    counts = linked.sum(-1, keepdim=True).clamp_min(1)
    return (surprise * (linked / counts).to(weights.dtype)).sum()


def check_guidance(
    weight: float, data: DataConfig, tokenizer: TokenizerConfig, layout: Layout | None, model: ModelConfig
) -> None:
    """Refuse settings with which guided alignment of this weight cannot be trained."""
    if not weight:
        return
    if not model.attending:
        told = f"this {model.architecture} model has no attention to the source"
        raise ConfigError(f"training.guided_alignment: {told}; leave the setting out")
    if data.alignment is None:
        raise ConfigError("training.guided_alignment: there are no word alignments; set data.alignment")
    if layout == "packed":
        raise ConfigError("training.guided_alignment: attention is not kept when packed; set training.layout to padded")
    if tokenizer.dropout:
        told = "tokenizer.dropout moves the tokens that are aligned"
        raise ConfigError(f"training.guided_alignment: {told}; leave one of them out")

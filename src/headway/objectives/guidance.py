"""Guided alignment: one head learns to look at the words it translates (Chen et al. 2016; Garg et al. 2019)."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headway.data.batches import Batch
from headway.data.config import DataConfig
from headway.data.plan import Layout
from headway.data.tokenizer import TokenizerConfig
from headway.errors import ConfigError
from headway.models.model import Model, ModelConfig, autoregressive
from headway.nn.stacks import Weights
from headway.objectives.likelihood import LabelSmoothedLikelihood
from headway.objectives.loss import Loss

HEAD = 0
"""The head that is guided."""


@dataclass(frozen=True)
class GuidedLikelihood:
    """The label-smoothed likelihood plus `weight` times the cross-entropy of one head's attention to the source.

    The head is the first of the last decoder layer but one, as in Garg et al., or of the only layer. Its
    attention at the position that predicts a target token should be spread evenly over the source tokens that token is
    linked to; what it misses is summed over the linked target tokens, so that the trainer divides both sums by the same
    count. Targets without a link are left alone.
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
        missed = misalignment(guided_weights(decoded.cross_weights), batch.alignment)
        return loss._replace(total=loss.total + self.weight * missed)


def guided_weights(cross_weights: Weights) -> Float[Tensor, "batch target source"]:
    """The weights of the guided head: of the last layer but one, or of the only one."""
    return cross_weights[max(len(cross_weights) - 2, 0)][:, HEAD]


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
    if not model.attends:
        told = f"this {model.architecture} model has no attention to the source"
        raise ConfigError(f"training.guided_alignment: {told}; leave the setting out")
    if data.alignment is None:
        raise ConfigError("training.guided_alignment: there are no word alignments; set data.alignment")
    if layout == "packed":
        raise ConfigError("training.guided_alignment: attention is not kept when packed; set training.layout to padded")
    if tokenizer.dropout:
        told = "tokenizer.dropout moves the tokens that are aligned"
        raise ConfigError(f"training.guided_alignment: {told}; leave one of them out")

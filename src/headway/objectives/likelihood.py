"""Maximum likelihood of the target with label smoothing (section 5.4)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headway.data.batches import Batch
from headway.models.model import Model
from headway.objectives.loss import Loss
from headway.objectives.projection import smoothed_cross_entropy


@dataclass(frozen=True)
class LabelSmoothedLikelihood:
    """Every target token's (1 - ε)·(-log p(label)) + ε·mean over the vocabulary of (-log p)."""

    smoothing: float = 0.0

    def __call__(self, model: Model, batch: Batch, step: int = 0) -> Loss:  # noqa: ARG002  # the same at every step
        """The loss of all target tokens of the batch; padding cells never enter."""
        return self.of(model, model(batch.source, batch.target), batch)

    def of(self, model: Model, states: Float[Tensor, "*batch time dim"], batch: Batch) -> Loss:
        """The loss of target states that the model has already made of the batch."""
        states, labels = counted(states, batch)
        total, surprise = smoothed_cross_entropy(states, model.output.weight, model.output.bias, labels, self.smoothing)
        return Loss(total, batch.units, surprise)


def counted(
    states: Float[Tensor, "*batch time dim"], batch: Batch
) -> tuple[Float[Tensor, "tokens dim"], Int[Tensor, " tokens"]]:
    """The states and labels of a batch without its padding cells, or with labels of -1 there, which do not count.

    The latter where work is recorded to be done again with other tokens: the number of cells must then stay the same.
    """
    states, labels = states.flatten(0, -2), batch.labels.flatten()
    if batch.target.full:
        return states, labels
    present = batch.target.present.flatten()
    if _recorded(states):
        return states, labels.masked_fill(~present, -1)
    cells = present.nonzero()[:, 0]
    return states.index_select(0, cells), labels.index_select(0, cells)


def _recorded(states: Tensor) -> bool:
    return states.is_cuda and torch.cuda.is_current_stream_capturing()

"""Maximum likelihood of the target with label smoothing (section 5.4)."""

from dataclasses import dataclass

from headway.data.batches import Batch
from headway.models.catalog import Model
from headway.objectives.loss import Loss
from headway.objectives.projection import smoothed_cross_entropy


@dataclass(frozen=True)
class LabelSmoothedLikelihood:
    """Every target token's (1 - ε)·(-log p(label)) + ε·mean over the vocabulary of (-log p)."""

    smoothing: float = 0.0

    def __call__(self, model: Model, batch: Batch) -> Loss:
        """The loss of all target tokens of the batch; padding cells never enter."""
        states, labels = model(batch.source, batch.target).flatten(0, -2), batch.labels.flatten()
        if not batch.target.full:
            cells = batch.target.present.flatten().nonzero()[:, 0]
            states, labels = states.index_select(0, cells), labels.index_select(0, cells)
        total, surprise = smoothed_cross_entropy(states, model.output.weight, model.output.bias, labels, self.smoothing)
        return Loss(total, batch.units, surprise)

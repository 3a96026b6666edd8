"""R-Drop: two passes with different dropout should agree (Liang et al. 2021)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headway.data.batches import Batch
from headway.models.model import Model
from headway.objectives.likelihood import counted
from headway.objectives.loss import Loss
from headway.objectives.projection import SmoothedCrossEntropy, projected


@dataclass(frozen=True)
class ConsistentLikelihood:
    """Half of L₁ + L₂ + weight·½·(KL(p₁‖p₂) + KL(p₂‖p₁)), the paper's loss, summed over the target tokens.

    L₁ and L₂ are the label-smoothed likelihood of two passes over the same batch, each with dropout of its own. Half of
    it, so that the scale, and with it the learning rate, is that of one pass.
    """

    smoothing: float = 0.0
    weight: float = 5.0

    def __call__(self, model: Model, batch: Batch, step: int = 0) -> Loss:  # noqa: ARG002  # the same at every step
        """The loss of all target tokens of the batch, read twice in one pass; the surprise is the mean of both."""
        twice = batch.repeated(2)
        states, labels = counted(model(twice.source, twice.target), twice)
        passes = 2, len(labels) // 2
        states, labels = states.unflatten(0, passes), labels.unflatten(0, passes)
        criterion = Agreement(SmoothedCrossEntropy(self.smoothing), self.weight / 2)
        total, surprise = projected(states, model.output.weight, model.output.bias, labels, criterion)
        return Loss(total / 2, batch.units, surprise / 2)


@dataclass(frozen=True)
class Agreement:
    """The likelihood of two passes plus `weight` times their divergence KL(p‖q) + KL(q‖p)."""

    likelihood: SmoothedCrossEntropy
    weight: float

    def __call__(
        self,
        logits: Float[Tensor, "passes tokens vocabulary"],
        labels: Int[Tensor, "passes tokens"],
        *,
        differentiate: bool,
    ) -> tuple[Tensor, Float[Tensor, "passes tokens vocabulary"] | None]:
        """See `Criterion`.

        With d the difference of the logits, the divergence is the mean of d under p less that under q; its gradient
        with respect to the logits of p is p·(d - the mean of d under p) + p - q, and likewise for q with -d.
        """
        first, second = logits.unbind()
        difference = first - second
        sums = self.likelihood.reduce(logits, labels)  # from here on the logits are probabilities
        slopes = torch.mul(logits, difference)
        means = slopes.sum(-1, keepdim=True)
        sums[0] += self.weight * (means[0] - means[1]).sum()
        if not differentiate:
            return sums, None
        for own, other, slope, mean, sign in zip(logits, (second, first), slopes, means, (1, -1), strict=True):
            signed = sign * self.weight
            slope.mul_(signed).addcmul_(own, 1 + self.weight - signed * mean).sub_(other, alpha=self.weight)
        return sums, self.likelihood.differentiate(slopes, labels)

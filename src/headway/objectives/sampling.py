"""Scheduled sampling: learning to go on from one's own mistakes (Bengio et al. 2015)."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor

from headway.data.batches import Batch
from headway.models.model import Model
from headway.objectives.likelihood import LabelSmoothedLikelihood
from headway.objectives.loss import Loss
from headway.objectives.projection import likeliest


@dataclass(frozen=True)
class ScheduledSampling:
    """The likelihood of the gold target, given inputs of which a share are the model's own guesses.

    Two passes make it parallel (Mihaylova and Martins 2019): the first, on the gold target, guesses every
    token; the second is trained on the mixture.
    """

    smoothing: float = 0.0
    most: float = 0.25
    """The share of target inputs replaced in the end."""
    ramp: int = 1
    """The update from which on it is reached, from none at first, by a straight line."""

    def share(self, step: int) -> float:
        """The share of target inputs replaced in update number `step`."""
        return self.most * min(1.0, step / max(self.ramp, 1))

    def __call__(self, model: Model, batch: Batch, step: int = 0) -> Loss:
        """The loss of all target tokens of the batch; while nothing is replaced, at the cost of the likelihood."""
        share = self.share(step)
        mixed = batch if share <= 0.0 else _mixed(batch, guesses(model, batch), share)
        return LabelSmoothedLikelihood(self.smoothing)(model, mixed, step)


def guesses(model: Model, batch: Batch) -> Int[Tensor, "*batch time"]:
    """The likeliest label at every position of the target, given the gold tokens before it.

    Nothing is dropped out: these should be the mistakes of decoding, which drops nothing, not those of a thinned model.
    """
    with torch.no_grad(), _evaluating(model), _uncached(batch.labels.device.type):
        states = model(batch.source, batch.target)
        return likeliest(states.flatten(0, -2), model.output.weight, model.output.bias).view(batch.labels.shape)


def _mixed(batch: Batch, guessed: Int[Tensor, "*batch time"], share: float) -> Batch:
    """The batch with a share of its target inputs replaced; a guess is the input of the next position."""
    target = batch.target
    drawn = torch.rand(target.tokens.shape, device=target.tokens.device) < share
    chosen = drawn & target.present & (target.positions > 0)  # the start symbol stays
    return replace(batch, target=replace(target, tokens=torch.where(chosen, guessed.roll(1, -1), target.tokens)))


@contextmanager
def _evaluating(model: Model) -> Iterator[None]:
    """Put the model into evaluation, and afterwards every part of it back into what it was."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def _uncached(device: str) -> Iterator[None]:
    """Keep autocast from remembering the weights it lowers here: they have no gradient, and must not be used again."""
    enabled, lowered = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
    with torch.autocast(device, lowered, enabled=enabled, cache_enabled=False):
        yield

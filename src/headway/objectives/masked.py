"""What a conditional masked language model is trained by: some tokens hidden, guessed from the others."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from headway.data.batches import Batch
from headway.models.maskpredict import MaskPredict
from headway.models.model import Model
from headway.objectives.loss import Loss
from headway.objectives.projection import smoothed_cross_entropy
from headway.sequences import Sequences

SEED = 1
"""Of the tokens that are hidden where nothing is learnt: the same at every validation."""


@dataclass(frozen=True)
class MaskedLikelihood:
    """Twice -log p(hidden tokens | source, other tokens), smoothed, plus -log p(length | source).

    Of a target of N tokens, from 1 to N are hidden, each number as likely (Ghazvininejad et al. 2019, section 3.1).
    Twice, since half of them are hidden on average: so that the scale is that of a loss of all tokens. The length is
    what says where a target ends, and counts in place of its end symbol.
    """

    smoothing: float = 0.0

    def __call__(self, model: Model, batch: Batch, step: int = 0) -> Loss:  # noqa: ARG002  # the same at every step
        """The loss of a padded batch; which tokens are hidden is drawn from torch's generator, in training."""
        assert isinstance(model, MaskPredict)
        written = batch.written
        hidden = drawn_hidden(written, None if model.training else _fixed(written.tokens.device))
        encoded = model.encode(batch.source)
        labels = offsets(batch.source, written, model.config.length_reach)
        missed = -model.lengths(encoded).gather(1, labels[:, None]).sum()
        states = model.decode(written, hidden, encoded).states
        cells = hidden.flatten().nonzero()[:, 0]
        guessed, wanted = (each.index_select(0, cells) for each in (states.flatten(0, 1), written.tokens.flatten()))
        output = model.output
        total, surprise = smoothed_cross_entropy(guessed, output.weight, output.bias, wanted, self.smoothing)
        return Loss(2 * total + missed, batch.units, 2 * surprise + missed.detach())


def drawn_hidden(written: Sequences, generator: torch.Generator | None = None) -> Bool[Tensor, "batch time"]:
    """Which tokens are hidden: of every sentence from one to all, each number as likely, then each choice of them."""
    device, lengths = written.tokens.device, written.lengths
    shares = torch.rand(len(lengths), device=device, generator=generator)
    count = (shares * lengths).long().minimum(lengths - 1) + 1
    order = torch.rand(written.tokens.shape, device=device, generator=generator)
    ranks = order.masked_fill(~written.present, 2.0).argsort(1).argsort(1)
    return (ranks < count[:, None]) & written.present


def offsets(source: Sequences, written: Sequences, reach: int) -> Int[Tensor, " batch"]:
    """The label of every target's length: by how much it is longer than its source, from `reach` shorter."""
    return (written.lengths - (source.lengths - 1)).clamp(-reach, reach) + reach


def _fixed(device: torch.device) -> torch.Generator:
    return torch.Generator(device).manual_seed(SEED)

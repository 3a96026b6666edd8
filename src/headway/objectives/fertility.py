"""What a model with fertilities is trained by: its target given the true fertilities, and these (Gu et al. 2018)."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from headway.data.batches import Batch
from headway.data.config import DataConfig
from headway.data.tokenizer import TokenizerConfig
from headway.errors import ConfigError
from headway.models.fertility import FertilityTransformer, copied
from headway.models.model import Model, ModelConfig
from headway.objectives.likelihood import LabelSmoothedLikelihood
from headway.objectives.loss import Loss
from headway.sequences import Sequences


@dataclass(frozen=True)
class FertilityLikelihood:
    """-log p(target | source, fertilities), smoothed, plus -log p(fertilities | source) (equation 7).

    The fertilities are those of the alignment, so that the surprise is a bound on that of the target. The end symbol is
    not written, since the fertilities say where the target ends; what these cost counts in its place.
    """

    smoothing: float = 0.0

    def __call__(self, model: Model, batch: Batch, step: int = 0) -> Loss:  # noqa: ARG002  # the same at every step
        """The loss of a padded batch that knows its alignment."""
        assert isinstance(model, FertilityTransformer)
        if batch.alignment is None:
            raise ConfigError("training: a fertility model needs word alignments, and this batch has none")
        source, written = batch.source, batch.written
        true = true_fertilities(batch.alignment[:, : written.longest], source, written)
        encoded = model.encode(source)
        labels = true.clamp(max=model.config.largest_fertility)
        missed = -model.fertilities(encoded).gather(2, labels[..., None]).sum()
        copies = copied(source.tokens, true, written.longest)
        decoded = model.decode(replace(written, tokens=copies), encoded)
        kept = replace(batch, target=written, labels=written.tokens)
        loss = LabelSmoothedLikelihood(self.smoothing).of(model, decoded.states, kept)
        return Loss(loss.total + missed, batch.units, loss.surprise + missed.detach())


def true_fertilities(
    alignment: Bool[Tensor, "batch target source"], source: Sequences, written: Sequences
) -> Int[Tensor, "batch source"]:
    """How many target tokens each source token becomes; every target token comes from exactly one."""
    places = origins(alignment, source, written)
    own = places[..., None] == torch.arange(source.longest, device=places.device)
    return (own & written.present[..., None]).sum(1)


def origins(
    alignment: Bool[Tensor, "batch target source"], source: Sequences, written: Sequences
) -> Int[Tensor, "batch target"]:
    """The source token that each target token comes from.

    Of several it is linked to, the one nearest the diagonal; where it is linked to none, that of the nearest target
    token that is, of two alike the left one; in a pair without links, the one on the diagonal.
    """
    read, made = (source.lengths - 1).clamp_min(1)[:, None], written.lengths.clamp_min(1)[:, None]
    times = torch.arange(written.longest, device=alignment.device)
    columns = torch.arange(source.longest, device=alignment.device)
    # How far (j + ½)/n is from (i + ½)/m, times 2mn: whole numbers, of which equals are told apart by their column.
    far = (((2 * times + 1) * read)[:, :, None] - ((2 * columns + 1) * made)[:, None]).abs()
    ranks = (far * source.longest + columns).masked_fill(~alignment, torch.iinfo(torch.int64).max)
    nearest, linked = ranks.argmin(-1), alignment.any(-1)
    never = 2 * written.longest
    before = times.where(linked, -never).cummax(1).values
    after = times.where(linked, never).flip(1).cummin(1).values.flip(1)
    neighbour = before.where(times - before <= after - times, after).clamp(0, written.longest - 1)
    diagonal = ((2 * times + 1) * read).div(2 * made, rounding_mode="floor").minimum(read - 1)
    return nearest.gather(1, neighbour).where(linked.any(1, keepdim=True), diagonal)


def check_alignable(model: ModelConfig, data: DataConfig, tokenizer: TokenizerConfig) -> None:
    """Refuse settings that move the tokens whose alignment the model must know."""
    if not model.aligned:
        return
    for name, value in (("tokenizer.dropout", tokenizer.dropout), ("data.word_dropout", data.word_dropout)):
        if value:
            told = f"{name}: moves the tokens whose alignment a {model.architecture} model must know"
            raise ConfigError(f"{told}; leave the setting out")

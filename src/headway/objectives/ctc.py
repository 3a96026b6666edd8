"""The loss of connectionist temporal classification (Graves et al. 2006): the likelihood summed over all alignments."""

from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from headway.data.arrays import Lengths
from headway.data.batches import Batch
from headway.errors import ConfigError
from headway.models.ctc import Ctc, CtcConfig
from headway.models.model import Model, ModelConfig
from headway.nn.attention.visibility import Segments
from headway.objectives.loss import Loss
from headway.sequences import Sequences


@dataclass(frozen=True)
class AlignmentLikelihood:
    """-log of the probability of all paths that collapse to the target; no end symbol is predicted.

    Smoothing ε makes it (1 - ε)·loss + ε·the mean over all labels of -log p, summed over slots (Kim et al. 2018). A
    pair whose target does not fit into its slots has no path: it counts neither in the sums nor in the units.
    """

    smoothing: float = 0.0

    def __call__(self, model: Model, batch: Batch, step: int = 0) -> Loss:  # noqa: ARG002  # the same at every step
        """The loss of all pairs of the batch; units are target tokens and end symbols, as other objectives count."""
        assert isinstance(model, Ctc)
        slots = model.slots(batch.source)
        states, present = padded(slots.states, slots.source)
        labels, lengths = labels_of(batch)
        log_probabilities = model.output(states).float().log_softmax(-1)
        fit = fits(labels, lengths, slots.source.lengths)
        paths = path_loss(log_probabilities, labels, slots.source.lengths, lengths * fit, model.blank)
        total = surprise = (paths * fit).sum()
        if self.smoothing:
            counted = present & fit[:, None]
            even = -(log_probabilities.mean(-1) * counted).sum()
            total = (1.0 - self.smoothing) * total + self.smoothing * even
        units = int(((lengths + 1) * fit).sum()) if batch.units else 0
        return Loss(total, units, surprise.detach())


def countable(config: ModelConfig, batch: Batch) -> Batch:
    """The batch with the units that its loss will count: pairs without a path have none."""
    if not isinstance(config, CtcConfig) or not batch.units:
        return batch
    labels, lengths = labels_of(batch)
    fit = fits(labels, lengths, config.upsample * batch.source.lengths)
    return replace(batch, units=int(((lengths + 1) * fit).sum()))


def path_loss(
    log_probabilities: Float[Tensor, "batch time labels"],
    labels: Int[Tensor, "batch target"],
    slots: Int[Tensor, " batch"],
    lengths: Int[Tensor, " batch"],
    blank: int,
) -> Float[Tensor, " batch"]:
    """-log of the probability of the first `lengths` labels of each row, summed over all paths.

    On a GPU the gradient is a sum whose order may change; where deterministic kernels are asked for, it is made on the
    CPU.
    """
    device = log_probabilities.device
    if device.type == "cuda" and torch.are_deterministic_algorithms_enabled():
        log_probabilities = log_probabilities.cpu()
    given = log_probabilities.transpose(0, 1), labels.to(log_probabilities.device)
    return F.ctc_loss(*given, slots.cpu(), lengths.cpu(), blank=blank, reduction="none").to(device)


def fits(
    labels: Int[Tensor, "batch target"], lengths: Int[Tensor, " batch"], slots: Int[Tensor, " batch"]
) -> Bool[Tensor, " batch"]:
    """Which targets have a path: a slot for each token, and a blank between two that are the same."""
    places = torch.arange(1, max(labels.shape[1], 1), device=labels.device)
    again = (labels[:, 1:] == labels[:, :-1]) & (places < lengths[:, None])
    return lengths + again.sum(1) <= slots


def labels_of(batch: Batch) -> tuple[Int[Tensor, "batch target"], Int[Tensor, " batch"]]:
    """The targets of a batch side by side, and their lengths without the end symbol."""
    labels = batch.labels
    if batch.target.packed:
        labels = pad_sequence(labels.split(batch.target.lengths.tolist()), batch_first=True)
    return labels, batch.target.lengths - 1


def padded(
    states: Float[Tensor, "*rest dim"], slots: Sequences
) -> tuple[Float[Tensor, "sentences time dim"], Bool[Tensor, "sentences time"]]:
    """The states of slots side by side, and which of them are no padding."""
    present = torch.arange(slots.longest, device=slots.lengths.device) < slots.lengths[:, None]
    return Segments(slots, slots).pad_queries(states) if slots.packed else states, present


def without_path(config: ModelConfig, source_lengths: Lengths, target_lengths: Lengths) -> int:
    """How many pairs of so many tokens at least have no path; where that is most of them, a `ConfigError`."""
    if not isinstance(config, CtcConfig):
        return 0
    source, target = np.asarray(source_lengths), np.asarray(target_lengths)
    slots = config.upsample * (source.astype(np.int64) + 1)
    lost = int((target > slots).sum())
    if 2 * lost > len(target):
        needed = int(np.ceil(np.quantile(target / (source + 1), 0.99)))
        told = f"model.upsample: {config.upsample} a source token leave too few slots for {lost} of {len(target)} pairs"
        raise ConfigError(f"{told}; {needed} would do for 99 %")
    return lost

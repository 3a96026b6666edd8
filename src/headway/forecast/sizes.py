"""What follows from the settings by formula: parameters, bytes, floating-point operations, traffic."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from headway.data.arrays import Lengths
from headway.data.plan import Plan
from headway.models.catalog import CATALOG
from headway.models.model import Model, ModelConfig
from headway.models.transformer import TransformerConfig
from headway.training.config import TrainingConfig
from headway.training.optimiser import freeze, matrices

FLOAT = 4
"""Bytes of a weight, a gradient or a moment: all are kept in single precision."""
PARTS = {
    "source_embedding": "embeddings",
    "target_embedding": "embeddings",
    "positions": "embeddings",
    "source_positions": "embeddings",
    "target_positions": "embeddings",
    "ends": "embeddings",
    "encoder": "encoder",
    "encoder_norm": "encoder",
    "decoder": "decoder",
    "output": "output",
}


def outline(config: ModelConfig, source_vocabulary: int, target_vocabulary: int) -> Model:
    """The model without its numbers: shapes alone, which take no memory."""
    _, architecture = CATALOG[config.architecture]
    with torch.device("meta"):
        return architecture(config, source_vocabulary, target_vocabulary)


def parameters(model: nn.Module) -> dict[str, int]:
    """How many numbers each part has; what is tied counts once, with the embeddings."""
    counts = dict.fromkeys(PARTS.values(), 0)
    for name, weight in model.named_parameters():
        counts[PARTS.get(name.partition(".")[0], "decoder")] += weight.numel()
    return counts


def memory_by_part(model: nn.Module, training: TrainingConfig, processes: int) -> dict[str, int]:
    """Bytes that one process keeps from update to update, by what they are for; frozen parts have no gradients."""
    freeze(model, training.freeze)
    count = sum(weight.numel() for weight in model.parameters())
    learning = [weight for weight in model.parameters() if weight.requires_grad]
    learnt = sum(weight.numel() for weight in learning)
    moments = 2 * learnt
    if training.optimiser == "muon":  # one momentum of each matrix, two moments of all else
        inner = matrices(model)
        moments -= sum(weight.numel() for weight in learning if weight in inner and weight.dim() == 2)
    average = count if training.ema else 0
    share = processes if training.sharded else 1
    kept = {"weights": count, "gradients": learnt, "moments": moments, "moving average": average}
    copied = {
        "copy for validation": count if training.ema or share > 1 else 0,
        "copy for saving": count + moments + average,
    }
    return {name: FLOAT * numbers // share for name, numbers in kept.items()} | {
        name: FLOAT * numbers for name, numbers in copied.items()
    }


def traffic(model: nn.Module, training: TrainingConfig, processes: int) -> int:
    """Bytes every process sends in an update when rings exchange gradients, and weights too where they are divided."""
    around = (processes - 1) / processes
    if training.sharded:  # weights are gathered forwards and backwards, gradients scattered, for every batch
        count = sum(weight.numel() for weight in model.parameters())
        return round(3 * around * FLOAT * count) * training.accumulate
    learnt = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    return round(2 * around * FLOAT * learnt)


@dataclass(frozen=True)
class Shapes:
    """The batches of a plan as far as their cost goes, an entry a batch."""

    source: NDArray[np.int64]
    """Cells of the source, padding included."""
    target: NDArray[np.int64]
    tokens: NDArray[np.int64]
    """Target tokens, end symbols included."""
    squares: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
    """Scores a head makes in one layer: source by source, target by target, target by source."""

    @classmethod
    def of(cls, plan: Plan, source_lengths: Lengths, target_lengths: Lengths) -> "Shapes":
        """The shapes of all batches of a plan."""
        cuts, order = np.asarray(plan.cuts), np.asarray(plan.order)
        starts, rows = cuts[:-1], np.diff(cuts)
        both = map(np.asarray, (source_lengths, target_lengths))
        source, target = (lengths[order].astype(np.int64) + 1 for lengths in both)
        tokens = np.add.reduceat(target, starts)
        couples = ((source, source), (target, target), (target, source))
        if plan.layout == "packed":
            squares = tuple(np.add.reduceat(left * right, starts) for left, right in couples)
            return cls(np.add.reduceat(source, starts), tokens, tokens, squares)  # type: ignore[arg-type]  # three of three
        widths = {id(side): np.maximum.reduceat(side, starts) for side in (source, target)}
        squares = tuple(rows * widths[id(left)] * widths[id(right)] for left, right in couples)
        return cls(rows * widths[id(source)], rows * widths[id(target)], tokens, squares)  # type: ignore[arg-type]  # as above

    def _others(self, config: ModelConfig, vocabulary: int) -> NDArray[np.float64]:
        """The same for the Transformer's relatives: every weight is used once for every cell of the larger side."""
        inner = config.fewest_parameters(vocabulary) - vocabulary * config.dim
        cells = np.maximum(self.source, self.target)
        return 6 * (cells * inner + self.tokens * config.dim * vocabulary).astype(np.float64)

    def operations(self, config: ModelConfig, vocabulary: int, training: TrainingConfig) -> NDArray[np.float64]:
        """Floating-point operations of learning from each batch once; `docs/how-to/plan.md` has the formula."""
        if not isinstance(config, TransformerConfig):
            return self._others(config, vocabulary)
        dim, hidden, inner = config.dim, config.hidden, 2 if config.feedforward == "gated" else 1
        wide = 3 if config.feedforward == "convolutional" else inner  # features the first map reads or writes
        looking = config.heads * config.width  # features of all heads
        encoder = self.source * (4 * dim * looking + (wide + 1) * dim * hidden)
        decoder = self.target * (6 * dim * looking + (inner + 1) * dim * hidden)
        own, others, across = (2 * looking * square for square in self.squares)
        layers = config.encoder_layers * (encoder + own) + config.decoder_layers * (decoder + others + across)
        around = config.decoder_layers * self.source * 2 * dim * looking + self.tokens * dim * vocabulary
        passes = 6 if training.r_drop else 4 if training.scheduled_sampling else 3
        again = (2 if training.r_drop else 1) if training.recompute else 0
        return 2.0 * ((passes + again) * layers + passes * around)

"""What a recurrent decoder reads of the source at every step: one fixed context, or what attention finds."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headway.nn.attention.local import Window
from headway.nn.attention.scores import Score
from headway.sequences import Sequences


class SourceMemory(NamedTuple):
    """A source as it is read step by step: projected once, shared by all rows of a sentence."""

    keys: Float[Tensor, "batch key outputs"]
    values: Float[Tensor, "batch key dim"]
    absent: Bool[Tensor, "batch 1 key"] | None
    """True where a key is padding; None where none is."""
    lengths: Int[Tensor, " batch"]

    def keep(self, sentences: Int[Tensor, " sentences"]) -> "SourceMemory":
        """The chosen sentences of the batch, in that order."""
        absent = None if self.absent is None else self.absent.index_select(0, sentences)
        keys, values, lengths = (each.index_select(0, sentences) for each in (self.keys, self.values, self.lengths))
        return SourceMemory(keys, values, absent, lengths)


class Read(NamedTuple):
    """The context of every query, and the weights that mixed it."""

    context: Float[Tensor, "batch query dim"]
    weights: Float[Tensor, "batch query key"] | None


class FixedContext(nn.Module):
    """No attention: every step reads the same summary of the source (Cho et al. 2014)."""

    def remember(self, summary: Float[Tensor, "batch dim"], source: Sequences) -> SourceMemory:
        """The summary as the only thing there is to read."""
        summary = summary[:, None]
        return SourceMemory(summary, summary, None, source.lengths)

    def forward(
        self, query: Float[Tensor, "batch query dim"], memory: SourceMemory, positions: Int[Tensor, " #query"]
    ) -> Read:
        """The summary, whatever the query."""
        del positions
        return Read(memory.values.expand(-1, query.shape[1], -1), None)


class TemporalAttention(nn.Module):
    """Attention over the states of the source: the softmax of scores mixes them into a context.

    Bahdanau et al. (2015, equations 5 and 6); with a window, Luong et al. (2015, section 3.2). A window is a mask: it
    changes what is seen and not how much is computed.
    """

    def __init__(self, score: Score, window: Window | None) -> None:
        super().__init__()
        self.score = score
        self.window = window

    def remember(self, states: Float[Tensor, "batch key dim"], source: Sequences) -> SourceMemory:
        """Project what will be looked at, once for all steps."""
        absent = None if source.full else ~source.present[:, None]
        return SourceMemory(self.score.remember(states), states, absent, source.lengths)

    def forward(
        self, query: Float[Tensor, "batch query dim"], memory: SourceMemory, positions: Int[Tensor, " #query"]
    ) -> Read:
        """What each query, standing at its position of the target, finds in the source."""
        scores, unseen, factor = self.score(query, memory.keys).float(), memory.absent, None
        if self.window is not None:
            outside, factor = self.window(query, positions, memory.lengths, scores.shape[-1])
            unseen = outside if unseen is None else unseen | outside
        if unseen is not None:
            scores = scores.masked_fill(unseen, -torch.inf)
        weights = scores.softmax(-1)
        if factor is not None:
            weights = weights * factor
        return Read(weights.to(memory.values.dtype) @ memory.values, weights)

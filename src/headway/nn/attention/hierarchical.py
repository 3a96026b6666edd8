"""Attention to sentences, and within each sentence to its words."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headway.nn.attention.scores import Additive
from headway.nn.attention.temporal import Read


class DocumentMemory(NamedTuple):
    """A document as it is read step by step: projected once, shared by all rows."""

    words: Float[Tensor, "batch key dim"]
    word_keys: Float[Tensor, "batch key hidden"]
    sentences: Float[Tensor, "batch parts dim"]
    sentence_keys: Float[Tensor, "batch parts hidden"]
    part: Int[Tensor, "batch key"]
    """The sentence of every word; padding has some."""
    member: Float[Tensor, "batch key parts"]
    """1 where a word stands in a sentence, else 0; padding stands in none."""

    def keep(self, chosen: Int[Tensor, " sentences"]) -> "DocumentMemory":
        """The chosen documents of the batch, in that order."""
        return DocumentMemory(*(each.index_select(0, chosen) for each in self))


class HierarchicalAttention(nn.Module):
    """The weight of a word is that of its sentence times its own among the words of that sentence.

    Both are softmaxes of additive scores (Bahdanau et al. 2015), so that the weights of all words sum to one. What is
    read is the mean of the words and that of the sentences, added.
    """

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.sentence_score = Additive(dim, dim, hidden)
        self.word_score = Additive(dim, dim, hidden)

    def remember(
        self,
        words: Float[Tensor, "batch key dim"],
        sentences: Float[Tensor, "batch parts dim"],
        part: Int[Tensor, "batch key"],
        present: Bool[Tensor, "batch key"],
    ) -> DocumentMemory:
        """Project what will be looked at, once for all steps."""
        parts = torch.arange(sentences.shape[1], device=part.device)
        member = ((part[..., None] == parts) & present[..., None]).to(words.dtype)
        keys = self.word_score.remember(words), self.sentence_score.remember(sentences)
        return DocumentMemory(words, keys[0], sentences, keys[1], part, member)

    def forward(self, query: Float[Tensor, "batch query dim"], memory: DocumentMemory) -> Read:
        """What each query finds in its document, and the weights of the words."""
        member = memory.member.transpose(1, 2)
        outer = self.sentence_score(query, memory.sentence_keys).float()
        outer = outer.masked_fill(member.sum(-1)[:, None] == 0, -torch.inf).softmax(-1)
        scores = self.word_score(query, memory.word_keys).float()
        scores = scores.masked_fill(memory.member.sum(-1)[:, None] == 0, -torch.inf)
        powers = (scores - _highest(scores.detach(), memory.part, outer.shape[-1])).exp()
        # Products with who stands where, rather than gathering: their gradients are sums in a fixed order.
        sums = powers @ memory.member.float()
        shares = (outer / sums.masked_fill(sums == 0, 1.0)) @ member.float()
        weights = powers * shares
        context = weights.to(query.dtype) @ memory.words + outer.to(query.dtype) @ memory.sentences
        return Read(context, weights)


def _highest(
    scores: Float[Tensor, "batch query key"], part: Int[Tensor, "batch key"], parts: int
) -> Float[Tensor, "batch query key"]:
    """For every word the highest score in its sentence, so that no sentence is lost to rounding."""
    index = part[:, None].expand_as(scores)
    none = scores.new_full((*scores.shape[:2], parts), -torch.inf)
    return none.scatter_reduce(-1, index, scores, "amax").gather(-1, index)

"""Restricted self-attention (section 4 and table 1): positions see their neighbours alone, in time and memory O(n·r).

The sentences of a batch lie one after the other on one axis, padded or packed alike, which is cut into blocks. A block
of queries meets its own keys and those as far to the left and right as it may see, and nothing else is ever computed.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from headway.nn.attention.visibility import Visible
from headway.nn.dropout import dropout, dropout_mask
from headway.nn.positions import Bias

LEAST, MOST = 16, 64
"""Queries of a block: products of smaller matrices take as long, in larger blocks more is computed to be hidden."""
CELLS = {"cpu": 1 << 18, "cuda": 1 << 25}
"""Scores that are made at once: on a CPU they stay in its cache, on a GPU they keep all of it busy."""
SHORTEST = 64
"""Positions of a sentence below which attention to all of them, those outside of the window hidden, is as fast."""
SPANS = {"cpu": 1.5, "cuda": 8.0}
"""How often what a block sees must fit a sentence for the same reason. On a GPU, which has kernels for most windows, it
is for the memory: at 85 spans a mask takes 1.3 times the time, and nine times the bytes."""


@dataclass(frozen=True)
class Cut:
    """How an axis of tokens is cut into blocks, and how far a query sees to either side."""

    tokens: int
    left: int
    right: int

    @classmethod
    def of(cls, tokens: int, visible: Visible) -> "Cut":
        """The cut that a window asks for."""
        assert visible.window is not None
        return cls(tokens, visible.window, 0 if visible.causal else visible.window)

    @property
    def size(self) -> int:
        """Queries of a block: about half of what each of them sees."""
        return min(max((self.left + self.right) // 32 * 16, LEAST), MOST)

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return -(-self.tokens // self.size)

    @property
    def span(self) -> int:
        """Keys that a block of queries may see."""
        return self.left + self.size + self.right

    @property
    def missing(self) -> int:
        """Tokens that the last block lacks."""
        return self.blocks * self.size - self.tokens

    def distances(self, device: torch.device) -> Int[Tensor, "query key"]:
        """How far right of each query of a block each of its keys stands."""
        query = torch.arange(self.left, self.left + self.size, device=device)
        return torch.arange(self.span, device=device) - query[:, None]


def serves(
    query: Float[Tensor, "*batch query heads width"], key: Float[Tensor, "*batch key heads width"], visible: Visible
) -> bool:
    """Whether positions see a window of their own sequence that is small enough for blocks to be worth while."""
    if visible.window is None or visible.added is not None or visible.distance is not None or query.shape != key.shape:
        return False
    if visible.segments is None:
        length, here = query.shape[-3], query.dim() == 4
    else:
        length, here = visible.segments.queries.longest, visible.segments.queries is visible.segments.keys
    spans = SPANS.get(query.device.type, SPANS["cuda"])
    return here and length >= max(SHORTEST, spans * Cut.of(length, visible).span)


def attend_restricted(
    query: Float[Tensor, "*batch query heads width"],
    key: Float[Tensor, "*batch query heads width"],
    value: Float[Tensor, "*batch query heads width"],
    visible: Visible,
    bias: Bias | None = None,
    *,
    drop: float = 0.0,
) -> Float[Tensor, "*batch query heads width"]:
    """softmax(q·k/√width + bias)·v over the window of each query, with this share of the weights dropped.

    Queries and keys are the same positions, padded or packed. A query that sees nothing gets zeros.
    """
    hidden, shape = _Hidden.of(query, visible), query.shape
    if visible.segments is None:
        query, key, value = (x.flatten(0, 1) for x in (query, key, value))
    if bias is None:
        output = _Restricted.apply(query, key, value, hidden, drop)  # type: ignore[no-untyped-call]  # as torch left it
    else:
        output = _in_the_open(query, key, value, hidden, bias, drop)
    return output if visible.segments is not None else output.unflatten(0, shape[:2])


class _Hidden(NamedTuple):
    """What the queries of every block must not see of the keys around them."""

    cut: Cut
    keys: Bool[Tensor, "blocks query key"]
    blind: Bool[Tensor, "blocks query 1"] | None
    """Queries that see nothing, where there may be some: their rows are opened, and their results set to zero."""

    @classmethod
    def of(cls, query: Tensor, visible: Visible) -> "_Hidden":
        """What lies too far away, in another sentence, or in none."""
        asking, asked = _sentences(query, visible)
        cut = Cut.of(len(asking), visible)
        distance = cut.distances(query.device)
        far = (distance < -cut.left) | (distance > cut.right)
        queries = F.pad(asking, (0, cut.missing), value=-2).view(cut.blocks, cut.size, 1)
        keys = F.pad(asked, (cut.left, cut.missing + cut.right), value=-1).unfold(0, cut.span, cut.size)
        hidden = (queries != keys[:, None]) | far
        return cls(cut, hidden, None if asked is asking else hidden.all(-1, keepdim=True))


def _sentences(query: Tensor, visible: Visible) -> tuple[Int[Tensor, " tokens"], Int[Tensor, " tokens"]]:
    """The number of every token's sentence, as a query and as a key; padding is the key of none."""
    if visible.segments is not None:
        lengths = visible.segments.queries.lengths
        row = torch.arange(len(lengths), device=query.device).repeat_interleave(lengths, output_size=len(query))
        return row, row
    row = torch.arange(query.shape[0], device=query.device).repeat_interleave(query.shape[1])
    return row, row if visible.keys is None else torch.where(visible.keys.flatten(), row, -1)


def _in_the_open(
    query: Float[Tensor, "tokens heads width"],
    key: Float[Tensor, "tokens heads width"],
    value: Float[Tensor, "tokens heads width"],
    hidden: _Hidden,
    bias: Bias | None,
    drop: float,
) -> Float[Tensor, "tokens heads width"]:
    """All blocks at once in plain sight, the weights kept for the gradient: O(n·r·heads), and a bias may learn."""
    cut = hidden.cut
    asked = F.pad(query, (0, 0, 0, 0, 0, cut.missing)).unflatten(0, (cut.blocks, cut.size))
    around = 0, 0, 0, 0, cut.left, cut.missing + cut.right
    keys, values = (F.pad(x, around).unfold(0, cut.span, cut.size) for x in (key, value))
    scores = (asked / math.sqrt(query.shape[-1])).transpose(1, 2) @ keys
    if bias is not None:
        scores = scores + bias(asked, cut.distances(query.device))
    scores = scores.masked_fill(hidden.keys[:, None], _low(scores))
    weights = dropout(scores.softmax(-1), drop, training=True).to(value.dtype)
    output = (weights @ values.mT).transpose(1, 2)
    if hidden.blind is not None:
        output = output.masked_fill(hidden.blind[..., None], 0.0)
    return output.flatten(0, 1)[: cut.tokens]


def _low(scores: Tensor) -> float:
    """A score that leaves no weight; finite, so that a query with no other has no NaN."""
    return torch.finfo(scores.dtype).min / 2


class _Restricted(torch.autograd.Function):
    """Some blocks at a time, forwards and again backwards: no weight is kept, and the gradient is written by hand.

    Heads follow one another on the axis of blocks too. A block at the end of a head then has keys of the next head
    within its span, which are hidden like all that are not of its sentence.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, hidden: _Hidden, drop: float) -> Tensor:
        with torch.autocast(query.device.type, enabled=False):
            laid = _Laid.of(query, key, value, hidden.cut)
            output, kept = torch.empty_like(laid.query), []
            for piece in laid.pieces(hidden):
                weights = piece.weights()
                if drop > 0.0:
                    kept.append(_kept(weights, drop))
                    weights = weights.mul_(kept[-1]).div_(1 - drop)
                torch.bmm(weights, piece.values, out=output[piece.place])
        ctx.save_for_backward(query, key, value, hidden.keys, hidden.blind, *kept)
        ctx.cut, ctx.drop = hidden.cut, drop
        return _as_tokens(_seeing(output, hidden), hidden.cut, query.shape[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, pull: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, keys, blind, *kept = ctx.saved_tensors
        hidden = _Hidden(ctx.cut, keys, blind)
        with torch.autocast(query.device.type, enabled=False):
            laid = _Laid.of(query, key, value, ctx.cut)
            pulls = _seeing(_inner(_by_head(pull, ctx.cut), ctx.cut), hidden)
            slopes = torch.empty_like(laid.query), torch.zeros_like(laid.keys), torch.zeros_like(laid.values)
            for number, piece in enumerate(laid.pieces(hidden)):
                share = kept[number].to(pull.dtype).div_(1 - ctx.drop) if kept else None
                _go_back(piece, pulls[piece.place], slopes, share)
        found = slopes[0].mul_(laid.scale), *(_inner(each, ctx.cut) for each in slopes[1:])
        return *(_as_tokens(each, ctx.cut, query.shape[1]) for each in found), None, None


def _go_back(piece: "_Piece", pull: Tensor, slopes: tuple[Tensor, Tensor, Tensor], share: Tensor | None) -> None:
    """Add what a piece contributes to the gradients of queries, keys and values; `share` is left of its weights."""
    weights = piece.weights()
    slope, given = torch.bmm(pull, piece.values.mT), weights
    if share is not None:
        slope, given = slope.mul_(share), weights * share
    piece.add(slopes[2], torch.bmm(given.mT, pull))
    slope = torch._softmax_backward_data(slope, weights, -1, weights.dtype)
    torch.bmm(slope, piece.keys, out=slopes[0][piece.place])
    piece.add(slopes[1], torch.bmm(slope.mT, piece.query))


def _kept(weights: Tensor, drop: float) -> Bool[Tensor, "blocks query key"]:
    """Which weights survive dropout, a byte each."""
    if weights.device.type == "cpu":
        return dropout_mask(weights, drop).bool()
    return torch.empty_like(weights, dtype=torch.bool).bernoulli_(1 - drop)


def _seeing(blocks: Tensor, hidden: _Hidden) -> Tensor:
    """The blocks, changed in place: zeros where a query sees nothing."""
    if hidden.blind is not None:
        blocks.unflatten(0, (-1, hidden.cut.blocks)).masked_fill_(hidden.blind, 0.0)
    return blocks


def _by_head(x: Float[Tensor, "tokens heads width"], cut: Cut) -> Float[Tensor, "time width"]:
    """A copy head after head, each filled up to whole blocks, and with room at both ends for what these see."""
    length = x.shape[1] * cut.blocks * cut.size
    laid = x.new_zeros(cut.left + length + cut.right, x.shape[2])
    _inner(laid, cut).view(x.shape[1], -1, x.shape[2])[:, : cut.tokens] = x.transpose(0, 1)
    return laid


def _inner(laid: Float[Tensor, "time width"], cut: Cut) -> Float[Tensor, "blocks query width"]:
    """The blocks themselves, without the room around them: a view."""
    return laid[cut.left : len(laid) - cut.right].view(-1, cut.size, laid.shape[1])


def _as_tokens(x: Float[Tensor, "blocks query width"], cut: Cut, heads: int) -> Float[Tensor, "tokens heads width"]:
    """The inverse of `_by_head`, as a view."""
    return x.reshape(heads, -1, x.shape[2])[:, : cut.tokens].transpose(0, 1)


class _Laid(NamedTuple):
    """Queries in blocks, and the keys and values around them, each head after the other."""

    cut: Cut
    scale: float
    query: Float[Tensor, "blocks query width"]
    keys: Float[Tensor, "time width"]
    values: Float[Tensor, "time width"]

    @classmethod
    def of(cls, query: Tensor, key: Tensor, value: Tensor, cut: Cut) -> "_Laid":
        scale = 1 / math.sqrt(query.shape[2])
        asking = _inner(_by_head(query, cut), cut).mul_(scale)
        return cls(cut, scale, asking, _by_head(key, cut), _by_head(value, cut))

    def pieces(self, hidden: _Hidden) -> Iterator["_Piece"]:
        """All blocks, some at a time: several heads, or a part of one."""
        count, blocks = len(self.query), self.cut.blocks
        limit = CELLS.get(self.query.device.type, CELLS["cuda"]) // (self.cut.size * self.cut.span)
        step = limit // blocks * blocks if limit >= blocks else max(limit, 1)
        for first in range(0, count, blocks if step < blocks else step):
            head = min(first + max(step, blocks), count)
            for start in range(first, head, step):
                place = slice(start, min(start + step, head))
                part = slice(None) if step >= blocks else slice(place.start - first, place.stop - first)
                yield _Piece(self, place, hidden.keys[part])


class _Piece(NamedTuple):
    """Some blocks that lie one after the other."""

    laid: _Laid
    place: slice
    hidden: Bool[Tensor, "blocks query key"]

    @property
    def query(self) -> Float[Tensor, "blocks query width"]:
        return self.laid.query[self.place]

    @property
    def keys(self) -> Float[Tensor, "blocks key width"]:
        return self._around(self.laid.keys, 0, self.laid.cut.span)

    @property
    def values(self) -> Float[Tensor, "blocks key width"]:
        return self._around(self.laid.values, 0, self.laid.cut.span)

    def weights(self) -> Float[Tensor, "blocks query key"]:
        """softmax(q·k), zero where a key is hidden."""
        scores = torch.bmm(self.query, self.keys.mT)
        scores.unflatten(0, (-1, len(self.hidden))).masked_fill_(self.hidden, _low(scores))
        if scores.dtype in (torch.float32, torch.float64):
            return scores.softmax(-1)
        return scores.softmax(-1, dtype=torch.float32).to(scores.dtype)

    def add(self, slopes: Float[Tensor, "time width"], found: Float[Tensor, "blocks key width"]) -> None:
        """Add to every key what the blocks that see it found for it, in turns in which no two blocks meet."""
        size, span = self.laid.cut.size, self.laid.cut.span
        for first in range(0, span, size):
            last = min(first + size, span)
            self._around(slopes, first, last).add_(found[:, first:last])

    def _around(self, x: Float[Tensor, "time width"], first: int, last: int) -> Float[Tensor, "blocks key width"]:
        """Of the keys that each block may see those from `first` to `last`: a view, in which blocks overlap."""
        size, width = self.laid.cut.size, x.shape[1]
        shape = self.place.stop - self.place.start, last - first, width
        return x[self.place.start * size + first :].as_strided(shape, (size * width, width, 1))

"""How a model knows the order of its tokens: one protocol, five ways."""

import math
from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

Bias = Callable[[Tensor, Tensor], Tensor]
"""From queries `[*batch, query, heads, width]` and how far right of each query each key stands, `[query, key]`, to what
is added to the scores, `[*batch, heads, query, key]`."""

PositionKind = Literal["sinusoidal", "learned", "rotary", "relative", "alibi"]

BIASED: tuple[PositionKind, ...] = ("relative", "alibi")
"""Positions that are added to the scores of attention, which no kernel for packed batches does."""


class Positions(nn.Module):
    """The three places where order may enter; each kind overrides one, this base leaves all as they are."""

    bias: Bias | None = None
    """What is added to the attention scores."""

    def embed(
        self, embedded: Float[Tensor, "*batch time dim"], positions: Int[Tensor, "*batch time"]
    ) -> Float[Tensor, "*batch time dim"]:
        """Mark the embedded tokens with their positions."""
        del positions
        return embedded

    def turn(
        self, heads: Float[Tensor, "*batch time heads width"], positions: Int[Tensor, "*batch time"]
    ) -> Float[Tensor, "*batch time heads width"]:
        """Mark queries or keys with their positions."""
        del positions
        return heads


class SinusoidalPositions(Positions):
    """Fixed waves of geometrically growing length (section 3.5): the sines in the first half, the cosines after."""

    table: Tensor

    def __init__(self, dim: int, longest: int) -> None:
        super().__init__()
        self.register_buffer("table", sinusoids(longest, dim), persistent=False)

    def embed(
        self, embedded: Float[Tensor, "*batch time dim"], positions: Int[Tensor, "*batch time"]
    ) -> Float[Tensor, "*batch time dim"]:
        """Add the wave of each position."""
        return embedded + self.table[positions].to(embedded.dtype)


def sinusoids(longest: int, dim: int) -> Float[Tensor, "time dim"]:
    """PE(pos) for every position below `longest`; PE(pos + k) is a fixed linear map of PE(pos)."""
    frequency = torch.exp(torch.arange(0, dim, 2, dtype=torch.float64) * (-math.log(10_000.0) / dim))
    angle = torch.arange(longest, dtype=torch.float64)[:, None] * frequency
    return torch.cat((angle.sin(), angle.cos()), dim=1)[:, :dim].float()


class LearnedPositions(Positions):
    """A learned vector a position (Gehring et al. 2017); nothing is known beyond the longest trained."""

    def __init__(self, dim: int, longest: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(longest, dim) * dim**-0.5)

    def embed(
        self, embedded: Float[Tensor, "*batch time dim"], positions: Int[Tensor, "*batch time"]
    ) -> Float[Tensor, "*batch time dim"]:
        """Add the vector of each position."""
        return embedded + self.table[positions].to(embedded.dtype)


class RotaryPositions(Positions):
    """Queries and keys turned by their position: their product sees the distance only (Su et al. 2021)."""

    frequency: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        frequency = 10_000.0 ** (-torch.arange(0, width, 2, dtype=torch.float32) / width)
        self.register_buffer("frequency", frequency, persistent=False)

    def turn(
        self, heads: Float[Tensor, "*batch time heads width"], positions: Int[Tensor, "*batch time"]
    ) -> Float[Tensor, "*batch time heads width"]:
        """Turn each pair (i, i + width/2) of features by its angle at each position."""
        angle = positions[..., None, None] * self.frequency
        cosine, sine = angle.cos().to(heads.dtype), angle.sin().to(heads.dtype)
        first, second = heads.chunk(2, -1)
        return torch.cat((first * cosine - second * sine, second * cosine + first * sine), -1)


class RelativePositions(Positions):
    """A learned vector a distance, added to the keys as the query sees them (Shaw et al. 2018, equation 4)."""

    def __init__(self, width: int, furthest: int) -> None:
        super().__init__()
        self.furthest = furthest
        self.table = nn.Parameter(torch.randn(2 * furthest + 1, width) * width**-0.5)

    def bias(
        self, query: Float[Tensor, "*batch query heads width"], distance: Int[Tensor, "#query key"]
    ) -> Float[Tensor, "*batch heads #query key"]:
        """q·a(distance)/√width, all distances beyond `furthest` alike."""
        by_distance = query.transpose(-3, -2) @ self.table.to(query.dtype).t() / math.sqrt(query.shape[-1])
        index = distance.clamp(-self.furthest, self.furthest) + self.furthest
        index = index.expand(*by_distance.shape[:-1], distance.shape[-1])
        return by_distance.gather(-1, index)


def alibi_slopes(heads: int) -> Float[Tensor, "heads"]:
    """One slope a head, as the paper's code has it: powers of 2^(-8/n) for n heads, where n is a power of two.

    Otherwise those of the power of two below, then every other one of the power of two above.
    """
    fewer = 1 << (heads.bit_length() - 1)
    spread = [2.0 ** (-8.0 * place / fewer) for place in range(1, fewer + 1)]
    between = [2.0 ** (-4.0 * place / fewer) for place in range(1, 2 * fewer, 2)]
    return torch.tensor((spread + between)[:heads])


class AlibiPositions(Positions):
    """A penalty that grows with distance, at a slope of its own in every head (Press et al. 2022)."""

    slopes: Tensor

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.register_buffer("slopes", alibi_slopes(heads), persistent=False)

    def bias(
        self, query: Float[Tensor, "*batch query heads width"], distance: Int[Tensor, "#query key"]
    ) -> Float[Tensor, "*batch heads #query key"]:
        """-slope·|distance|."""
        bias = -self.slopes[:, None, None] * distance.abs()
        return bias.to(query.dtype).expand(*query.shape[:-3], *bias.shape)


def distances(queries: int, keys: int, device: torch.device) -> Int[Tensor, "query key"]:
    """How far right of each query each key stands, the last query standing at the last key."""
    key = torch.arange(keys, device=device)
    return key - torch.arange(keys - queries, keys, device=device)[:, None]


def embedding_positions(kind: PositionKind, *, dim: int, longest: int) -> Positions:
    """What a model adds to its embedded tokens."""
    if kind == "sinusoidal":
        return SinusoidalPositions(dim, longest)
    if kind == "learned":
        return LearnedPositions(dim, longest)
    return Positions()


def attention_positions(kind: PositionKind, *, heads: int, width: int, furthest: int = 16) -> Positions:
    """What one layer's self-attention knows of order."""
    if kind == "rotary":
        return RotaryPositions(width)
    if kind == "relative":
        return RelativePositions(width, furthest)
    if kind == "alibi":
        return AlibiPositions(heads)
    return Positions()

"""Token embeddings and the projection back to the vocabulary (section 3.4)."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from headway.nn.dropout import Dropout, rows_fused_here
from headway.nn.linear import widely
from headway.nn.positions import Positions, SinusoidalPositions


class Embedding(nn.Module):
    """A vector a token, multiplied by √dim so that it stands up to the positions added to it."""

    def __init__(self, vocabulary: int, dim: int) -> None:
        super().__init__()
        self.scale = math.sqrt(dim)
        self.weight = nn.Parameter(torch.empty(vocabulary, dim))
        nn.init.normal_(self.weight, std=dim**-0.5)

    def forward(self, tokens: Int[Tensor, "*batch time"]) -> Float[Tensor, "*batch time dim"]:
        """Look the tokens up."""
        return F.embedding(tokens, self.weight) * self.scale


def embedded(
    embedding: Embedding,
    order: Positions,
    dropout: Dropout,
    tokens: Int[Tensor, "*batch time"],
    positions: Int[Tensor, "*batch time"],
    *,
    wide: bool,
) -> Float[Tensor, "*batch time dim"]:
    """What a stack of layers begins with: the tokens looked up, marked with their positions, and some of it dropped.

    In training on a GPU it has the precision of autocast, or with `wide` that of the embedding.
    """
    weight, probability = embedding.weight, dropout.probability
    fixed = type(order) in (Positions, SinusoidalPositions)
    if not (fixed and rows_fused_here(weight, probability, dropout.training)):
        return dropout(order.embed(embedding(tokens), positions))
    from headway.nn.looking import looked_up

    half = torch.is_autocast_enabled("cuda") and not wide
    dtype = torch.get_autocast_dtype("cuda") if half else weight.dtype
    table = order.table if isinstance(order, SinusoidalPositions) else None
    return looked_up(tokens, weight, table, positions, embedding.scale, probability, dtype)


class Projection(nn.Module):
    """From states to one logit a token; its matrix may be an embedding's (Press and Wolf 2017)."""

    _turned: Float[Tensor, "dim vocabulary"] | None = None
    _as_of: tuple[int, int] = (0, 0)

    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.weight = weight
        self.bias = nn.Parameter(weight.new_zeros(len(weight)))

    def forward(self, states: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch vocabulary"]:
        """The logits of the next token."""
        return F.linear(states, self.weight, self.bias)

    def wide(self, states: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch vocabulary"]:
        """The logits in single precision, whatever the precision of the states."""
        fresh = self._turned is not None and self._as_of == (self.weight._version, self.weight.data_ptr())
        return widened(states, self._turned.t() if fresh and self._turned is not None else self.weight, self.bias)

    def turn(self) -> None:
        """Keep the matrix once more, column by column, until it changes: products of few rows are faster on a CPU."""
        self._turned = self.weight.detach().t().contiguous()
        self._as_of = self.weight._version, self.weight.data_ptr()


def widened(
    states: Float[Tensor, "*batch dim"], weight: Float[Tensor, "vocabulary dim"], bias: Float[Tensor, " vocabulary"]
) -> Float[Tensor, "*batch vocabulary"]:
    """The logits in single precision: halves are multiplied as they are, and their products never rounded."""
    if states.dtype == torch.float32:
        return F.linear(states, weight, bias)
    return unbiased(states, weight).add_(bias.float())


def unbiased(
    states: Float[Tensor, "*batch dim"], weight: Float[Tensor, "vocabulary dim"]
) -> Float[Tensor, "*batch vocabulary"]:
    """The logits in single precision before their bias is added."""
    if states.dtype == torch.float32 or not states.is_cuda:
        return F.linear(states.float(), weight.float())
    return widely(states.flatten(0, -2), weight.t()).unflatten(0, states.shape[:-1])

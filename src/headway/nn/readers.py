"""Three ways to read a sequence as a whole: by attention, by recurrence, by convolution."""

import math
from collections.abc import Iterator
from typing import Literal

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from headway.nn.attention import Visible
from headway.nn.convolution import Convolution, shown
from headway.nn.dropout import Dropout
from headway.nn.layers import LayerShape
from headway.nn.recomputing import recomputed
from headway.nn.recurrent import CellKind, RecurrentEncoder
from headway.nn.stacks import Encoder, Weights
from headway.sequences import Sequences

ReaderKind = Literal["transformer", "recurrent", "convolutional"]

Read = tuple[Float[Tensor, "*batch time dim"], Weights]
"""The states, and every layer's attention where there is some and it was asked for."""


class Reader(nn.Module):
    """Every state sees the sentence on both sides of it; this base leaves the states as they are."""

    def forward(self, x: Float[Tensor, "*batch time dim"], read: Sequences, *, need_weights: bool = False) -> Read:
        """The states of the last layer; padding changes none."""
        del read, need_weights
        return x, ()

    def blocks(self) -> Iterator[nn.Module]:
        """The layers, which processes that share one model gather one after the other."""
        yield from ()


class AttentiveReader(Reader):
    """The encoder of the Transformer; it reads padded and packed sentences."""

    def __init__(self, layers: int, shape: LayerShape) -> None:
        super().__init__()
        self.stack = Encoder(layers, shape)

    def forward(self, x: Float[Tensor, "*batch time dim"], read: Sequences, *, need_weights: bool = False) -> Read:
        """The states of the last layer; padding changes none."""
        return self.stack(x, Visible.between(read, read), read.positions, need_weights=need_weights)

    def blocks(self) -> Iterator[nn.Module]:
        """The layers."""
        yield from self.stack.layers


class RecurrentReader(Reader):
    """Recurrent layers, half of whose features read forwards and half backwards (Graves and Schmidhuber 2005)."""

    def __init__(self, layers: int, dim: int, *, cell: CellKind, dropout: float) -> None:
        super().__init__()
        self.stack = RecurrentEncoder(cell, layers, dim, bidirectional=True, dropout=dropout)
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "batch time dim"], read: Sequences, *, need_weights: bool = False) -> Read:
        """The states of the last layer; padding changes none."""
        del need_weights
        states, _ = self.stack(x, read)
        return self.dropout(states), ()


class GatedLayer(nn.Module):
    """A convolution let through by gates, with a residual connection (Gehring et al. 2017, section 3.1)."""

    def __init__(self, dim: int, *, kernel: int, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.convolution = Convolution(dim, 2 * dim, kernel=kernel)
        self.convolution.initialise(gain=2.0)  # the gates halve what they let through

    def forward(self, x: Float[Tensor, "batch time dim"], read: Sequences) -> Float[Tensor, "batch time dim"]:
        """The next states; padding counts as the zeros beyond the edges."""
        seen = shown(x, None if read.full else read.present)
        return (F.glu(self.convolution(self.dropout(seen))) + x) * math.sqrt(0.5)


class ConvolutionalReader(Reader):
    """Gated convolutions, each of which widens what a state sees by `kernel` - 1 positions."""

    def __init__(self, layers: int, dim: int, *, kernel: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(GatedLayer(dim, kernel=kernel, dropout=dropout) for _ in range(layers))

    def forward(self, x: Float[Tensor, "batch time dim"], read: Sequences, *, need_weights: bool = False) -> Read:
        """The states of the last layer; padding changes none."""
        del need_weights
        for layer in self.layers:
            x = recomputed(layer, x, read)
        return x, ()

    def blocks(self) -> Iterator[nn.Module]:
        """The layers."""
        yield from self.layers


def reader(kind: ReaderKind, layers: int, shape: LayerShape, *, cell: CellKind, kernel: int) -> Reader:
    """So many layers of one kind; none leave the states as they are."""
    if layers == 0:
        return Reader()
    if kind == "recurrent":
        return RecurrentReader(layers, shape.dim, cell=cell, dropout=shape.dropout)
    if kind == "convolutional":
        return ConvolutionalReader(layers, shape.dim, kernel=kernel, dropout=shape.dropout)
    return AttentiveReader(layers, shape)

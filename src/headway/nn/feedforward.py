"""Feed-forward networks: the same for every position (section 3.3), or looking at its neighbours."""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from headway.nn.attention import Visible
from headway.nn.dropout import Dropout
from headway.nn.linear import Linear

FeedForwardKind = Literal["relu", "gelu", "gated", "convolutional"]


class FeedForward(nn.Module):
    """Two linear maps with a non-linearity between them (equation 2)."""

    def __init__(self, dim: int, hidden: int, *, kind: FeedForwardKind = "relu", dropout: float = 0.0) -> None:
        super().__init__()
        self.kind = kind
        self.inner = Linear(dim, 2 * hidden if kind == "gated" else hidden)
        self.outer = Linear(hidden, dim)
        self.dropout = Dropout(dropout)
        initialise(self.inner, self.outer)

    def forward(self, x: Float[Tensor, "*batch time dim"], visible: Visible) -> Float[Tensor, "*batch time dim"]:
        """Map every position on its own."""
        del visible
        return self.outer(self._hidden(x))

    def _hidden(self, x: Float[Tensor, "*batch time dim"]) -> Float[Tensor, "*batch time hidden"]:
        if self.kind == "relu":
            if not torch.is_grad_enabled():
                return self.inner(x).relu_()
            return self.inner.rectified(x, self.dropout.probability if self.training else 0.0)
        if self.kind == "gelu":
            return self.dropout(F.gelu(self.inner(x)))
        value, gate = self.inner(x).chunk(2, -1)  # gated: SwiGLU (Shazeer 2020)
        return self.dropout(value * F.silu(gate))


class ConvolutionalFeedForward(nn.Module):
    """A convolution over each position and its neighbours, then a linear map back."""

    def __init__(self, dim: int, hidden: int, *, reach: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        self.inner = nn.Conv1d(dim, hidden, 2 * reach + 1, padding=reach)
        self.outer = Linear(hidden, dim)
        self.dropout = Dropout(dropout)
        initialise(self.inner, self.outer)

    def forward(self, x: Float[Tensor, "*batch time dim"], visible: Visible) -> Float[Tensor, "*batch time dim"]:
        """Map every position with its neighbours in the same sentence; padding counts as zeros."""
        if visible.segments is not None:
            return visible.segments.pack_queries(self(visible.segments.pad_queries(x), visible.padded()))
        if visible.keys is not None:
            x = x.masked_fill(~visible.keys[..., None], 0.0)
        hidden = self.inner(x.transpose(-2, -1)).transpose(-2, -1)
        return self.outer(self.dropout.rectify(hidden))


def initialise(*maps: nn.Linear | nn.Conv1d) -> None:
    """Xavier-uniform weights and zero biases."""
    for each in maps:
        nn.init.xavier_uniform_(each.weight)
        if each.bias is not None:
            nn.init.zeros_(each.bias)

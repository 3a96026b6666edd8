"""The kinds of layer of table 1 (Vaswani et al. 2017), and how far apart positions are in each of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from headway.nn.attention import Visible, attend
from headway.nn.attention.restricted import attend_restricted

Kind = Literal["self-attention", "self-attention, scores kept", "recurrent", "convolutional", "restricted"]
HEADS, KERNEL, WINDOW = 4, 3, 32
"""Heads of attention; k, the positions a convolution sees; r, those that restricted attention sees."""


@dataclass(frozen=True)
class Claim:
    """What table 1 says of a kind of layer: n positions of d features."""

    operations: str
    by_length: int
    """The power of n in it."""
    by_width: int
    """The power of d in it."""
    sequential: str
    path: str


CLAIMS: dict[Kind, Claim] = {
    "self-attention": Claim("O(n²·d)", 2, 1, "O(1)", "O(1)"),
    "self-attention, scores kept": Claim("O(n²·d)", 2, 1, "O(1)", "O(1)"),
    "recurrent": Claim("O(n·d²)", 1, 2, "O(n)", "O(n)"),
    "convolutional": Claim("O(k·n·d²)", 1, 2, "O(1)", "O(log_k n)"),
    "restricted": Claim("O(r·n·d)", 1, 1, "O(1)", "O(n/r)"),
}


class Attention(nn.Module):
    """Attention within a sequence, every position its own query, key and value.

    The projections of figure 2, which cost O(n·d²) around any attention, are left out as in table 1.
    """

    def __init__(self, kind: Kind, window: int = WINDOW) -> None:
        super().__init__()
        self.kind, self.window = kind, window

    def forward(self, x: Float[Tensor, "batch time dim"]) -> Float[Tensor, "batch time dim"]:
        """The mixed values."""
        heads = x.unflatten(-1, (HEADS, -1))
        if self.kind == "restricted":
            return attend_restricted(heads, heads, heads, Visible(window=self.window // 2)).flatten(-2)
        kept = self.kind == "self-attention, scores kept"
        return attend(heads, heads, heads, Visible(), need_weights=kept).output.flatten(-2)


class Convolution(nn.Module):
    """A convolution over each position and its neighbours; with a dilation, over positions so far apart to its left."""

    def __init__(self, dim: int, dilation: int | None = None) -> None:
        super().__init__()
        self.sides = (KERNEL // 2, KERNEL // 2) if dilation is None else ((KERNEL - 1) * dilation, 0)
        self.inner = nn.Conv1d(dim, dim, KERNEL, dilation=dilation or 1)

    def forward(self, x: Float[Tensor, "batch time dim"]) -> Float[Tensor, "batch time dim"]:
        """The next states."""
        return self.inner(F.pad(x.mT, self.sides)).mT


class Recurrence(nn.Module):
    """A gated recurrent unit (Cho et al. 2014) from left to right."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.inner = nn.GRU(dim, dim, batch_first=True)

    def forward(self, x: Float[Tensor, "batch time dim"]) -> Float[Tensor, "batch time dim"]:
        """The states."""
        return self.inner(x)[0]


def built(kind: Kind, dim: int) -> nn.Module:
    """A layer of a kind."""
    if kind == "recurrent":
        return Recurrence(dim)
    return Convolution(dim) if kind == "convolutional" else Attention(kind)


def layers_between(layer: Callable[[int], nn.Module], length: int) -> int:
    """How many layers, given by number, until the last position knows of the first: by its gradient."""
    torch.manual_seed(1)
    x = torch.randn(1, length, 2 * HEADS, dtype=torch.float64, requires_grad=True)
    states = x
    for number in range(length):
        states = layer(number).double()(states)
        if bool(_slope(states[0, -1], x)[0, 0].any()):
            return number + 1
    raise RuntimeError("layers: a stack as deep as its sequence does not connect the ends")


def steps_between(length: int) -> int:
    """How many states of a recurrence every path from the first position to the last goes through.

    A state is on every path if the last position knows nothing of the first once that state's gradient is cut.
    """
    torch.manual_seed(1)
    cell = nn.GRUCell(4, 4).double()
    x = torch.randn(length, 4, dtype=torch.float64, requires_grad=True)

    def knows(cut: int) -> bool:
        state = torch.zeros(4, dtype=torch.float64)
        for time in range(length):
            state = cell(x[time], state)
            state = state.detach() if time == cut else state
        return bool(_slope(state, x)[0].any()) if state.requires_grad else False

    assert knows(-1)
    return sum(not knows(cut) for cut in range(length))


def _slope(state: Float[Tensor, " dim"], x: Tensor) -> Tensor:
    direction = torch.randn(len(state), generator=torch.Generator().manual_seed(2), dtype=state.dtype)
    (gradient,) = torch.autograd.grad(state @ direction, x, retain_graph=True)
    return gradient

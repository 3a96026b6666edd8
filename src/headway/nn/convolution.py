"""Convolutions over time, of a whole sequence or token by token with a memory of the last ones."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headway.nn.linear import Linear

Recent = Float[Tensor, "batch query reach inputs"]
"""The last inputs of every row, as many as the next output reaches back to."""


class Convolution(nn.Module):
    """A linear map of every position and its neighbours, `dilation` apart; beyond the edges there are zeros.

    It is computed as one matrix product over neighbours laid side by side, so that a whole sequence and a single step
    use the same weights in the same way. A causal one sees no position to the right.
    """

    def __init__(self, inputs: int, outputs: int, *, kernel: int, dilation: int = 1, causal: bool = False) -> None:
        super().__init__()
        self.inputs, self.kernel, self.dilation = inputs, kernel, dilation
        self.reach = (kernel - 1) * dilation
        """How many positions lie between the first and the last that are seen."""
        self.before = self.reach if causal else self.reach // 2
        self.window = Linear(kernel * inputs, outputs)
        nn.init.zeros_(self.window.bias)

    def initialise(self, gain: float) -> None:
        """Draw weights that multiply the variance of what is given by the square of `gain`."""
        nn.init.normal_(self.window.weight, std=gain / math.sqrt(self.kernel * self.inputs))

    def forward(self, x: Float[Tensor, "batch time inputs"]) -> Float[Tensor, "batch time outputs"]:
        """Map every position of a sequence with its neighbours; what must not be seen has to be zero."""
        time = x.shape[1]
        padded = F.pad(x, (0, 0, self.before, self.reach - self.before))
        starts = range(0, self.reach + 1, self.dilation)
        return self.window(torch.cat([padded[:, start : start + time] for start in starts], -1))

    def begin(self, like: Float[Tensor, "batch *rest"]) -> Recent:
        """What is remembered before the first token: zeros, for one row a sentence."""
        return like.new_zeros(len(like), 1, self.reach, self.inputs)

    def step(self, x: Float[Tensor, "batch query inputs"], recent: Recent) -> tuple[Tensor, Recent]:
        """Map the newest position of every row, and what is remembered from now on."""
        seen = torch.cat((recent, x[:, :, None]), 2)
        return self.window(seen[:, :, :: self.dilation].flatten(2)), seen[:, :, 1:]


def shown(x: Float[Tensor, "batch time dim"], present: Bool[Tensor, "batch time"] | None) -> Tensor:
    """The states with zeros in the cells that are padding; None where no cell is."""
    return x if present is None else x.masked_fill(~present[..., None], 0.0)

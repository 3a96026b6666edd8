"""Residual connections and normalisation around a sub-layer (section 5.4; pre-norm: Xiong et al. 2020)."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headway.nn.dropout import Dropout, rows_fused_here

NormPlace = Literal["pre", "post"]


class Norm(nn.LayerNorm):
    """Layer normalisation (Ba et al. 2016); in training on a GPU its result has the precision of autocast."""

    def forward(self, x: Float[Tensor, "*batch time dim"]) -> Float[Tensor, "*batch time dim"]:
        """Normalise every position."""
        if not rows_fused_here(x, 0.0, self.training):
            return super().forward(x)
        from headway.nn.fused import normalised

        dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else x.dtype
        return normalised(x, self.weight, self.bias, self.eps, dtype)


class Residual(nn.Module):
    """What stands around a sub-layer: `leave(x, sublayer(enter(x)))`.

    post: norm(x + dropout(f(x))), as in the paper; pre: x + dropout(f(norm(x))).
    """

    def __init__(self, dim: int, *, norm: NormPlace, dropout: float) -> None:
        super().__init__()
        self.norm = Norm(dim)
        self.dropout = Dropout(dropout)
        self.before = norm == "pre"

    def enter(self, x: Float[Tensor, "*batch time dim"]) -> Float[Tensor, "*batch time dim"]:
        """What the sub-layer sees of `x`."""
        return self.norm(x) if self.before else x

    def leave(
        self, x: Float[Tensor, "*batch time dim"], y: Float[Tensor, "*batch time dim"]
    ) -> Float[Tensor, "*batch time dim"]:
        """`x` joined by what the sub-layer made of it."""
        return self.leave_twice(x, y)[0]

    def leave_twice(
        self, x: Float[Tensor, "*batch time dim"], y: Float[Tensor, "*batch time dim"]
    ) -> tuple[Float[Tensor, "*batch time dim"], Float[Tensor, "*batch time dim"]]:
        """The same for two readers: the next residual to add to, and its sub-layer to see."""
        probability = self.dropout.probability
        if not self.before and rows_fused_here(x, probability, self.training):
            from headway.nn.fused import joined

            return joined(x, y, self.norm.weight, self.norm.bias, self.norm.eps, probability)
        both = self.dropout.add(x, y)
        left = both if self.before else self.norm(both)
        return left, left

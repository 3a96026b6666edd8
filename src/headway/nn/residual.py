"""Residual connections and normalisation around a sub-layer (section 5.4; pre-norm: Xiong et al. 2020)."""

from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from headway.nn.dropout import Dropout

NormPlace = Literal["pre", "post"]


class Residual(nn.Module):
    """What stands around a sub-layer: `leave(x, sublayer(enter(x)))`.

    post: norm(x + dropout(f(x))), as in the paper; pre: x + dropout(f(norm(x))).
    """

    def __init__(self, dim: int, *, norm: NormPlace, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.dropout = Dropout(dropout)
        self.before = norm == "pre"

    def enter(self, x: Float[Tensor, "*batch time dim"]) -> Float[Tensor, "*batch time dim"]:
        """What the sub-layer sees of `x`."""
        return self.norm(x) if self.before else x

    def leave(
        self, x: Float[Tensor, "*batch time dim"], y: Float[Tensor, "*batch time dim"]
    ) -> Float[Tensor, "*batch time dim"]:
        """`x` joined by what the sub-layer made of it."""
        joined = self.dropout.add(x, y)
        return joined if self.before else self.norm(joined)

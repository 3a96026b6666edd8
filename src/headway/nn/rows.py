"""Rows of a search, and what each of them remembers."""

from jaxtyping import Bool, Float, Int
from torch import Tensor


def followed(values: Tensor, parents: Int[Tensor, "batch query"] | None, rows: int) -> Tensor:
    """What each row remembers now: that of the row it continues; `values` has sentences first, then rows.

    Without parents every row continues itself, or all of them the only one there was.
    """
    if parents is None:
        return values if values.shape[1] == rows else values.expand(-1, rows, *values.shape[2:])
    rest = values.shape[2:]
    index = parents.view(*parents.shape, *(1 for _ in rest)).expand(*parents.shape, *rest)
    return values.gather(1, index)


def left_unread(
    coverage: Float[Tensor, "batch query key"], absent: Bool[Tensor, "batch #query key"] | None
) -> Float[Tensor, "batch query"]:
    """How little each row has read of its source: the sum over tokens of log(min(attention received, 1)).

    Wu et al. 2016, equation 14; `absent` marks padding, which there is nothing to read of.
    """
    read = coverage.clamp(1e-9, 1.0).log()
    return (read if absent is None else read.masked_fill(absent, 0.0)).sum(-1)

"""Local attention: windows on the source around a place that is known or predicted (Luong et al. 2015, section 3.2)."""

from abc import abstractmethod
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headway.nn.linear import Linear

WindowKind = Literal["all", "local-m", "local-p"]


class Region(NamedTuple):
    """What of the keys a window lets every query see."""

    outside: Bool[Tensor, "batch #query key"]
    """True where a key is too far away to be seen."""
    factor: Float[Tensor, "batch #query key"] | None
    """What the weights are multiplied by after the softmax."""


class Window(nn.Module):
    """The keys at most `size` away from a place in the source, one place a query."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    @abstractmethod
    def forward(
        self,
        query: Float[Tensor, "batch query dim"],
        positions: Int[Tensor, " #query"],
        lengths: Int[Tensor, " batch"],
        keys: int,
    ) -> Region:
        """What each query, standing at its position of the target, may see of `keys` keys."""

    def distances(self, centre: Float[Tensor, "batch #query"], keys: int) -> Float[Tensor, "batch #query key"]:
        """How far right of its place every key stands."""
        return torch.arange(keys, device=centre.device) - centre[:, :, None]


class Monotonic(Window):
    """local-m: p = t, as if the target followed the source word by word.

    Targets longer than their source look at its end from there on: p = min(t, S - 1), so that a window is never empty.
    """

    def forward(
        self,
        query: Float[Tensor, "batch query dim"],
        positions: Int[Tensor, " #query"],
        lengths: Int[Tensor, " batch"],
        keys: int,
    ) -> Region:
        """The same keys for all queries of a position."""
        del query
        centre = torch.minimum(positions, lengths[:, None] - 1).float()
        return Region(self.distances(centre, keys).abs() > self.size, None)


class Predictive(Window):
    """local-p: p = S · sigmoid(v · tanh(W q)), and weights fall off around it as a Gaussian of deviation `size` / 2.

    The weights are not normalised again, as in the paper's equation 10: they add up to less than one.
    """

    def __init__(self, size: int, dim: int) -> None:
        super().__init__(size)
        self.inner = Linear(dim, dim)
        self.place = nn.Linear(dim, 1, bias=False)
        nn.init.xavier_uniform_(self.inner.weight)
        nn.init.zeros_(self.inner.bias)
        nn.init.xavier_uniform_(self.place.weight)

    def centre(
        self, query: Float[Tensor, "batch query dim"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch query"]:
        """The place in the source that each query expects what it looks for at."""
        # In single precision: a half cannot tell the places of a long sentence apart.
        share = self.place(torch.tanh(self.inner(query))).squeeze(-1).float().sigmoid()
        return share * lengths[:, None]

    def forward(
        self,
        query: Float[Tensor, "batch query dim"],
        positions: Int[Tensor, " #query"],
        lengths: Int[Tensor, " batch"],
        keys: int,
    ) -> Region:
        """Keys and factors of every query's own place."""
        del positions
        distance = self.distances(self.centre(query, lengths), keys)
        factor = torch.exp(-2.0 * (distance / self.size).square())  # the deviation is half the size
        return Region(distance.abs() > self.size, factor)


def window_of(kind: WindowKind, *, size: int, dim: int) -> Window | None:
    """The window of this kind; None where every key may be seen."""
    if kind == "all":
        return None
    return Monotonic(size) if kind == "local-m" else Predictive(size, dim)

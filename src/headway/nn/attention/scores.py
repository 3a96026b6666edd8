"""How well a query and a key go together: the scores of which attention is the softmax."""

import math
from abc import abstractmethod
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headway.nn.linear import Linear

ScoreKind = Literal["dot", "scaled-dot", "multiplicative", "additive", "function"]


class Score(nn.Module):
    """A number for every query and every key; keys are prepared once by `remember`, whatever the number of queries."""

    def remember(self, keys: Float[Tensor, "*batch key inputs"]) -> Float[Tensor, "*batch key outputs"]:
        """What the score needs of the keys."""
        return keys

    @abstractmethod
    def forward(
        self, query: Float[Tensor, "*#batch query dim"], remembered: Float[Tensor, "*#batch key outputs"]
    ) -> Float[Tensor, "*#batch query key"]:
        """The score of every query with every key, given what `remember` made of the keys."""


class Dot(Score):
    """q · k (Luong et al. 2015, equation 8, dot)."""

    def forward(
        self, query: Float[Tensor, "*#batch query dim"], remembered: Float[Tensor, "*#batch key dim"]
    ) -> Float[Tensor, "*#batch query key"]:
        """The product of both."""
        return query @ remembered.transpose(-2, -1)


class ScaledDot(Score):
    """q · k / √dim (Vaswani et al. 2017, equation 1)."""

    def forward(
        self, query: Float[Tensor, "*#batch query dim"], remembered: Float[Tensor, "*#batch key dim"]
    ) -> Float[Tensor, "*#batch query key"]:
        """The product of both, of the same size whatever the number of features."""
        return (query / math.sqrt(query.shape[-1])) @ remembered.transpose(-2, -1)


class Multiplicative(Score):
    """q · W k (Luong et al. 2015, equation 8, general)."""

    def __init__(self, query_dim: int, key_dim: int) -> None:
        super().__init__()
        self.key = nn.Linear(key_dim, query_dim, bias=False)
        nn.init.xavier_uniform_(self.key.weight)

    def remember(self, keys: Float[Tensor, "*batch key inputs"]) -> Float[Tensor, "*batch key outputs"]:
        """W k."""
        mapped: Tensor = self.key(keys)
        return mapped

    def forward(
        self, query: Float[Tensor, "*#batch query dim"], remembered: Float[Tensor, "*#batch key dim"]
    ) -> Float[Tensor, "*#batch query key"]:
        """The product of both."""
        return query @ remembered.transpose(-2, -1)


class Additive(Score):
    """v · tanh(W q + U k + b) (Bahdanau et al. 2015, appendix A.1.2).

    Luong et al.'s concat, v · tanh(W [q; k]), is the same function: one matrix for both is two matrices side by side.
    """

    def __init__(self, query_dim: int, key_dim: int, hidden: int) -> None:
        super().__init__()
        self.query = Linear(query_dim, hidden)
        self.key = nn.Linear(key_dim, hidden, bias=False)
        self.weight = nn.Parameter(torch.empty(hidden))
        nn.init.xavier_uniform_(self.query.weight)
        nn.init.xavier_uniform_(self.key.weight)
        nn.init.zeros_(self.query.bias)
        nn.init.normal_(self.weight, std=hidden**-0.5)

    def remember(self, keys: Float[Tensor, "*batch key inputs"]) -> Float[Tensor, "*batch key outputs"]:
        """U k."""
        mapped: Tensor = self.key(keys)
        return mapped

    def joined(
        self, query: Float[Tensor, "*#batch query dim"], remembered: Float[Tensor, "*#batch key hidden"]
    ) -> Float[Tensor, "*#batch query key hidden"]:
        """tanh(W q + U k + b) for every query and every key."""
        return torch.tanh(self.query(query).unsqueeze(-2) + remembered.unsqueeze(-3))

    def forward(
        self, query: Float[Tensor, "*#batch query dim"], remembered: Float[Tensor, "*#batch key hidden"]
    ) -> Float[Tensor, "*#batch query key"]:
        """What v weighs of both."""
        return self.joined(query, remembered) @ self.weight


class Function(Additive):
    """v · max(0, F tanh(W q + U k + b) + c): a network of two hidden layers over both, rather than one.

    In the additive score every hidden feature is a ridge, one direction of [q; k] bent by tanh, and the score adds
    them up; the second layer lets them act on one another before they are weighed.
    """

    def __init__(self, query_dim: int, key_dim: int, hidden: int) -> None:
        super().__init__(query_dim, key_dim, hidden)
        self.inner = Linear(hidden, hidden)
        nn.init.xavier_uniform_(self.inner.weight)
        nn.init.zeros_(self.inner.bias)

    def forward(
        self, query: Float[Tensor, "*#batch query dim"], remembered: Float[Tensor, "*#batch key hidden"]
    ) -> Float[Tensor, "*#batch query key"]:
        """What v weighs of the second layer."""
        return torch.relu(self.inner(self.joined(query, remembered))) @ self.weight


def score_of(kind: ScoreKind, *, query_dim: int, key_dim: int, hidden: int) -> Score:
    """The score of this kind; `hidden` features stand inside those that are small networks."""
    if kind == "additive":
        return Additive(query_dim, key_dim, hidden)
    if kind == "function":
        return Function(query_dim, key_dim, hidden)
    if kind == "multiplicative":
        return Multiplicative(query_dim, key_dim)
    if query_dim != key_dim:
        raise ValueError(f"a {kind} score needs queries and keys of one size, not {query_dim} and {key_dim}")
    return Dot() if kind == "dot" else ScaledDot()

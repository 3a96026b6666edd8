"""Many states as one: the mean of those that matter."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headway.nn.linear import Linear


class Pooling(nn.Module):
    """Σ a h with a = softmax(u · tanh(W h + b)), where u is learnt (Yang et al. 2016, equations 5 to 7)."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.inner = Linear(dim, hidden)
        self.sought = nn.Parameter(torch.empty(hidden))
        nn.init.xavier_uniform_(self.inner.weight)
        nn.init.zeros_(self.inner.bias)
        nn.init.normal_(self.sought, std=hidden**-0.5)

    def forward(
        self, states: Float[Tensor, "batch time dim"], present: Bool[Tensor, "batch time"]
    ) -> tuple[Float[Tensor, "batch dim"], Float[Tensor, "batch time"]]:
        """One state for all that are present, and their weights in it."""
        scores = (torch.tanh(self.inner(states)) @ self.sought).float()
        weights = scores.masked_fill(~present, -torch.inf).softmax(-1)
        return (weights.to(states.dtype)[:, None] @ states)[:, 0], weights

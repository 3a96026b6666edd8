"""Dropout."""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


def dropout(x: Float[Tensor, "*shape"], probability: float, training: bool) -> Float[Tensor, "*shape"]:
    """Set a share of the elements to zero and scale the rest up."""
    return F.dropout(x, probability, training)


class Dropout(nn.Module):
    """Dropout."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Drop in training."""
        return dropout(x, self.probability, self.training)

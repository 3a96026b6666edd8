"""Projection and loss in one."""

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor


def smoothed_cross_entropy(
    states: Float[Tensor, "tokens dim"],
    weight: Float[Tensor, "vocabulary dim"],
    bias: Float[Tensor, " vocabulary"] | None,
    labels: Int[Tensor, " tokens"],
    smoothing: float,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Sum."""
    logits = F.linear(states, weight, bias).float()
    return F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="sum"), F.cross_entropy(
        logits.detach(), labels, reduction="sum"
    )

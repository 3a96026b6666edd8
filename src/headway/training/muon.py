"""Muon: momentum whose update of a matrix is made orthogonal (Jordan et al. 2024)."""

from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

STEPS = 5
"""Newton-Schulz iterations: enough for singular values between about 0.7 and 1.2."""
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic a·x + b·x³ + c·x⁵ that draws small singular values up fastest."""


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, made orthogonal, of the size an Adam update has (Liu et al. 2025), with decoupled decay.

    As torch.optim.Muon, but in full precision on a CPU: products of bfloat16 are slow on most of them and end the
    process on some.
    """

    def __init__(self, weights: Iterable[nn.Parameter], *, momentum: float = 0.95, weight_decay: float = 0.0) -> None:
        super().__init__(list(weights), {"lr": 0.0, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # torch's may return a loss
        """Move every matrix that has a gradient."""
        assert closure is None
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                buffer = state.setdefault("momentum_buffer", torch.zeros_like(weight))
                buffer.lerp_(weight.grad, 1 - group["momentum"])
                update = orthogonal(weight.grad.lerp(buffer, group["momentum"]))
                weight.mul_(1 - group["lr"] * group["weight_decay"])
                weight.add_(update, alpha=-group["lr"] * 0.2 * max(weight.shape) ** 0.5)


def orthogonal(matrix: Float[Tensor, "outputs inputs"]) -> Float[Tensor, "outputs inputs"]:
    """The matrix with all its singular values brought near one, by Newton and Schulz' iteration."""
    wide = matrix.shape[0] <= matrix.shape[1]
    x = (matrix if wide else matrix.mT).to(torch.bfloat16 if matrix.is_cuda else matrix.dtype)
    x = x / x.norm().clamp(min=1e-7)
    a, b, c = COEFFICIENTS
    for _ in range(STEPS):
        gram = x @ x.mT
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x if wide else x.mT).to(matrix.dtype)

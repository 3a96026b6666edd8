"""Projection to the vocabulary and label-smoothed cross-entropy in one, a chunk of tokens at a time."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

_LOGITS = {"cpu": 1 << 22, "cuda": 1 << 27}
"""Logits held at a time: on a CPU what stays in its caches between two products, on a GPU what keeps it busy."""


def smoothed_cross_entropy(
    states: Float[Tensor, "tokens dim"],
    weight: Float[Tensor, "vocabulary dim"],
    bias: Float[Tensor, " vocabulary"] | None,
    labels: Int[Tensor, " tokens"],
    smoothing: float,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """The sums over all tokens of (1 - ε)·(-log p(label)) + ε·mean over the vocabulary of -log p, and of -log p(label).

    The second has no gradient. The gradients of the first are made on the way, where they are wanted, so that no logits
    are kept for the backward pass: it can be differentiated once, not twice.
    """
    apply = _SmoothedCrossEntropy.apply
    total, surprise = apply(states, weight, bias, labels, smoothing)  # type: ignore[no-untyped-call]  # as torch left it
    return total, surprise


class _SmoothedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        device = states.device.type
        lowered = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype
        slopes = _Slopes(states, weight, bias) if any(ctx.needs_input_grad) else None
        with torch.autocast(device, enabled=False):
            x, matrix = states.to(lowered), weight.to(lowered)
            size = max(1, min(len(x), _LOGITS.get(device, 1 << 22) // len(matrix)))
            buffer = x.new_empty(size, len(matrix))
            sums = x.new_zeros(2, dtype=torch.promote_types(lowered, torch.float32))
            for start in range(0, len(x), size):
                part, label = x[start : start + size], labels[start : start + size, None]
                logits = torch.mm(part, matrix.t(), out=buffer[: len(part)]).to(sums.dtype)
                if bias is not None:
                    logits += bias
                sums += _reduce(logits, label, smoothing)
                if slopes is not None:
                    slopes.add(start, _differentiate(logits, label, smoothing).to(lowered), part, matrix)
        if slopes is not None:
            ctx.save_for_backward(slopes.states, slopes.weight, slopes.bias)
        total, surprise = sums.unbind()
        ctx.mark_non_differentiable(surprise)
        return total, surprise

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        return (*(None if slope is None else slope * gradient for slope in ctx.saved_tensors), None, None)


class _Slopes:
    """The gradients with respect to states, matrix and bias, filled chunk by chunk."""

    def __init__(self, states: Tensor, weight: Tensor, bias: Tensor | None) -> None:
        self.states, self.weight = torch.empty_like(states), torch.zeros_like(weight)
        self.bias = None if bias is None else torch.zeros_like(bias)

    def add(self, start: int, slope: Tensor, part: Tensor, matrix: Tensor) -> None:
        """Take in a chunk of states, given the slope of the loss at their logits."""
        self.states[start : start + len(part)] = slope @ matrix
        if part.dtype == self.weight.dtype:
            self.weight.addmm_(slope.t(), part)
        else:  # a sum of low-precision products is kept in full precision
            self.weight += slope.t() @ part
        if self.bias is not None:
            self.bias += slope.sum(0)


def _reduce(logits: Tensor, label: Tensor, smoothing: float) -> Tensor:
    """The two sums; leaves probabilities where the logits were."""
    chosen, mean = logits.gather(1, label), logits.mean(1, keepdim=True)
    highest = logits.amax(1, keepdim=True)
    weights = logits.sub_(highest).exp_().sum(1, keepdim=True)
    logits.div_(weights)
    normaliser = weights.log_().add_(highest)
    surprise = normaliser - chosen
    return torch.stack((torch.lerp(surprise, normaliser - mean, smoothing).sum(), surprise.sum()))


def _differentiate(probabilities: Tensor, label: Tensor, smoothing: float) -> Tensor:
    """Turn probabilities into the gradient of the first sum with respect to the logits, in place."""
    probabilities -= smoothing / probabilities.shape[1]
    return probabilities.scatter_add_(1, label, probabilities.new_full((1, 1), smoothing - 1).expand_as(label))

"""Projection to the vocabulary and a criterion on the logits in one, a chunk of tokens at a time."""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

_LOGITS = {"cpu": 1 << 22, "cuda": 1 << 27}
"""Logits held at a time: on a CPU what stays in its caches between two products, on a GPU what keeps it busy."""


@runtime_checkable
class Criterion(Protocol):
    """What the logits of a chunk of tokens are judged by."""

    def __call__(
        self,
        logits: Float[Tensor, "passes tokens vocabulary"],
        labels: Int[Tensor, "passes tokens"],
        *,
        differentiate: bool,
    ) -> tuple[Tensor, Float[Tensor, "passes tokens vocabulary"] | None]:
        """Two sums over the tokens, loss and surprise, and the gradient of the first; may overwrite the logits."""
        ...


def smoothed_cross_entropy(
    states: Float[Tensor, "tokens dim"],
    weight: Float[Tensor, "vocabulary dim"],
    bias: Float[Tensor, " vocabulary"] | None,
    labels: Int[Tensor, " tokens"],
    smoothing: float,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """The sums over all tokens of (1 - ε)·(-log p(label)) + ε·mean over the vocabulary of -log p, and of -log p(label).

    See `projected` for their gradients.
    """
    return projected(states[None], weight, bias, labels[None], SmoothedCrossEntropy(smoothing))


def projected(
    states: Float[Tensor, "passes tokens dim"],
    weight: Float[Tensor, "vocabulary dim"],
    bias: Float[Tensor, " vocabulary"] | None,
    labels: Int[Tensor, "passes tokens"],
    criterion: Criterion,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """What the criterion makes of the projected states, summed over all tokens: loss and surprise.

    The second has no gradient. The gradients of the first are made on the way, where they are wanted, so that no logits
    are kept for the backward pass: it can be differentiated once, not twice.
    """
    apply = _Projected.apply
    total, surprise = apply(states, weight, bias, labels, criterion)  # type: ignore[no-untyped-call]  # as torch left it
    return total, surprise


def likeliest(
    states: Float[Tensor, "tokens dim"],
    weight: Float[Tensor, "vocabulary dim"],
    bias: Float[Tensor, " vocabulary"] | None,
) -> Int[Tensor, " tokens"]:
    """The label of the highest logit of every state."""
    parts = states.split(_tokens_at_a_time(states.device.type, len(weight)))
    return torch.cat([F.linear(part, weight, bias).argmax(-1) for part in parts])


def _tokens_at_a_time(device: str, logits: int) -> int:
    """Tokens of a chunk, each of so many logits."""
    return max(1, _LOGITS.get(device, 1 << 22) // logits)


@dataclass(frozen=True)
class SmoothedCrossEntropy:
    """Label-smoothed cross-entropy, of every pass alone."""

    smoothing: float

    def __call__(
        self,
        logits: Float[Tensor, "passes tokens vocabulary"],
        labels: Int[Tensor, "passes tokens"],
        *,
        differentiate: bool,
    ) -> tuple[Tensor, Float[Tensor, "passes tokens vocabulary"] | None]:
        """See `Criterion`."""
        sums = self.reduce(logits, labels)
        return sums, self.differentiate(logits, labels) if differentiate else None

    def reduce(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The two sums; leaves probabilities where the logits were."""
        chosen, mean = logits.gather(-1, labels[..., None]), logits.mean(-1, keepdim=True)
        highest = logits.amax(-1, keepdim=True)
        weights = logits.sub_(highest).exp_().sum(-1, keepdim=True)
        logits.div_(weights)
        normaliser = weights.log_().add_(highest)
        surprise = normaliser - chosen
        return torch.stack((torch.lerp(surprise, normaliser - mean, self.smoothing).sum(), surprise.sum()))

    def differentiate(self, probabilities: Tensor, labels: Tensor) -> Tensor:
        """Turn probabilities into the gradient of the first sum with respect to the logits, in place."""
        probabilities -= self.smoothing / probabilities.shape[-1]
        less = probabilities.new_full((1, 1, 1), self.smoothing - 1).expand(*labels.shape, 1)
        return probabilities.scatter_add_(-1, labels[..., None], less)


class _Projected(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, criterion: Criterion
    ) -> tuple[Tensor, Tensor]:
        device = states.device.type
        lowered = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype
        slopes = _Slopes(states, weight, bias) if any(ctx.needs_input_grad) else None
        passes, tokens, _ = states.shape
        with torch.autocast(device, enabled=False):
            x, matrix = states.to(lowered), weight.to(lowered)
            size = min(tokens, _tokens_at_a_time(device, passes * len(matrix))) or 1
            buffer = x.new_empty(passes * size, len(matrix))
            sums = x.new_zeros(2, dtype=torch.promote_types(lowered, torch.float32))
            for start in range(0, tokens, size):
                chunk = slice(start, start + size)
                part, label = x[:, chunk].flatten(0, 1), labels[:, chunk]
                logits = torch.mm(part, matrix.t(), out=buffer[: len(part)]).to(sums.dtype)
                if bias is not None:
                    logits += bias
                found, slope = criterion(logits.unflatten(0, label.shape), label, differentiate=slopes is not None)
                sums += found
                if slopes is not None and slope is not None:
                    slopes.add(chunk, slope.flatten(0, 1).to(lowered), part, matrix)
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

    def add(self, chunk: slice, slope: Tensor, part: Tensor, matrix: Tensor) -> None:
        """Take in a chunk of states, given the slope of the loss at their logits."""
        chosen = self.states[:, chunk]
        chosen.copy_((slope @ matrix).view(chosen.shape))
        if part.dtype == self.weight.dtype:
            self.weight.addmm_(slope.t(), part)
        else:  # a sum of low-precision products is kept in full precision
            self.weight += slope.t() @ part
        if self.bias is not None:
            self.bias += slope.sum(0)

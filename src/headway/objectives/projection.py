"""Projection to the vocabulary and a criterion on the logits in one, a chunk of tokens at a time."""

from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from headway.nn.compiling import compiles
from headway.nn.linear import widely

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
        """Two sums over the tokens, loss and surprise, and the gradient of the first; may overwrite the logits.

        A token whose label is negative counts for nothing.
        """
        ...


def smoothed_cross_entropy(
    states: Float[Tensor, "tokens dim"],
    weight: Float[Tensor, "vocabulary dim"],
    bias: Float[Tensor, " vocabulary"] | None,
    labels: Int[Tensor, " tokens"],
    smoothing: float,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """The sums over all tokens of (1 - ε)·(-log p(label)) + ε·mean over the vocabulary of -log p, and of -log p(label).

    A token whose label is negative counts for nothing. See `projected` for the gradients.
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
    are kept for the backward pass: it can be differentiated once, not twice, and its graph is not to be used again.
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
        """The two sums; leaves probabilities where the logits were, or zeros where a label does not count."""
        out, labels = labels[..., None] < 0, labels.clamp_min(0)
        chosen, mean = logits.gather(-1, labels[..., None]), logits.mean(-1, keepdim=True)
        highest = logits.amax(-1, keepdim=True)
        weights = logits.sub_(highest).exp_().sum(-1, keepdim=True)
        normaliser = weights.log().add_(highest)
        logits.div_(weights.masked_fill_(out, torch.inf))
        surprise = normaliser - chosen
        losses = torch.lerp(surprise, normaliser - mean, self.smoothing)
        return torch.stack([each.masked_fill_(out, 0.0).sum() for each in (losses, surprise)])

    def differentiate(self, probabilities: Tensor, labels: Tensor) -> Tensor:
        """Turn probabilities into the gradient of the first sum with respect to the logits, in place."""
        counts = (labels[..., None] >= 0).to(probabilities.dtype)
        probabilities -= counts * (self.smoothing / probabilities.shape[-1])
        return probabilities.scatter_add_(-1, labels.clamp_min(0)[..., None], counts.mul_(self.smoothing - 1))


class _Projected(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, criterion: Criterion
    ) -> tuple[Tensor, Tensor]:
        device = states.device.type
        lowered = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype
        slopes = _Slopes(states, weight, bias) if any(ctx.needs_input_grad) else None
        with torch.autocast(device, enabled=False):
            x, matrix = states.to(lowered), weight.to(lowered)
            if isinstance(criterion, SmoothedCrossEntropy) and len(x) == 1 and _kernel_serves(x):
                sums = _by_kernel(x[0], matrix, bias, labels[0], criterion.smoothing, slopes)
            else:
                sums = _by_criterion(x, matrix, bias, labels, criterion, slopes)
        if slopes is not None:
            ctx.save_for_backward(*slopes.like(states, weight, bias))
        total, surprise = sums.unbind()
        ctx.mark_non_differentiable(surprise)
        return total, surprise

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        # In place: a second matrix of gradients would cost as much as the kernel that made the first.
        return (*(None if slope is None else slope.mul_(gradient) for slope in ctx.saved_tensors), None, None)


class _Slopes:
    """The gradients with respect to states, matrix and bias, filled chunk by chunk."""

    def __init__(self, states: Tensor, weight: Tensor, bias: Tensor | None) -> None:
        self.states = torch.empty_like(states)
        self.weight, self.bias = _sums_like(weight), None if bias is None else _sums_like(bias)

    def add(self, chunk: slice, slope: Tensor, part: Tensor, matrix: Tensor) -> None:
        """Take in a chunk of states, given the slope of the loss at their logits."""
        chosen = self.states[:, chunk]
        if len(chosen) == 1 and chosen.dtype == slope.dtype:
            torch.mm(slope, matrix, out=chosen[0])
        else:
            chosen.copy_((slope @ matrix).view(chosen.shape))
        if part.dtype == self.weight.dtype:
            self.weight.addmm_(slope.t(), part)
        else:
            _add_product(self.weight, slope.t(), part)
        if self.bias is not None:
            self.bias += slope.sum(0, dtype=self.bias.dtype)

    def like(self, states: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """All three, each in the precision of what it is the gradient of."""
        lowered = None if self.bias is None or bias is None else self.bias.to(bias.dtype)
        return self.states.to(states.dtype), self.weight.to(weight.dtype), lowered


def _sums_like(tensor: Tensor) -> Tensor:
    """Zeros to sum up in: in single precision at least."""
    return torch.zeros_like(tensor, dtype=torch.promote_types(tensor.dtype, torch.float32))


def _by_criterion(
    x: Float[Tensor, "passes tokens dim"],
    matrix: Float[Tensor, "vocabulary dim"],
    bias: Float[Tensor, " vocabulary"] | None,
    labels: Int[Tensor, "passes tokens"],
    criterion: Criterion,
    slopes: _Slopes | None,
) -> Float[Tensor, "2"]:
    """The two sums of a criterion; fills the slopes."""
    passes, tokens, _ = x.shape
    size = min(tokens, _tokens_at_a_time(x.device.type, passes * len(matrix))) or 1
    buffer = x.new_empty(passes * size, len(matrix))
    sums = x.new_zeros(2, dtype=torch.promote_types(x.dtype, torch.float32))
    for start in range(0, tokens, size):
        chunk = slice(start, start + size)
        part, label = x[:, chunk].flatten(0, 1), labels[:, chunk]
        logits = torch.mm(part, matrix.t(), out=buffer[: len(part)]).to(sums.dtype)
        if bias is not None:
            logits += bias
        found, slope = criterion(logits.unflatten(0, label.shape), label, differentiate=slopes is not None)
        sums += found
        if slopes is not None and slope is not None:
            slopes.add(chunk, slope.flatten(0, 1).to(x.dtype), part, matrix)
    return sums


def _by_kernel(
    x: Float[Tensor, "tokens dim"],
    matrix: Float[Tensor, "vocabulary dim"],
    bias: Float[Tensor, " vocabulary"] | None,
    labels: Int[Tensor, " tokens"],
    smoothing: float,
    slopes: _Slopes | None,
) -> Float[Tensor, "2"]:
    """The two sums of label-smoothed cross-entropy by our own kernel; fills the slopes.

    The logits exist in low precision only, those of one chunk at a time, and their gradient takes their place.
    """
    from headway.objectives import entropy as kernel

    tokens = len(x)
    size = _evenly(tokens, _tokens_at_a_time(x.device.type, len(matrix)))
    buffer = kernel.room_for_logits(x, size, len(matrix))
    found = torch.empty(tokens, 2, device=x.device, dtype=torch.float32)
    scaled = None if bias is None else kernel.scaled_bias(bias)
    for start in range(0, tokens, size):
        chunk = slice(start, start + size)
        part = x[chunk]
        logits = torch.mm(part, matrix.t(), out=buffer[: len(part)])
        kernel.smoothed_entropy(
            logits, scaled, labels[chunk], found[chunk], smoothing, differentiate=slopes is not None
        )
        if slopes is not None:
            slopes.add(chunk, logits, part, matrix)
    return found.sum(0)


def _evenly(tokens: int, most: int, tile: int = 128) -> int:
    """The size of chunks of at most `most` tokens, equal but for the last, and whole tiles of a product if possible."""
    pieces = max(1, -(-tokens // most))
    even = -(-tokens // pieces)
    tiled = -(-even // tile) * tile
    return max(1, tiled if pieces > 1 and tiled <= most else even)


def _add_product(
    sums: Float[Tensor, "outputs inputs"], left: Float[Tensor, "outputs tokens"], right: Float[Tensor, "tokens inputs"]
) -> None:
    """Add a product of matrices of lower precision, which is never rounded to theirs."""
    if sums.is_cuda and _adds_to_single(sums.device):
        torch.addmm(sums, left, right, out_dtype=torch.float32, out=sums)
    else:
        sums += widely(left, right)


@cache
def _adds_to_single(device: torch.device) -> bool:
    """Whether this torch adds products of halves to sums in single precision; earlier ones only give the products."""
    sums, halves = torch.zeros(8, 8, device=device), torch.zeros(8, 8, device=device, dtype=torch.bfloat16)
    try:
        torch.addmm(sums, halves, halves, out_dtype=torch.float32, out=sums)
    except (RuntimeError, TypeError):
        return False
    return True


def _kernel_serves(x: Tensor) -> bool:
    """Whether our own kernel takes logits of such states."""
    return x.is_cuda and x.dtype == torch.bfloat16 and compiles()

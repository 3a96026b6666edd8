"""Dropout (Srivastava et al. 2014) whose masks cost little on a CPU, and nothing to remember on a GPU.

Torch draws one random number an element on a CPU, on one core; this takes one draw for four elements, sixteen bits
each. On a GPU, `elements.py` draws from a seed as it goes. All draws and seeds come from torch's own generator, so
`torch.manual_seed` and a restored generator state repeat every mask.
"""

import math
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from headway.nn.compiling import compiles

_STEPS = 1 << 16  # probabilities are multiples of 1 / _STEPS
_WIDEST = 8192  # features of a row that a kernel can hold
_KERNEL_DTYPES = (torch.bfloat16, torch.float16, torch.float32)


class Dropout(nn.Module):
    """Sets a share of the elements to zero in training and scales the others up, so that the expectation stays."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Drop in training; in evaluation leave `x` as it is."""
        return dropout(x, self.probability, self.training)

    def add(self, x: Float[Tensor, "*shape"], y: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """`x` plus what is left of `y`."""
        return add_dropped(x, y, self.probability, self.training)

    def rectify(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """What is left of max(0, x)."""
        return rectify_dropped(x, self.probability, self.training)

    def extra_repr(self) -> str:
        """The probability, for printing the model."""
        return str(self.probability)


def dropout(x: Float[Tensor, "*shape"], probability: float, training: bool) -> Float[Tensor, "*shape"]:
    """Set each element to zero with this probability and scale the others by its complement."""
    if probability > 0.0 and fused_here(x, probability, training):
        return element_kernels().dropped(x, probability)
    if _masked_here(x, probability, training):
        return _Dropout.apply(x, probability)  # type: ignore[no-untyped-call]  # as torch left it
    return F.dropout(x, probability, training)


def add_dropped(
    x: Float[Tensor, "*shape"], y: Float[Tensor, "*shape"], probability: float, training: bool
) -> Float[Tensor, "*shape"]:
    """`x + dropout(y)` in one pass."""
    if fused_here(x, probability, training):
        return element_kernels().added(x, y, probability)
    if _masked_here(y, probability, training):
        return _AddDropped.apply(x, y, probability)  # type: ignore[no-untyped-call]  # as torch left it
    return x + F.dropout(y, probability, training)


def rectify_dropped(x: Float[Tensor, "*shape"], probability: float, training: bool) -> Float[Tensor, "*shape"]:
    """`dropout(relu(x))`, remembering the result and no mask: a zero has no gradient, whichever of the two made it."""
    if probability > 0.0 and fused_here(x, probability, training):
        return element_kernels().rectified(x, probability)
    if _masked_here(x, probability, training):
        return _RectifyDropped.apply(x, probability)  # type: ignore[no-untyped-call]  # as torch left it
    return F.dropout(F.relu(x), probability, training)


def dropout_mask(like: Float[Tensor, "*shape"], probability: float) -> Float[Tensor, "*shape"]:
    """Zeros with this probability, to the nearest 1/65536, and elsewhere the factor that keeps the expectation."""
    threshold, factor = _levels(probability)
    draws = _draws(like)
    factors = draws.new_tensor(factor).expand(like.shape)
    return _greater(factors, draws, threshold).to(like.dtype)


def _draws(like: Tensor) -> Tensor:
    """Whole numbers from -32,768 to 32,767, each as likely, as floats."""
    bits = torch.empty(math.ceil(like.numel() / 4), dtype=torch.int64).random_(-(1 << 63), None)
    return bits.view(torch.int16)[: like.numel()].view(like.shape).float()


def _greater(x: Tensor, draws: Tensor, threshold: int) -> Tensor:
    """`x` where the draw is above the threshold and 0 elsewhere, in the memory of the draws.

    This is what the backward pass of a rectifier does; comparing and converting what is true takes 1.6 times as long.
    """
    return torch.ops.aten.threshold_backward.grad_input(x, draws, threshold, grad_input=draws)


def _levels(probability: float) -> tuple[int, float]:
    """The highest of the 65,536 draws that drops an element, and what the others are multiplied by."""
    dropped = min(round(probability * _STEPS), _STEPS - 1)
    return dropped - _STEPS // 2 - 1, _STEPS / (_STEPS - dropped)


def fused_here(x: Float[Tensor, "*shape"], probability: float, training: bool) -> bool:
    """Whether this is a step of training on a GPU that our kernels serve."""
    return training and probability < 1.0 and torch.is_grad_enabled() and _served(x)


def rows_fused_here(x: Float[Tensor, "*shape"], probability: float, training: bool) -> bool:
    """The same for kernels that hold whole rows."""
    return x.shape[-1] <= _WIDEST and fused_here(x, probability, training)


def rows_served(x: Float[Tensor, "*shape"]) -> bool:
    """Whether kernels that hold whole rows can be had where `x` is, in training or not."""
    return x.shape[-1] <= _WIDEST and _served(x)


def _served(x: Float[Tensor, "*shape"]) -> bool:
    known = x.is_cuda and x.dtype in _KERNEL_DTYPES
    return known and not torch.compiler.is_compiling() and element_kernels() is not None


@cache
def element_kernels() -> Any:
    """The module of our kernels for a GPU, or None where they cannot be compiled."""
    if not compiles():
        return None
    from headway.nn import elements

    return elements


def seeds_ahead(device: torch.device) -> AbstractContextManager[None]:
    """While inside, our kernels on this device have their seeds drawn many at once."""
    chance = _chance(device)
    return nullcontext() if chance is None else chance.ahead(device)


def seeds_again(seeds: list[Tensor], device: torch.device) -> AbstractContextManager[None]:
    """While inside, our kernels on this device draw from these seeds in turn; new ones, where they end, join them."""
    chance = _chance(device)
    return nullcontext() if chance is None else chance.again(seeds, device)


def _chance(device: torch.device) -> Any:
    """The module of our kernels' seeds, or None where other kernels serve, which need none."""
    if device.type != "cuda" or element_kernels() is None:
        return None
    from headway.nn import chance

    return chance


def _masked_here(x: Tensor, probability: float, training: bool) -> bool:
    return training and 0.0 < probability < 1.0 and x.device.type == "cpu" and not torch.compiler.is_compiling()


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, probability: float) -> Tensor:
        mask = dropout_mask(x, probability)
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        return gradient * mask, None


class _AddDropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, probability: float) -> Tensor:
        mask = dropout_mask(y, probability)
        ctx.save_for_backward(mask)
        return torch.addcmul(x, y, mask)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        (mask,) = ctx.saved_tensors
        return gradient, gradient * mask, None


class _RectifyDropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, probability: float) -> Tensor:
        threshold, ctx.factor = _levels(probability)
        result = _greater(x.float(), _draws(x), threshold).clamp_min_(0).mul_(ctx.factor).to(x.dtype)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (result,) = ctx.saved_tensors
        return torch.ops.aten.threshold_backward(gradient, result, 0).mul_(ctx.factor), None

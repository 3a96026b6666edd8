"""The parts a projection holds side by side, without a copy forwards or backwards."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor


def side_by_side(
    x: Float[Tensor, "*batch time dim"], parts: int, heads: int
) -> tuple[Float[Tensor, "*batch time heads width"], ...]:
    """The parts of a projection, head by head, as views.

    Gradients that come back lying side by side, as the parts do, are passed on as they lie; others are joined in one
    copy.
    """
    if torch.is_grad_enabled() and x.requires_grad:
        return _Parts.apply(x, parts, heads)  # type: ignore[no-untyped-call]  # as torch left it
    return _cut(x, parts, heads)


def together(parts: Sequence[Float[Tensor, "... heads width"]]) -> Float[Tensor, "... heads width"] | None:
    """The contiguous tensor whose parts, one after the other, these are; None if they do not lie so."""
    first, stride = parts[0], parts[0].shape[-2:].numel()
    whole = (*first.shape[:-2], len(parts), *first.shape[-2:])
    strides = [math.prod(whole[axis + 1 :]) for axis in range(len(whole))]
    expected = (*strides[:-3], *strides[-2:])
    memory = first.untyped_storage().data_ptr()
    for number, part in enumerate(parts):
        placed = part.storage_offset() == first.storage_offset() + number * stride and part.stride() == expected
        alike = part.shape == first.shape and part.dtype == first.dtype and part.device == first.device
        if not (placed and alike and part.untyped_storage().data_ptr() == memory):
            return None
    return first.as_strided(whole, strides)


def _cut(x: Tensor, parts: int, heads: int) -> tuple[Tensor, ...]:
    return x.unflatten(-1, (parts, heads, x.shape[-1] // (parts * heads))).unbind(-3)


class _Parts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, parts: int, heads: int) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        return _cut(x, parts, heads)

    @staticmethod
    def backward(_: Any, *gradients: Tensor | None) -> tuple[Tensor | None, None, None]:
        given = [gradient for gradient in gradients if gradient is not None]
        if not given:
            return None, None, None
        # A gradient to be differentiated in turn must be made of its parts for torch to see.
        plain = len(given) == len(gradients) and not torch.is_grad_enabled()
        whole = together(given) if plain else None
        if whole is None:
            whole = torch.stack([torch.zeros_like(given[0]) if part is None else part for part in gradients], -3)
        return whole.flatten(-3), None, None

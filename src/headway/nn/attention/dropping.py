"""Attention with dropout on its weights for CPUs, where torch's fused kernels know no dropout (section 3.2.1)."""

import math
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headway.nn.dropout import dropout_mask


def attention_with_dropout(
    query: Float[Tensor, "batch query heads width"],
    key: Float[Tensor, "batch key heads width"],
    value: Float[Tensor, "batch key heads width"],
    allowed: Bool[Tensor, "#batch #query key"] | None,
    probability: float,
) -> tuple[Float[Tensor, "batch query heads width"], Float[Tensor, "batch heads query key"]]:
    """dropout(softmax(q·k/√width))·v for queries that each may see a key, and the weights before dropout.

    The weights carry no gradient.
    """
    apply = _Attention.apply
    output, weights = apply(query, key, value, allowed, probability)  # type: ignore[no-untyped-call]  # as torch left it
    return output, weights


class _Attention(torch.autograd.Function):
    """Products head by head: a head of a projection is a matrix with gaps, which a product takes as it lies."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, probability: float
    ) -> tuple[Tensor, Tensor]:
        batch, queries, heads, width = query.shape
        ctx.scale = 1 / math.sqrt(width)
        added = query.new_zeros(())
        if allowed is not None:
            added = query.new_zeros(allowed.shape).masked_fill_(~allowed, -math.inf)
        scores = query.new_empty(heads, batch, queries, key.shape[1])
        for head, score in enumerate(scores):
            torch.baddbmm(
                added, query[:, :, head], key[:, :, head].mT, alpha=ctx.scale, beta=int(allowed is not None), out=score
            )
        with torch.autocast("cpu", enabled=False):  # which would widen the weights
            weights = scores.softmax(-1)
        mask = dropout_mask(weights, probability)
        output = _by_head(torch.mul(weights, mask, out=scores), value)
        ctx.save_for_backward(query, key, value, weights, mask)
        seen = weights.transpose(0, 1)
        ctx.mark_non_differentiable(seen)
        return output, seen

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, weights, mask = ctx.saved_tensors
        slope = torch.empty_like(weights)
        for head, each in enumerate(slope):
            torch.bmm(gradient[:, :, head], value[:, :, head].mT, out=each)
        to_value = _by_head((weights * mask).mT, gradient)
        slope = torch._softmax_backward_data(slope.mul_(mask), weights, -1, weights.dtype).mul_(ctx.scale)
        return _by_head(slope, key), _by_head(slope.mT, query), to_value, None, None


def _by_head(matrices: Tensor, x: Tensor) -> Tensor:
    """Each head's matrices times what `x` holds for that head."""
    product = x.new_empty(*matrices.shape[:3], x.shape[3])
    for head, each in enumerate(product):
        torch.bmm(matrices[head], x[:, :, head], out=each)
    return product.permute(1, 2, 0, 3)

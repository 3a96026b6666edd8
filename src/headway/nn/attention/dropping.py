"""Attention with dropout on its weights for CPUs, where torch's fused kernels know no dropout (section 3.2.1)."""

import math
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headway.nn.dropout import dropout_mask


def attention_with_dropout(
    query: Float[Tensor, "*batch heads query width"],
    key: Float[Tensor, "*batch heads key width"],
    value: Float[Tensor, "*batch heads key width"],
    allowed: Bool[Tensor, "..."] | None,
    probability: float,
) -> tuple[Float[Tensor, "*batch heads query width"], Float[Tensor, "*batch heads query key"]]:
    """dropout(softmax(q·k/√width))·v, and the weights before dropout, which carry no gradient.

    Every query must see a key. Scores, weights and their gradients are made in place: two matrices are remembered.
    """
    output, weights = _Attention.apply(query, key, value, allowed, probability)  # type: ignore[no-untyped-call]  # as torch left it
    return output, weights


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, probability: float
    ) -> tuple[Tensor, Tensor]:
        shape = (*query.shape[:-1], key.shape[-2])
        ctx.scale = 1 / math.sqrt(query.shape[-1])
        q, k, v = (each.flatten(0, -3).contiguous() for each in (query, key, value))
        scores = q.new_zeros(()) if allowed is None else torch.zeros_like(allowed, dtype=q.dtype).masked_fill_(~allowed, -math.inf)
        weights = torch.baddbmm(scores.expand(shape).flatten(0, -3), q, k.transpose(1, 2), alpha=ctx.scale).softmax(-1)
        mask = dropout_mask(weights, probability)
        output = torch.bmm(weights * mask, v)
        ctx.save_for_backward(q, k, v, weights, mask)
        visible = weights.view(shape)
        ctx.mark_non_differentiable(visible)
        return output.view(query.shape), visible

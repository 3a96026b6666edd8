"""Tokens looked up, scaled, marked with their positions and dropped in one kernel, and the gradient of the table.

That gradient is summed token by token in the order of the batch, without atomics, so that it is the same in every run.
Imported only where Triton is.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from headway.nn.chance import draw, new_seed, threshold

_FEATURES = 512
_ROWS = 16
"""Rows of one token summed at a time, after its first."""


@triton.jit
def _look_up(
    tokens,
    weight,
    table,
    positions,
    seed,
    output,
    count,
    dim,
    scale,
    factor,
    THRESHOLD: tl.constexpr,
    PLACED: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row, feature = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, BLOCK)
    present = row < count
    inside = present[:, None] & (feature < dim)[None, :]
    token = tl.load(tokens + row, mask=present, other=0).to(tl.int64)
    result = tl.load(weight + token[:, None] * dim + feature[None, :], mask=inside, other=0.0).to(tl.float32) * scale
    if PLACED:
        position = tl.load(positions + row, mask=present, other=0).to(tl.int64)
        result += tl.load(table + position[:, None] * dim + feature[None, :], mask=inside, other=0.0).to(tl.float32)
    cell = row.to(tl.int64)[:, None] * dim + feature[None, :]
    if THRESHOLD > 0:
        result = tl.where(draw(tl.load(seed), cell) < THRESHOLD, 0.0, result * factor)
    tl.store(output + cell, result.to(output.dtype.element_ty), mask=inside)


@triton.jit
def _gather(gradient, order, seed, place, same, feature, dim, THRESHOLD: tl.constexpr):
    """The gradients at some sorted places, where they hold the token in question."""
    row = tl.load(order + place, mask=same, other=0).to(tl.int64)
    cell = row[:, None] * dim + feature[None, :]
    above = tl.load(gradient + cell, mask=same[:, None] & (feature < dim)[None, :], other=0.0).to(tl.float32)
    if THRESHOLD > 0:
        above = tl.where(draw(tl.load(seed), cell) < THRESHOLD, 0.0, above)
    return above


@triton.jit
def _hand_back(
    gradient,
    ordered,
    order,
    seed,
    output,
    count,
    dim,
    factor,
    THRESHOLD: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    place = tl.program_id(0)
    token = tl.load(ordered + place)
    if token == tl.load(ordered + place - 1, mask=place > 0, other=-1):
        return  # the place where its run begins sees to it
    feature = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    first = place + tl.arange(0, 1)
    total = tl.sum(_gather(gradient, order, seed, first, first < count, feature, dim, THRESHOLD), 0)
    following = place + 1
    more = tl.load(ordered + following, mask=following < count, other=-1) == token
    while more:
        here = following + tl.arange(0, ROWS)
        same = tl.load(ordered + here, mask=here < count, other=-1) == token
        total += tl.sum(_gather(gradient, order, seed, here, same, feature, dim, THRESHOLD), 0)
        following += ROWS
        more = tl.load(ordered + following, mask=following < count, other=-1) == token
    tl.store(output + token.to(tl.int64) * dim + feature, total * factor, mask=feature < dim)


def looked_up(
    tokens: Int[Tensor, "*batch time"],
    weight: Float[Tensor, "vocabulary dim"],
    table: Float[Tensor, "time dim"] | None,
    positions: Int[Tensor, "*batch time"],
    scale: float,
    probability: float,
    dtype: torch.dtype,
) -> Float[Tensor, "*batch time dim"]:
    """`dropout(weight[token] * scale + table[position])` in the precision asked for; the table gets no gradient."""
    return _LookedUp.apply(tokens, weight, table, positions, scale, probability, dtype)  # type: ignore[no-untyped-call]  # as torch left it


class _LookedUp(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        tokens: Tensor,
        weight: Tensor,
        table: Tensor | None,
        positions: Tensor,
        scale: float,
        probability: float,
        dtype: torch.dtype,
    ) -> Tensor:
        dim, tokens = weight.shape[1], tokens.contiguous()
        ctx.shape, ctx.dtype, ctx.scale, ctx.probability = weight.shape, weight.dtype, scale, probability
        seed = new_seed(weight.device) if probability > 0.0 else None
        output = torch.empty(*tokens.shape, dim, dtype=dtype, device=weight.device)
        block = triton.next_power_of_2(dim)
        held = max(1, 2048 // block)
        _look_up[(triton.cdiv(tokens.numel(), held),)](
            tokens,
            weight,
            weight if table is None else table,
            tokens if table is None else positions.contiguous(),
            tokens if seed is None else seed,
            output,
            tokens.numel(),
            dim,
            scale,
            1.0 / (1.0 - probability),
            THRESHOLD=threshold(probability),
            PLACED=table is not None,
            ROWS=held,
            BLOCK=block,
            num_warps=max(1, held * block // 512),
        )
        ctx.save_for_backward(tokens, seed)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        tokens, seed = ctx.saved_tensors
        vocabulary, dim = ctx.shape
        # A radix sort takes a pass for every eight bits: half the bits, half the time.
        narrow = torch.int16 if vocabulary <= 1 << 15 else torch.int32
        ordered, order = torch.sort(tokens.flatten().to(narrow), stable=True)
        output = torch.zeros(vocabulary, dim, dtype=ctx.dtype, device=gradient.device)
        block = min(_FEATURES, triton.next_power_of_2(dim))
        _hand_back[(tokens.numel(), triton.cdiv(dim, block))](
            gradient.contiguous(),
            ordered,
            order,
            tokens if seed is None else seed,
            output,
            tokens.numel(),
            dim,
            ctx.scale / (1.0 - ctx.probability),
            THRESHOLD=threshold(ctx.probability),
            ROWS=_ROWS,
            BLOCK=block,
            num_warps=max(1, block // 128),
        )
        return None, output, None, None, None, None, None

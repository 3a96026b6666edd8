"""Residual, dropout and layer normalisation in one pass over memory each way: the kernels of training on a GPU.

Sums are taken in single precision and always in the same order. Masks are drawn anew backwards, never stored. Imported
only where Triton is.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from headway.nn.chance import draw, new_seed, threshold
from headway.nn.elements import totals

_PROGRAMS = 528
"""The most programs that share the rows of a backward pass, each with sums of its own: four a multiprocessor of 132."""

_STAGES = 2
"""How many turns of the loop over rows are read ahead."""


@triton.jit
def _join(
    x,
    y,
    weight,
    bias,
    seed,
    output,
    total,
    statistics,
    rows,
    dim,
    epsilon,
    factor,
    THRESHOLD: tl.constexpr,
    JOINED: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row, feature = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, BLOCK)
    present = row < rows
    cell = row.to(tl.int64)[:, None] * dim + feature[None, :]
    inside = present[:, None] & (feature < dim)[None, :]
    stream = tl.load(x + cell, mask=inside, other=0.0).to(tl.float32)
    if JOINED:
        added = tl.load(y + cell, mask=inside, other=0.0).to(tl.float32)
        if THRESHOLD > 0:
            added = tl.where(draw(tl.load(seed), cell) < THRESHOLD, 0.0, added * factor)
        stream += added
        tl.store(total + cell, stream.to(total.dtype.element_ty), mask=inside)
    mean = tl.sum(stream, 1) / dim
    centred = tl.where(inside, stream - mean[:, None], 0.0)
    inverse = tl.rsqrt(tl.sum(centred * centred, 1) / dim + epsilon)
    tl.store(statistics + row, mean, mask=present)
    tl.store(statistics + rows + row, inverse, mask=present)
    scale = tl.load(weight + feature, mask=feature < dim, other=0.0).to(tl.float32)
    shift = tl.load(bias + feature, mask=feature < dim, other=0.0).to(tl.float32)
    result = centred * inverse[:, None] * scale[None, :] + shift[None, :]
    tl.store(output + cell, result.to(output.dtype.element_ty), mask=inside)


@triton.jit
def _part(
    gradient,
    other,
    total,
    statistics,
    weight,
    seed,
    x_gradient,
    y_gradient,
    sums,
    rows,
    dim,
    factor,
    THRESHOLD: tl.constexpr,
    TWICE: tl.constexpr,
    PARTED: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    feature = tl.arange(0, BLOCK)
    known = feature < dim
    scale = tl.load(weight + feature, mask=known, other=0.0).to(tl.float32)
    weight_sums = tl.zeros([ROWS, BLOCK], tl.float32)
    bias_sums = tl.zeros([ROWS, BLOCK], tl.float32)
    if THRESHOLD > 0:
        chance = tl.load(seed)
    for first in tl.range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS, num_stages=STAGES):
        row = first + tl.arange(0, ROWS)
        present = row < rows
        cell = row.to(tl.int64)[:, None] * dim + feature[None, :]
        inside = present[:, None] & known[None, :]
        above = tl.load(gradient + cell, mask=inside, other=0.0).to(tl.float32)
        if TWICE:
            above += tl.load(other + cell, mask=inside, other=0.0).to(tl.float32)
        stream = tl.load(total + cell, mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(statistics + row, mask=present, other=0.0)
        inverse = tl.load(statistics + rows + row, mask=present, other=0.0)
        normal = tl.where(inside, (stream - mean[:, None]) * inverse[:, None], 0.0)
        weight_sums += above * normal
        bias_sums += above
        scaled = above * scale[None, :]
        along, level = tl.sum(scaled * normal, 1) / dim, tl.sum(scaled, 1) / dim
        below = (scaled - level[:, None] - normal * along[:, None]) * inverse[:, None]
        tl.store(x_gradient + cell, below.to(x_gradient.dtype.element_ty), mask=inside)
        if PARTED:
            if THRESHOLD > 0:
                below = tl.where(draw(chance, cell) < THRESHOLD, 0.0, below * factor)
            tl.store(y_gradient + cell, below.to(y_gradient.dtype.element_ty), mask=inside)
    sums += tl.program_id(0) * 2 * dim
    tl.store(sums + feature, tl.sum(weight_sums, 0), mask=known)
    tl.store(sums + dim + feature, tl.sum(bias_sums, 0), mask=known)


def tile(dim: int) -> tuple[int, int, int]:
    """How many rows a program holds at a time, the power of two their features fit in, and its warps."""
    block = triton.next_power_of_2(dim)
    rows = max(1, 2048 // block)
    return rows, block, max(1, rows * block // 512)


def joined(
    x: Float[Tensor, "*batch time dim"],
    y: Float[Tensor, "*batch time dim"],
    weight: Float[Tensor, " dim"],
    bias: Float[Tensor, " dim"],
    epsilon: float,
    probability: float,
) -> tuple[Float[Tensor, "*batch time dim"], Float[Tensor, "*batch time dim"]]:
    """LayerNorm(x + dropout(y)) in the precision of `y`, for two readers; the sum is remembered in that precision too.

    The gradients of the two are added on the way and not in a pass of their own.
    """
    return _Joined.apply(x, y, weight, bias, epsilon, probability, y.dtype)  # type: ignore[no-untyped-call]  # as torch left it


def normalised(
    x: Float[Tensor, "*batch time dim"],
    weight: Float[Tensor, " dim"],
    bias: Float[Tensor, " dim"],
    epsilon: float,
    dtype: torch.dtype,
) -> Float[Tensor, "*batch time dim"]:
    """LayerNorm(x) in the precision asked for."""
    return _Joined.apply(x, None, weight, bias, epsilon, 0.0, dtype)[0]  # type: ignore[no-untyped-call]  # as torch left it


class _Joined(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        y: Tensor | None,
        weight: Tensor,
        bias: Tensor,
        epsilon: float,
        probability: float,
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        dim = x.shape[-1]
        rows, x = x.numel() // dim, x.contiguous()
        ctx.probability, ctx.dtypes = probability, (x.dtype, None if y is None else y.dtype)
        seed = new_seed(x.device) if probability > 0.0 else None
        output = torch.empty(x.shape, dtype=dtype, device=x.device)
        total = x if y is None else torch.empty_like(output)
        statistics = torch.empty(2, rows, dtype=torch.float32, device=x.device)
        held, block, warps = tile(dim)
        _join[(triton.cdiv(rows, held),)](
            x,
            x if y is None else y.contiguous(),
            weight,
            bias,
            x if seed is None else seed,
            output,
            total,
            statistics,
            rows,
            dim,
            epsilon,
            1.0 / (1.0 - probability),
            THRESHOLD=threshold(probability),
            JOINED=y is not None,
            ROWS=held,
            BLOCK=block,
            num_warps=warps,
        )
        ctx.save_for_backward(total, statistics, weight, seed)
        ctx.set_materialize_grads(False)
        return output, output.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        given = [gradient.contiguous() for gradient in gradients if gradient is not None]
        total, statistics, weight, seed = ctx.saved_tensors
        dim, (x_dtype, y_dtype) = total.shape[-1], ctx.dtypes
        rows = total.numel() // dim
        parted = y_dtype is not None and (seed is not None or x_dtype != y_dtype)
        x_gradient = torch.empty(total.shape, dtype=x_dtype, device=total.device)
        y_gradient = torch.empty(total.shape, dtype=y_dtype, device=total.device) if parted else x_gradient
        held, block, warps = tile(dim)
        programs = min(triton.cdiv(rows, held), _PROGRAMS)
        sums = torch.empty(programs, 2 * dim, dtype=torch.float32, device=total.device)
        _part[(programs,)](
            given[0],
            given[-1],
            total,
            statistics,
            weight,
            total if seed is None else seed,
            x_gradient,
            y_gradient,
            sums,
            rows,
            dim,
            1.0 / (1.0 - ctx.probability),
            THRESHOLD=threshold(ctx.probability),
            TWICE=len(given) > 1,
            PARTED=parted,
            ROWS=held,
            BLOCK=block,
            STAGES=_STAGES,
            num_warps=warps,
        )
        weight_gradient, bias_gradient = totals(sums).to(weight.dtype).view(2, dim).unbind()
        below = y_gradient if y_dtype is not None else None
        return x_gradient, below, weight_gradient, bias_gradient, None, None, None

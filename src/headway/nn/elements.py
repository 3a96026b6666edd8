"""Dropout, alone, added or after a rectifier, and the sums of columns: more kernels of training on a GPU.

As in `fused.py`, masks are drawn anew backwards and sums are taken in one order. Imported only where Triton is.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from headway.nn.chance import draw, new_seed, threshold

_BLOCK = 2048
_TILE = 64
_STAGES = 2
_PROGRAMS = 528
"""How many programs share the columns' sums, if there is work for so many: four a multiprocessor of 132."""


@triton.jit
def _drop(
    x,
    y,
    output,
    seed,
    count,
    factor,
    THRESHOLD: tl.constexpr,
    ADDED: tl.constexpr,
    RECTIFIED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    cell = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = cell < count
    result = tl.load(y + cell, mask=inside, other=0.0).to(tl.float32)
    if RECTIFIED:
        result = tl.maximum(result, 0.0)
    if THRESHOLD > 0:
        result = tl.where(draw(tl.load(seed), cell) < THRESHOLD, 0.0, result * factor)
    if ADDED:
        result += tl.load(x + cell, mask=inside, other=0.0).to(tl.float32)
    tl.store(output + cell, result.to(output.dtype.element_ty), mask=inside)


@triton.jit
def _add_up(
    gradient,
    result,
    output,
    sums,
    rows,
    columns,
    stride,
    share,
    factor,
    RISEN: tl.constexpr,
    TILE: tl.constexpr,
    STAGES: tl.constexpr,
):
    column = tl.program_id(0) * TILE + tl.arange(0, TILE)
    known = column < columns
    total = tl.zeros([TILE, TILE], tl.float32)
    last = tl.minimum((tl.program_id(1) + 1) * share, rows)
    for first in tl.range(tl.program_id(1) * share, last, TILE, num_stages=STAGES):
        row = first + tl.arange(0, TILE)
        inside = (row < last)[:, None] & known[None, :]
        cell = row.to(tl.int64)[:, None] * stride + column[None, :]
        above = tl.load(gradient + cell, mask=inside, other=0.0).to(tl.float32)
        if RISEN:
            above = tl.where(tl.load(result + cell, mask=inside, other=0.0) > 0.0, above * factor, 0.0)
            tl.store(output + cell, above.to(output.dtype.element_ty), mask=inside)
        total += above
    tl.store(sums + tl.program_id(1) * columns + column, tl.sum(total, 0), mask=known)


@triton.jit
def _total(sums, output, shares, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    known = column < columns
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for first in range(0, shares, ROWS):
        row = first + tl.arange(0, ROWS)
        cell = row[:, None] * columns + column[None, :]
        total += tl.load(sums + cell, mask=(row < shares)[:, None] & known[None, :], other=0.0)
    tl.store(output + column, tl.sum(total, 0), mask=known)


def totals(sums: Float[Tensor, "rows outputs"]) -> Float[Tensor, " outputs"]:
    """The sum of every column of few rows: what programs have summed up each for itself."""
    rows, columns = sums.shape
    output = torch.empty(columns, dtype=torch.float32, device=sums.device)
    _total[(triton.cdiv(columns, 32),)](sums, output, rows, columns, ROWS=64, COLUMNS=32, num_warps=4)
    return output


def dropped(x: Float[Tensor, "*shape"], probability: float) -> Float[Tensor, "*shape"]:
    """Each element zero with this probability, the others scaled by its complement."""
    return _Dropped.apply(None, x, probability, False)  # type: ignore[no-untyped-call]  # as torch left it


def added(x: Float[Tensor, "*shape"], y: Float[Tensor, "*shape"], probability: float) -> Float[Tensor, "*shape"]:
    """`x + dropout(y)` in the precision of `x`."""
    return _Dropped.apply(x, y, probability, False)  # type: ignore[no-untyped-call]  # as torch left it


def rectified(x: Float[Tensor, "*shape"], probability: float) -> Float[Tensor, "*shape"]:
    """`dropout(relu(x))`, remembering the result alone: a zero has no gradient, whichever of the two made it."""
    return _Dropped.apply(None, x, probability, True)  # type: ignore[no-untyped-call]  # as torch left it


def risen(
    gradient: Float[Tensor, "rows outputs"], result: Float[Tensor, "rows outputs"], probability: float
) -> tuple[Float[Tensor, "rows outputs"], Float[Tensor, " outputs"]]:
    """The gradient of what `rectified` was given, of its result's, and the sum of its columns in single precision."""
    result = result.contiguous()
    below = torch.empty_like(result)
    return below, _launch_sums(gradient.contiguous(), result, below, 1.0 / (1.0 - probability))


def column_sums(gradient: Float[Tensor, "rows outputs"]) -> Float[Tensor, " outputs"]:
    """The sum of every column in single precision."""
    return _launch_sums(gradient if gradient.stride(1) == 1 else gradient.contiguous(), None, None, 1.0)


def _launch_sums(gradient: Tensor, result: Tensor | None, below: Tensor | None, factor: float) -> Tensor:
    rows, columns = gradient.shape
    blocks = triton.cdiv(columns, _TILE)
    shares = max(1, min(_PROGRAMS // blocks, triton.cdiv(rows, _TILE)))
    sums = torch.empty(shares, columns, dtype=torch.float32, device=gradient.device)
    _add_up[(blocks, shares)](
        gradient,
        gradient if result is None else result,
        gradient if below is None else below,
        sums,
        rows,
        columns,
        gradient.stride(0),
        triton.cdiv(rows, shares),
        factor,
        RISEN=result is not None,
        TILE=_TILE,
        STAGES=_STAGES,
        num_warps=4,
    )
    return sums[0] if shares == 1 else totals(sums)


def _launch_drop(
    x: Tensor | None, y: Tensor, dtype: torch.dtype, seed: Tensor | None, probability: float, rectify: bool = False
) -> Tensor:
    y, output = y.contiguous(), torch.empty(y.shape, dtype=dtype, device=y.device)
    _drop[(triton.cdiv(y.numel(), _BLOCK),)](
        y if x is None else x.contiguous(),
        y,
        output,
        y if seed is None else seed,
        y.numel(),
        1.0 / (1.0 - probability),
        THRESHOLD=threshold(probability),
        ADDED=x is not None,
        RECTIFIED=rectify,
        BLOCK=_BLOCK,
        num_warps=4,
    )
    return output


class _Dropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor | None, y: Tensor, probability: float, rectify: bool) -> Tensor:
        ctx.probability, ctx.rectify, ctx.dtype, ctx.joined = probability, rectify, y.dtype, x is not None
        seed = new_seed(y.device) if probability > 0.0 else None
        output = _launch_drop(x, y, y.dtype if x is None else x.dtype, seed, probability, rectify)
        ctx.save_for_backward(output if rectify else seed)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, None, None]:
        (saved,) = ctx.saved_tensors
        if not ctx.rectify:
            below = _launch_drop(None, gradient, ctx.dtype, saved, ctx.probability)
            return gradient if ctx.joined else None, below, None, None
        columns = saved.shape[-1]
        below, _ = risen(gradient.reshape(-1, columns), saved.view(-1, columns), ctx.probability)
        return None, below.view(saved.shape), None, None

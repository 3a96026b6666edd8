"""Attention inside many short packed sentences, or to a window of long ones, for training on a GPU.

General kernels cut queries and keys into tiles of 64 or 128; a sentence has about 25 tokens. Here one program serves a
head of a sentence with tiles as small as sentences are: what is read and written once is all there is to wait for.
Imported only where Triton is.
"""

import math
import os
from typing import Any, NamedTuple

import torch
import triton
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from headway.nn.attention.parts import together
from headway.nn.attention.short_kernels import backwards_tiled, backwards_whole, forwards
from headway.nn.attention.visibility import Segments, Visible
from headway.nn.chance import new_seed, threshold
from headway.nn.compiling import compiles

LONGEST = 256
"""Tokens that a query sees beside its own beyond which flash attention is as fast or faster."""
REACH = 64
"""Tokens of a sentence one program sees to; longer sentences are shared by several."""
FAR = 1 << 30
"""Farther than any sentence reaches."""
ON_CPU = False
"""Whether tensors on a CPU are taken too: in tests of the kernels, which are interpreted there."""
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
TYPES = (torch.float32, torch.float16) if INTERPRETED else (torch.float32, torch.float16, torch.bfloat16)
"""The types served; Triton's interpreter multiplies bfloat16 as if it were whole numbers."""


class Tiles(NamedTuple):
    """How a kernel cuts its work: queries and keys of a tile, the warps that share one, and registers of a thread."""

    queries: int
    keys: int
    warps: int
    registers: int | None = None
    stages: int = 1


FORWARDS = {16: Tiles(32, 32, 1), 32: Tiles(32, 32, 2), 64: Tiles(32, 32, 2, 128), 128: Tiles(32, 32, 4, 128)}
"""The tiles of each head width."""
WHOLE = {
    16: (Tiles(32, 32, 1), Tiles(64, 64, 4)),
    32: (Tiles(32, 32, 2), Tiles(64, 64, 4)),
    64: (),
    128: (Tiles(32, 32, 4),),
}
"""The tiles, from small to large, in which the gradients of a sentence are had in one piece; each is a launch."""
TILED = {16: Tiles(32, 32, 2), 32: Tiles(32, 32, 2, 168), 64: Tiles(32, 64, 4, 168), 128: Tiles(32, 32, 4, 168)}
"""The tiles of sentences that fit none of these."""


def serves(query: Float[Tensor, "query heads width"], visible: Visible, drop: float) -> bool:
    """Whether the kernel takes these queries, and no other that can is faster."""
    if visible.segments is None or not (ON_CPU or (query.is_cuda and compiles())):
        return False
    known = query.shape[-1] in FORWARDS and query.dtype in TYPES
    longest = max(visible.segments.queries.longest, visible.segments.keys.longest)
    seen = longest if visible.window is None else min(longest, visible.window * (1 if visible.causal else 2))
    return known and (drop > 0.0 or seen <= LONGEST)


def attend_short(
    query: Float[Tensor, "query heads width"],
    key: Float[Tensor, "key heads width"],
    value: Float[Tensor, "key heads width"],
    visible: Visible,
    drop: float = 0.0,
) -> Float[Tensor, "query heads width"]:
    """softmax(q·k/√width)·v inside each sentence, with this share of the weights dropped.

    A query that sees nothing gets zeros. Gradients lie side by side in memory where queries, keys and values do.
    """
    seed = new_seed(query.device) if drop > 0.0 else None
    return _Attend.apply(  # type: ignore[no-untyped-call]  # as torch left it
        _dense(query), _dense(key), _dense(value), visible, drop, seed
    )


def _dense(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


class _Given(NamedTuple):
    """What a pass begins with."""

    query: Tensor
    key: Tensor
    value: Tensor
    visible: Visible
    drop: float
    seed: Tensor | None

    @property
    def segments(self) -> Segments:
        assert self.visible.segments is not None  # serves has asked
        return self.visible.segments

    @property
    def longest(self) -> int:
        return max(self.segments.queries.longest, self.segments.keys.longest)


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, visible: Visible, drop: float, seed: Tensor | None
    ) -> Tensor:
        output = torch.empty(query.shape, device=query.device, dtype=query.dtype)
        levels = torch.empty((query.shape[1], query.shape[0]), device=query.device, dtype=torch.float32)
        given = _Given(query, key, value, visible, drop, seed)
        _launch(forwards, FORWARDS[query.shape[-1]], given, (output, levels))
        ctx.save_for_backward(query, key, value, output, levels)
        ctx.visible, ctx.drop, ctx.seed = visible, drop, seed
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, pull: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, output, levels = ctx.saved_tensors
        given = _Given(query, key, value, ctx.visible, ctx.drop, ctx.seed)
        slopes = _room(query, key, value)
        _go_back(given, (output, _dense(pull), levels, *slopes))
        return *slopes, None, None, None


def _go_back(given: _Given, tensors: tuple[Tensor, ...]) -> None:
    """Fill the last three tensors with gradients: sentences that fit a tile first, then those that fit none."""
    _, pull, _, *slopes = tensors
    places = (*pull.stride()[:2], *(slope.stride(0) for slope in slopes))
    done, width = 0, pull.shape[-1]
    # In single precision a large tile does not fit the registers.
    for tiles in WHOLE[width][: 1 if pull.dtype == torch.float32 else None]:
        if given.longest > done:
            _launch(backwards_whole, tiles, given, tensors, places, DONE=done)
            done = min(tiles.queries, tiles.keys)
    if given.longest > done:
        _launch(backwards_tiled, TILED[width], given, tensors, places, DONE=done)


def _launch(
    kernel: Any, tiles: Tiles, given: _Given, others: tuple[Tensor, ...], places: tuple[int, ...] = (), **kind: int
) -> None:
    inputs, visible, segments, drop = given[:3], given.visible, given.segments, given.drop
    tokens, heads, width = given.query.shape
    left = FAR if visible.window is None else visible.window
    bounds = segments.queries.bounds
    programs = 1 if kernel is backwards_whole else triton.cdiv(given.longest, REACH)
    exact = given.query.dtype == torch.float32
    kernel[(heads * (len(bounds) - 1), max(programs, 1))](
        *inputs,
        *others,
        bounds,
        segments.keys.bounds,
        bounds if given.seed is None else given.seed,
        1 / math.sqrt(width),
        *(stride for tensor in inputs for stride in tensor.stride()[:2]),
        *places,
        heads,
        tokens,
        given.longest,
        left,
        0 if visible.causal else left,
        threshold(drop),
        1 / (1 - drop) if drop < 1.0 else 0.0,
        WIDTH=width,
        ROWS=tiles.queries,
        KEYS=tiles.keys,
        LIMITED=visible.causal or visible.window is not None,
        DROP=drop > 0.0,
        EXACT="ieee" if exact else "tf32",
        num_warps=tiles.warps,
        num_stages=tiles.stages,
        maxnreg=None if exact else tiles.registers,
        **kind,
    )


def _room(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Room for three gradients, side by side in one tensor as far as the three are."""
    whole = together((query, key, value))
    if whole is not None:
        first, second, third = torch.empty_like(whole).unbind(-3)
        return first, second, third
    both = together((key, value))
    alone = torch.empty(query.shape, device=query.device, dtype=query.dtype)
    if both is not None:
        second, third = torch.empty_like(both).unbind(-3)
        return alone, second, third
    second, third = (torch.empty(x.shape, device=x.device, dtype=x.dtype) for x in (key, value))
    return alone, second, third

"""Attention of a few queries over a memory they share: the kernel of a decoding step on a GPU.

General kernels cut queries into tiles of 64 or 128; a step has as many as its beam. Here one program serves all queries
of a head, so that every key and value is read once. Imported only where Triton is.
"""

import math

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

MOST = 16
"""Queries of a sentence that are few."""


@triton.jit
def _kernel(
    query,
    key,
    value,
    added,
    output,
    scale,
    query_batch,
    query_row,
    query_head,
    key_batch,
    key_row,
    key_head,
    value_batch,
    value_row,
    value_head,
    added_batch,
    added_row,
    heads,
    rows,
    keys,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    MASKED: tl.constexpr,
    EXACT: tl.constexpr,
):
    batch, head = tl.program_id(0) // heads, tl.program_id(0) % heads
    row, place, feature = tl.arange(0, ROWS), tl.arange(0, KEYS), tl.arange(0, WIDTH)
    query += batch * query_batch + head * query_head
    key += batch.to(tl.int64) * key_batch + head * key_head
    value += batch.to(tl.int64) * value_batch + head * value_head
    present = row < rows
    asked = tl.load(query + row[:, None] * query_row + feature[None, :], mask=present[:, None], other=0.0)
    highest = tl.full([ROWS], float("-inf"), tl.float32)
    mass = tl.zeros([ROWS], tl.float32)
    mixed = tl.zeros([ROWS, WIDTH], tl.float32)
    for first in range(0, keys, KEYS):
        here = first + place
        inside = here < keys
        cell = here[:, None] * key_row + feature[None, :]
        held = tl.load(key + cell, mask=inside[:, None], other=0.0)
        scores = tl.dot(asked, tl.trans(held), input_precision=EXACT) * scale
        scores = tl.where(inside[None, :], scores, float("-inf"))
        if MASKED:
            where = batch * added_batch + row[:, None] * added_row + here[None, :]
            shown = tl.load(added + where, mask=present[:, None] & inside[None, :], other=float("-inf"))
            scores += shown.to(tl.float32)
        higher = tl.maximum(highest, tl.max(scores, 1))
        level = tl.where(higher == float("-inf"), 0.0, higher)
        fade = tl.exp(highest - level)
        weights = tl.exp(scores - level[:, None])
        mass = mass * fade + tl.sum(weights, 1)
        cell = here[:, None] * value_row + feature[None, :]
        read = tl.load(value + cell, mask=inside[:, None], other=0.0)
        mixed = mixed * fade[:, None] + tl.dot(weights.to(read.dtype), read, input_precision=EXACT)
        highest = higher
    mixed = mixed / tl.where(mass == 0.0, 1.0, mass)[:, None]
    cell = ((batch * rows + row[:, None]) * heads + head) * WIDTH + feature[None, :]
    tl.store(output + cell, mixed.to(output.dtype.element_ty), mask=present[:, None])


def serves(query: Float[Tensor, "batch query heads width"]) -> bool:
    """Whether the kernel takes these queries."""
    width = query.shape[-1]
    return query.dim() == 4 and query.shape[1] <= MOST and width in (16, 32, 64, 128) and query.stride(-1) == 1


def attend_few(
    query: Float[Tensor, "batch query heads width"],
    key: Float[Tensor, "batch key heads width"],
    value: Float[Tensor, "batch key heads width"],
    added: Float[Tensor, "batch 1 #query key"] | None,
) -> Float[Tensor, "batch query heads width"]:
    """softmax(q·k/√width + added)·v, where every query sees a key."""
    batch, rows, heads, width = query.shape
    output = torch.empty((batch, rows, heads, width), device=query.device, dtype=query.dtype)
    mask = query if added is None else added
    _kernel[(batch * heads,)](
        query,
        key,
        value,
        mask,
        output,
        1 / math.sqrt(width),
        *query.stride()[:3],
        *key.stride()[:3],
        *value.stride()[:3],
        mask.stride(0),
        0 if mask.shape[2] == 1 else mask.stride(2),
        heads,
        rows,
        key.shape[1],
        WIDTH=width,
        ROWS=16,
        KEYS=32,
        MASKED=added is not None,
        EXACT="ieee" if query.dtype == torch.float32 else "tf32",
        num_warps=2,
    )
    return output

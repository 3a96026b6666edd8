"""Label-smoothed cross-entropy and its gradient on a GPU: logits are read twice, the second time from its caches.

Torch would read and write them some ten times, in twice their precision. All exponentials are powers of two, which are
a single instruction; a level is a logit with its bias, times log2(e). Imported only where Triton is.
"""

import math

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

LARGE = 16384
"""Logits of a row beyond which a program reads more at a time."""
BLOCK = 4096
"""Logits of a row read at a time."""
WARPS = 16
"""Warps that share a row; the fewer rows are under way at once, the surer they are still cached when read again."""
REGISTERS = 40
"""Registers of a thread at most; it needs more only outside of the loops."""
READ, WRITE = ".cg", ".cs"
"""How logits are cached: past the first cache, where the bias stays for all rows; gradients are needed no more here."""
ALIGNED = 16
"""Where the end of a row is a multiple of this, many numbers are read and written at a time."""
SIDE = tl.constexpr(8)
"""Numbers side by side that one thread reads at once, and sums up on its own."""
LOG2E = tl.constexpr(math.log2(math.e))
LN2 = tl.constexpr(math.log(2.0))


@triton.jit
def _levels(logits, bias, column, reference, BIASED: tl.constexpr, READ: tl.constexpr):
    """The levels of whole blocks, above the reference."""
    shift = -reference
    if BIASED:
        shift += tl.load(bias + column)
    return tl.load(logits + column, cache_modifier=READ).to(tl.float32) * LOG2E + shift


@triton.jit
def _last_levels(logits, bias, column, reference, vocabulary, edge, BIASED: tl.constexpr, READ: tl.constexpr):
    """The levels of the last block, above the reference; lowest of all where the vocabulary has ended."""
    here = tl.load(logits + column, mask=column < edge, other=0.0, cache_modifier=READ).to(tl.float32)
    level = tl.where(column < vocabulary, here, float("-inf")) * LOG2E - reference
    if BIASED:
        level += tl.load(bias + column, mask=column < edge, other=0.0)
    return level


@triton.jit
def _within_threads(values, BLOCK: tl.constexpr):
    """The sums of what each thread has read at once: they take one register where the numbers themselves take eight."""
    return tl.sum(tl.reshape(values, [BLOCK // SIDE, SIDE]), 1)


@triton.jit
def _sums(logits, bias, reference, vocabulary, edge, BLOCK: tl.constexpr, BIASED: tl.constexpr, READ: tl.constexpr):
    """The sums over a row of two to the power of its levels, and of its levels, above the reference."""
    place, last = tl.arange(0, BLOCK), (vocabulary - 1) // BLOCK * BLOCK
    mass = tl.zeros([BLOCK // SIDE], tl.float32)
    total = tl.zeros([BLOCK // SIDE], tl.float32)
    for first in tl.range(0, last, BLOCK, loop_unroll_factor=2 if BIASED else 1):  # two readings under way at once
        level = _levels(logits, bias, first + place, reference, BIASED, READ)
        mass += _within_threads(tl.exp2(level), BLOCK)
        total += _within_threads(level, BLOCK)
    level = _last_levels(logits, bias, last + place, reference, vocabulary, edge, BIASED, READ)
    mass += _within_threads(tl.exp2(level), BLOCK)
    total += _within_threads(tl.where(last + place < vocabulary, level, 0.0), BLOCK)
    return tl.sum(mass), tl.sum(total)


@triton.jit
def _highest(logits, bias, vocabulary, edge, BLOCK: tl.constexpr, BIASED: tl.constexpr, READ: tl.constexpr):
    """The highest level of a row."""
    place, last = tl.arange(0, BLOCK), (vocabulary - 1) // BLOCK * BLOCK
    highest = _last_levels(logits, bias, last + place, 0.0, vocabulary, edge, BIASED, READ)
    for first in range(0, last, BLOCK):
        highest = tl.maximum(highest, _levels(logits, bias, first + place, 0.0, BIASED, READ))
    return tl.max(highest)


@triton.jit
def _kernel(
    logits,
    bias,
    labels,
    found,
    smoothing,
    vocabulary,
    edge,
    stride,
    BLOCK: tl.constexpr,
    BIASED: tl.constexpr,
    DIFFERENTIATED: tl.constexpr,
    READ: tl.constexpr,
    WRITE: tl.constexpr,
):
    row, place = tl.program_id(0), tl.arange(0, BLOCK)
    label = tl.load(labels + row).to(tl.int32)
    logits += row.to(tl.int64) * stride
    if label < 0:
        tl.store(found + 2 * row, 0.0)
        tl.store(found + 2 * row + 1, 0.0)
        if DIFFERENTIATED:
            for first in range(0, vocabulary, BLOCK):
                column = first + place
                tl.store(logits + column, tl.zeros([BLOCK], logits.dtype.element_ty), mask=column < edge)
        return
    chosen = tl.load(logits + label).to(tl.float32) * LOG2E
    if BIASED:
        chosen += tl.load(bias + label)
    # Above the label's own level the mass is at least one, and one power of two is all it takes. Only where the label
    # is so unlikely that the mass overflows, a row is read again to find its highest level, and again for the sums.
    reference = chosen
    mass, total = _sums(logits, bias, reference, vocabulary, edge, BLOCK, BIASED, READ)
    if not mass < float("inf"):
        reference = _highest(logits, bias, vocabulary, edge, BLOCK, BIASED, READ)
        mass, total = _sums(logits, bias, reference, vocabulary, edge, BLOCK, BIASED, READ)
    normaliser = reference + tl.log2(mass)
    surprise = (normaliser - chosen) * LN2
    tl.store(found + 2 * row, surprise + smoothing * LN2 * (chosen - reference - total / vocabulary))
    tl.store(found + 2 * row + 1, surprise)
    if DIFFERENTIATED:
        even = smoothing / vocabulary
        last = (vocabulary - 1) // BLOCK * BLOCK
        level = _last_levels(logits, bias, last + place, normaliser, vocabulary, edge, BIASED, READ)
        slope = (tl.exp2(level) - even).to(logits.dtype.element_ty)
        tl.store(logits + last + place, slope, mask=last + place < edge, cache_modifier=WRITE)
        # Backwards: what was read last is the surest to be cached still.
        for done in range(0, last, BLOCK):
            column = last - BLOCK - done + place
            level = _levels(logits, bias, column, normaliser, BIASED, READ)
            slope = (tl.exp2(level) - even).to(logits.dtype.element_ty)
            tl.store(logits + column, slope, cache_modifier=WRITE)
        tl.debug_barrier()  # another thread has just written where the label is
        own = tl.exp2(chosen - normaliser) - even - (1.0 - smoothing)
        tl.store(logits + label, own.to(logits.dtype.element_ty), cache_modifier=WRITE)


def scaled_bias(bias: Float[Tensor, " vocabulary"]) -> Float[Tensor, " padded"]:
    """The bias as the kernel takes it: times log2(e), and as long as an aligned row."""
    scaled = bias.float() * LOG2E.value
    spare = -len(bias) % ALIGNED
    return F.pad(scaled, (0, spare)) if spare else scaled


def smoothed_entropy(
    logits: Float[Tensor, "tokens vocabulary"],
    bias: Float[Tensor, " padded"] | None,
    labels: Int[Tensor, " tokens"],
    found: Float[Tensor, "tokens 2"],
    smoothing: float,
    *,
    differentiate: bool,
) -> None:
    """Write loss and surprise of every row to `found`; leave the loss's gradient where the logits were, where wanted.

    The bias, as `scaled_bias` made it, is added here. A row whose label is negative counts for nothing: its two numbers
    and its gradient are zero. Where rows have gaps between them, the first few numbers of a gap may be overwritten.
    """
    rows, vocabulary = logits.shape
    if not rows:
        return
    if logits.stride(1) != 1 or not found.is_contiguous():
        raise ValueError("the logits of a row, and all that is found, must lie side by side")
    edge = triton.cdiv(vocabulary, ALIGNED) * ALIGNED
    most = BLOCK if vocabulary > LARGE else BLOCK // 2
    block = max(SIDE.value, min(most, triton.next_power_of_2(vocabulary)))
    _kernel[(rows,)](
        logits,
        logits if bias is None else bias,
        labels.contiguous(),
        found,
        smoothing,
        vocabulary,
        edge if logits.stride(0) >= edge else vocabulary,
        logits.stride(0),
        BLOCK=block,
        BIASED=bias is not None,
        DIFFERENTIATED=differentiate,
        READ=READ,
        WRITE=WRITE,
        num_warps=max(1, min(WARPS, block // (32 * SIDE.value))),
        maxnreg=REGISTERS,
    )


def room_for_logits(
    like: Float[Tensor, "*tokens dim"], tokens: int, vocabulary: int
) -> Float[Tensor, "tokens vocabulary"]:
    """Room for so many rows of logits, each beginning where products and kernels are fast, whatever the vocabulary."""
    return torch.empty(
        tokens, triton.cdiv(vocabulary, 4 * ALIGNED) * 4 * ALIGNED, device=like.device, dtype=like.dtype
    )[:, :vocabulary]

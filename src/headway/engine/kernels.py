"""A step of beam search as three kernels: the twins of `candidates.best` and `Beam.extend`, for a captured search.

From logits to candidates the vocabulary is read once, and no probability is written down but those of the candidates.
Imported only where Triton is.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from headway.search.beam import Beam
from headway.search.candidates import GROUP

CHUNK = 2048


@triton.jit
def _survey(
    logits, bias, barred, short, peaks, levels, masses, vocabulary, beam, end, GROUP: tl.constexpr, CHUNK: tl.constexpr
):
    """The highest allowed logit of every group, and for every chunk what its softmax needs."""
    row, chunk, chunks = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    token = chunk * CHUNK + tl.arange(0, CHUNK)
    inside = token < vocabulary
    logit = tl.load(logits + row * vocabulary + token, mask=inside, other=float("-inf"))
    logit += tl.load(bias + token, mask=inside, other=0.0).to(tl.float32)
    level = tl.max(logit, 0)
    tl.store(levels + row * chunks + chunk, level)
    tl.store(masses + row * chunks + chunk, tl.sum(tl.exp(logit - level), 0))
    worth = logit + tl.load(barred + token, mask=inside, other=0.0)
    early = tl.load(short + row // beam)
    worth = tl.where((token == end) & (early != 0), float("-inf"), worth)
    groups: tl.constexpr = CHUNK // GROUP
    peak = tl.max(tl.reshape(worth, (groups, GROUP)), 1)
    tl.store(peaks + row * chunks * groups + chunk * groups + tl.arange(0, groups), peak)


@triton.jit
def _pick(
    logits,
    bias,
    barred,
    short,
    peaks,
    levels,
    masses,
    values,
    tokens,
    vocabulary,
    chunks,
    groups,
    beam,
    end,
    COUNT: tl.constexpr,
    GROUP: tl.constexpr,
    GROUPS: tl.constexpr,
    CHUNKS: tl.constexpr,
    POOL: tl.constexpr,
):
    """The best tokens of a row and their log-probabilities; of equals, the lower id first."""
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.arange(0, CHUNKS)
    level = tl.load(levels + row * chunks + chunk, mask=chunk < chunks, other=float("-inf"))
    mass = tl.load(masses + row * chunks + chunk, mask=chunk < chunks, other=0.0)
    top = tl.max(level, 0)
    normal = top + tl.log(tl.sum(mass * tl.exp(level - top), 0))
    group = tl.arange(0, GROUPS)
    peak = tl.load(peaks + row * groups + group, mask=group < groups, other=float("-inf"))
    slot = tl.arange(0, POOL)
    token = tl.full([POOL], 0, tl.int32) + vocabulary
    for number in range(COUNT):
        chosen = tl.argmax(peak, 0)
        token = tl.where(slot // GROUP == number, chosen * GROUP + slot % GROUP, token)
        peak = tl.where(group == chosen, float("-inf"), peak)
    # Groups of no worth are chosen again and again: their tokens are, too, and all are impossible.
    inside = token < vocabulary
    worth = tl.load(logits + row * vocabulary + token, mask=inside, other=float("-inf"))
    worth += tl.load(bias + token, mask=inside, other=0.0).to(tl.float32)
    worth += tl.load(barred + token, mask=inside, other=0.0)
    early = tl.load(short + row // beam)
    worth = tl.where((token == end) & (early != 0), float("-inf"), worth)
    for number in range(COUNT):
        best = tl.max(worth, 0)
        which = tl.min(tl.where((worth == best) & inside, token, vocabulary), 0)
        which = tl.where(best == float("-inf"), 0, which)
        tl.store(values + row * COUNT + number, best - normal)
        tl.store(tokens + row * COUNT + number, which.to(tl.int64))
        worth = tl.where(token == which, float("-inf"), worth)


@triton.jit
def _book(
    values,
    tokens,
    totals,
    scores,
    lengths,
    rows,
    endings,
    finished,
    counts,
    done,
    limits,
    penalties,
    length,
    newest,
    parents,
    written,
    ancestors,
    surprises,
    sentences,
    beam,
    end,
    COUNT: tl.constexpr,
    NBEST: tl.constexpr,
    TAKEN: tl.constexpr,
    BEAM: tl.constexpr,
    ALL: tl.constexpr,
):
    """`Beam.extend` for one sentence, in place."""
    sentence = tl.program_id(0)
    none = float("-inf")
    time = tl.load(length)
    slot, place = tl.arange(0, BEAM), tl.arange(0, ALL)
    held, real = slot < beam, place < beam * COUNT
    row = place // COUNT
    before = tl.load(totals + sentence * beam + slot, mask=held, other=none)
    total = tl.load(totals + sentence * beam + row, mask=real, other=none)
    value = tl.load(values + sentence * beam * COUNT + place, mask=real, other=none).to(tl.float64)
    token = tl.load(tokens + sentence * beam * COUNT + place, mask=real, other=0)
    total += value
    count = tl.load(counts + sentence)
    open_places = beam - count
    stride = beam + 1
    known = tl.load(scores + sentence * stride + slot, mask=held, other=none)
    found_length = tl.load(lengths + sentence * stride + slot, mask=held, other=0)
    found_row = tl.load(rows + sentence * stride + slot, mask=held, other=0)
    found_ending = tl.load(endings + sentence * stride + slot, mask=held, other=0.0)
    found_finished = tl.load(finished + sentence * stride + slot, mask=held, other=0).to(tl.int32)
    penalty = tl.load(penalties + time + 1)
    kept = 0
    next_total = tl.full([BEAM], none, tl.float64)
    next_value = tl.zeros([BEAM], tl.float64)
    next_token = tl.zeros([BEAM], tl.int64)
    next_row = tl.zeros([BEAM], tl.int64)
    for rank in range(TAKEN):
        best = tl.max(total, 0)
        which = tl.min(tl.where(total == best, place, ALL), 0)
        chosen = place == which
        its_token = tl.sum(tl.where(chosen, token, 0), 0)
        its_value = tl.sum(tl.where(chosen, value, 0.0), 0)
        its_row = (which // COUNT).to(tl.int64)
        possible = best > none
        ends = its_token == end
        closing = possible & ends & (rank < open_places)
        at = closing & (slot == count)
        known = tl.where(at, best / penalty, known)
        found_length = tl.where(at, time, found_length)
        found_row = tl.where(at, its_row, found_row)
        found_ending = tl.where(at, its_value, found_ending)
        found_finished = tl.where(at, 1, found_finished)
        count += closing.to(tl.int64)
        growing = possible & (its_token != end) & (kept < beam)
        at = growing & (slot == kept)
        next_total = tl.where(at, best, next_total)
        next_value = tl.where(at, its_value, next_value)
        next_token = tl.where(at, its_token, next_token)
        next_row = tl.where(at, its_row, next_row)
        kept += growing.to(tl.int32)
        total = tl.where(chosen, none, total)
    next_total = tl.where(slot < beam - count, next_total, none)
    limit = tl.load(limits + sentence)
    likeliest = tl.max(next_total, 0)
    rest, worst = known, tl.max(known, 0)
    for _ in range(NBEST - 1):
        first = tl.min(tl.where(rest == worst, slot, BEAM), 0)
        rest = tl.where(slot == first, none, rest)
        worst = tl.max(rest, 0)
    bound = likeliest / tl.load(penalties + tl.maximum(limit, 0) + 1)
    over = (count >= NBEST) & (bound <= worst)
    stop = over | (time >= limit) | (likeliest == none)
    was_done = tl.load(done + sentence) != 0
    bare = stop & (count == 0) & (was_done == 0)
    cut = bare & held & (before > none)
    known = tl.where(cut, before / tl.load(penalties + time), known)
    found_length = tl.where(cut, time, found_length)
    found_row = tl.where(cut, slot.to(tl.int64), found_row)
    found_finished = tl.where(cut, 0, found_finished)
    count += tl.sum(cut.to(tl.int64), 0)
    over_now = stop | was_done
    next_total = tl.where(over_now, none, next_total)
    tl.store(scores + sentence * stride + slot, known, mask=held)
    tl.store(lengths + sentence * stride + slot, found_length, mask=held)
    tl.store(rows + sentence * stride + slot, found_row, mask=held)
    tl.store(endings + sentence * stride + slot, found_ending, mask=held)
    tl.store(finished + sentence * stride + slot, found_finished, mask=held)
    tl.store(counts + sentence, count)
    tl.store(done + sentence, over_now.to(tl.int8))
    cell = sentence * beam + slot
    tl.store(totals + cell, next_total, mask=held)
    tl.store(newest + cell, next_token, mask=held)
    tl.store(parents + cell, next_row, mask=held)
    cell += time * sentences * beam
    tl.store(written + cell, next_token, mask=held)
    tl.store(ancestors + cell, next_row, mask=held)
    tl.store(surprises + cell, next_value, mask=held)


def candidates(
    logits: Float[Tensor, "batch beam vocabulary"],
    bias: Float[Tensor, " vocabulary"],
    barred: Float[Tensor, " vocabulary"],
    short: Int[Tensor, " batch"],
    end: int,
) -> tuple[Float[Tensor, "batch beam candidates"], Int[Tensor, "batch beam candidates"]]:
    """Log-probabilities and ids of the best tokens of every row, one more than there are rows.

    `logits` lack their `bias`; `barred` is minus infinity for tokens no output may hold, and the end symbol is
    impossible where an output is still too `short`. Tokens that are impossible still have a share in the softmax.
    """
    batch, beam, vocabulary = logits.shape
    rows, count = batch * beam, min(beam + 1, vocabulary)
    chunks = triton.cdiv(vocabulary, CHUNK)
    groups = chunks * (CHUNK // GROUP)
    peaks = logits.new_empty(rows, groups)
    levels, masses = logits.new_empty(2, rows, chunks)
    values = logits.new_empty(batch, beam, count)
    tokens = torch.empty(batch, beam, count, dtype=torch.int64, device=logits.device)
    _survey[(rows, chunks)](
        logits, bias, barred, short, peaks, levels, masses, vocabulary, beam, end, GROUP=GROUP, CHUNK=CHUNK, num_warps=4
    )
    _pick[(rows,)](
        logits,
        bias,
        barred,
        short,
        peaks,
        levels,
        masses,
        values,
        tokens,
        vocabulary,
        chunks,
        groups,
        beam,
        end,
        COUNT=count,
        GROUP=GROUP,
        GROUPS=triton.next_power_of_2(groups),
        CHUNKS=triton.next_power_of_2(chunks),
        POOL=triton.next_power_of_2(count * GROUP),
        num_warps=4,
    )
    return values, tokens


def book(
    beam: Beam,
    values: Float[Tensor, "batch beam candidates"],
    tokens: Int[Tensor, "batch beam candidates"],
    penalties: Float[Tensor, " time"],
    end: int,
    newest: Int[Tensor, "batch beam"],
    parents: Int[Tensor, "batch beam"],
    records: tuple[Tensor, Tensor, Tensor],
) -> None:
    """Extend the beam by its candidates, in place; write what was taken, and the records of this step.

    `penalties` holds the divisor of a log-probability for every length.
    """
    found, count = beam.found, values.shape[2]
    written, ancestors, surprises = records
    assert isinstance(beam.length, Tensor)
    _book[(len(values),)](
        values,
        tokens,
        beam.totals,
        found.scores,
        found.lengths,
        found.rows,
        found.endings,
        found.finished,
        found.count,
        beam.done,
        beam.limits,
        penalties,
        beam.length,
        newest,
        parents,
        written,
        ancestors,
        surprises,
        len(values),
        beam.places,
        end,
        COUNT=count,
        NBEST=beam.nbest,
        TAKEN=min(2 * beam.places, beam.places * count),
        BEAM=triton.next_power_of_2(beam.places),
        ALL=triton.next_power_of_2(beam.places * count),
        num_warps=1,
    )

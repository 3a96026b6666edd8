"""The kernels of attention inside short packed sentences, forwards and backwards.

One program serves a head of a sentence. Nothing is added atomically: the same input gives the same bits. Imported only
where Triton is.
"""

import triton
import triton.language as tl

from headway.nn.chance import draw

ANY = ["heads", "tokens", "longest", "left", "right", "limit"]
"""Numbers that need no kernel of their own for being 1 or a multiple of 16."""
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def _sentence(query_bounds, key_bounds, number):
    """Where the queries and keys of a sentence begin, and how many there are."""
    top, begin = tl.load(query_bounds + number), tl.load(key_bounds + number)
    return top, begin, tl.load(query_bounds + number + 1) - top, tl.load(key_bounds + number + 1) - begin


@triton.jit
def _seen(row, here, keys, shift, left, right, LIMITED: tl.constexpr):
    """Whether the query at `row` sees the key at `here`."""
    seen = here < keys
    if LIMITED:
        away = here - row - shift
        seen = seen & (away <= right) & (away >= -left)
    return seen


@triton.jit
def _kept(seed, row, here, longest, limit):
    """Whether the weight of the key at `here` for the query at `row` survives dropout."""
    return draw(seed, row.to(tl.uint32) * longest.to(tl.uint32) + here.to(tl.uint32)) >= limit.to(tl.uint32)


@triton.jit(do_not_specialize=ANY)
def forwards(
    query,
    key,
    value,
    output,
    levels,
    query_bounds,
    key_bounds,
    seeds,
    scale,
    query_row,
    query_head,
    key_row,
    key_head,
    value_row,
    value_head,
    heads,
    tokens,
    longest,
    left,
    right,
    limit,
    lift,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    LIMITED: tl.constexpr,
    DROP: tl.constexpr,
    EXACT: tl.constexpr,
) -> None:
    """The output of a sentence, and the logarithm (to base 2) of each query's sum of exponentials."""
    head = tl.program_id(0) % heads
    top, begin, queries, keys = _sentence(query_bounds, key_bounds, tl.program_id(0) // heads)
    shift = keys - queries
    query += top.to(tl.int64) * query_row + head * query_head
    key += begin.to(tl.int64) * key_row + head * key_head
    value += begin.to(tl.int64) * value_row + head * value_head
    output += (top.to(tl.int64) * heads + head) * WIDTH
    place = head * tokens + top
    feature = tl.arange(0, WIDTH)[None, :]
    seed = tl.load(seeds)
    for upper in range(tl.program_id(1) * ROWS, queries, tl.num_programs(1) * ROWS):
        row = upper + tl.arange(0, ROWS)
        present = row < queries
        asked = tl.load(query + row[:, None] * query_row + feature, mask=present[:, None], other=0.0)
        # Finite, so that a row that sees nothing is no NaN.
        highest = tl.full([ROWS], -1e30, tl.float32)
        mass = tl.zeros([ROWS], tl.float32)
        mixed = tl.zeros([ROWS, WIDTH], tl.float32)
        start, end = 0, keys
        if LIMITED:
            start = tl.maximum(upper + shift - left, 0)
            end = tl.minimum(upper + ROWS + shift + right, keys)
        for first in range(start, end, KEYS):
            here = first + tl.arange(0, KEYS)
            inside = (here < keys)[:, None]
            known = tl.load(key + here[:, None] * key_row + feature, mask=inside, other=0.0)
            held = tl.load(value + here[:, None] * value_row + feature, mask=inside, other=0.0)
            scores = tl.dot(asked, tl.trans(known), input_precision=EXACT) * (scale * LOG2E)
            seen = _seen(row[:, None], here[None, :], keys, shift, left, right, LIMITED)
            scores = tl.where(seen, scores, float("-inf"))
            higher = tl.maximum(highest, tl.max(scores, 1))
            fade = tl.exp2(highest - higher)
            weights = tl.exp2(scores - higher[:, None])
            mass = mass * fade + tl.sum(weights, 1)
            if DROP:
                kept = _kept(seed, (place + row)[:, None], here[None, :], longest, limit)
                weights = tl.where(kept, weights, 0.0)
            mixed = mixed * fade[:, None] + tl.dot(weights.to(held.dtype), held, input_precision=EXACT)
            highest = higher
        divisor = tl.where(mass == 0.0, 1.0, mass)
        mixed = mixed * (lift / divisor)[:, None]
        cell = row[:, None] * (heads * WIDTH) + feature
        tl.store(output + cell, mixed.to(output.dtype.element_ty), mask=present[:, None])
        tl.store(levels + place + row, highest + tl.log2(divisor), mask=present)


@triton.jit(do_not_specialize=ANY)
def backwards_whole(
    query,
    key,
    value,
    _output,
    pulls,
    levels,
    query_slopes,
    key_slopes,
    value_slopes,
    query_bounds,
    key_bounds,
    seeds,
    scale,
    query_row,
    query_head,
    key_row,
    key_head,
    value_row,
    value_head,
    pull_row,
    pull_head,
    query_slope_row,
    key_slope_row,
    value_slope_row,
    heads,
    tokens,
    longest,
    left,
    right,
    limit,
    lift,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    LIMITED: tl.constexpr,
    DROP: tl.constexpr,
    EXACT: tl.constexpr,
    DONE: tl.constexpr,
) -> None:
    """The gradients of a sentence that fits one tile and was not `DONE` by smaller ones: no loop, few registers."""
    head = tl.program_id(0) % heads
    top, begin, queries, keys = _sentence(query_bounds, key_bounds, tl.program_id(0) // heads)
    if (queries > ROWS) | (keys > KEYS) | ((queries <= DONE) & (keys <= DONE)):
        return
    shift = keys - queries
    query += top.to(tl.int64) * query_row + head * query_head
    key += begin.to(tl.int64) * key_row + head * key_head
    value += begin.to(tl.int64) * value_row + head * value_head
    pulls += top.to(tl.int64) * pull_row + head * pull_head
    query_slopes += top.to(tl.int64) * query_slope_row + head * WIDTH
    key_slopes += begin.to(tl.int64) * key_slope_row + head * WIDTH
    value_slopes += begin.to(tl.int64) * value_slope_row + head * WIDTH
    place = head * tokens + top
    feature = tl.arange(0, WIDTH)[None, :]
    seed = tl.load(seeds)
    here, row = tl.arange(0, KEYS), tl.arange(0, ROWS)
    inside, present = (here < keys)[:, None], row < queries
    asked = tl.load(query + row[:, None] * query_row + feature, mask=present[:, None], other=0.0)
    known = tl.load(key + here[:, None] * key_row + feature, mask=inside, other=0.0)
    pull = tl.load(pulls + row[:, None] * pull_row + feature, mask=present[:, None], other=0.0)
    held = tl.load(value + here[:, None] * value_row + feature, mask=inside, other=0.0)
    level = tl.load(levels + place + row, mask=present, other=0.0)
    scores = tl.dot(known, tl.trans(asked), input_precision=EXACT) * (scale * LOG2E)
    seen = _seen(row[None, :], here[:, None], keys, shift, left, right, LIMITED)
    share = tl.exp2(tl.where(seen, scores - level[None, :], float("-inf")))
    pulled = tl.dot(held, tl.trans(pull), input_precision=EXACT)
    given = share
    if DROP:
        kept = _kept(seed, (place + row)[None, :], here[:, None], longest, limit)
        pulled = tl.where(kept, pulled * lift, 0.0)
        given = tl.where(kept, share * lift, 0.0)
    value_slope = tl.dot(given.to(pull.dtype), pull, input_precision=EXACT)
    cell = here[:, None] * value_slope_row + feature
    tl.store(value_slopes + cell, value_slope.to(value_slopes.dtype.element_ty), mask=inside)
    middle = tl.sum(share * pulled, 0)  # what the output would give, which thus is not read
    slope = (share * (pulled - middle[None, :]) * scale).to(asked.dtype)
    key_slope = tl.dot(slope, asked, input_precision=EXACT)
    cell = here[:, None] * key_slope_row + feature
    tl.store(key_slopes + cell, key_slope.to(key_slopes.dtype.element_ty), mask=inside)
    query_slope = tl.dot(tl.trans(slope), known, input_precision=EXACT)
    cell = row[:, None] * query_slope_row + feature
    tl.store(query_slopes + cell, query_slope.to(query_slopes.dtype.element_ty), mask=present[:, None])


@triton.jit(do_not_specialize=ANY)
def backwards_tiled(
    query,
    key,
    value,
    output,
    pulls,
    levels,
    query_slopes,
    key_slopes,
    value_slopes,
    query_bounds,
    key_bounds,
    seeds,
    scale,
    query_row,
    query_head,
    key_row,
    key_head,
    value_row,
    value_head,
    pull_row,
    pull_head,
    query_slope_row,
    key_slope_row,
    value_slope_row,
    heads,
    tokens,
    longest,
    left,
    right,
    limit,
    lift,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    LIMITED: tl.constexpr,
    DROP: tl.constexpr,
    EXACT: tl.constexpr,
    DONE: tl.constexpr,
) -> None:
    """The gradients of a sentence too long to be `DONE` in one tile: one pass for keys and values, one for queries."""
    head = tl.program_id(0) % heads
    top, begin, queries, keys = _sentence(query_bounds, key_bounds, tl.program_id(0) // heads)
    if (queries <= DONE) & (keys <= DONE):
        return
    shift = keys - queries
    query += top.to(tl.int64) * query_row + head * query_head
    key += begin.to(tl.int64) * key_row + head * key_head
    value += begin.to(tl.int64) * value_row + head * value_head
    output += (top.to(tl.int64) * heads + head) * WIDTH
    pulls += top.to(tl.int64) * pull_row + head * pull_head
    query_slopes += top.to(tl.int64) * query_slope_row + head * WIDTH
    key_slopes += begin.to(tl.int64) * key_slope_row + head * WIDTH
    value_slopes += begin.to(tl.int64) * value_slope_row + head * WIDTH
    place = head * tokens + top
    feature = tl.arange(0, WIDTH)[None, :]
    seed = tl.load(seeds)
    for first in range(tl.program_id(1) * KEYS, keys, tl.num_programs(1) * KEYS):
        here = first + tl.arange(0, KEYS)
        inside = (here < keys)[:, None]
        known = tl.load(key + here[:, None] * key_row + feature, mask=inside, other=0.0)
        held = tl.load(value + here[:, None] * value_row + feature, mask=inside, other=0.0)
        key_slope = tl.zeros([KEYS, WIDTH], tl.float32)
        value_slope = tl.zeros([KEYS, WIDTH], tl.float32)
        start, end = 0, queries
        if LIMITED:
            start = tl.maximum(first - shift - right, 0)
            end = tl.minimum(first + KEYS - shift + left, queries)
        for upper in range(start, end, ROWS):
            row = upper + tl.arange(0, ROWS)
            present = row < queries
            asked = tl.load(query + row[:, None] * query_row + feature, mask=present[:, None], other=0.0)
            pull = tl.load(pulls + row[:, None] * pull_row + feature, mask=present[:, None], other=0.0)
            level = tl.load(levels + place + row, mask=present, other=0.0)
            scores = tl.dot(known, tl.trans(asked), input_precision=EXACT) * (scale * LOG2E)
            seen = _seen(row[None, :], here[:, None], keys, shift, left, right, LIMITED)
            share = tl.exp2(tl.where(seen, scores - level[None, :], float("-inf")))
            pulled = tl.dot(held, tl.trans(pull), input_precision=EXACT)
            given = share
            if DROP:
                kept = _kept(seed, (place + row)[None, :], here[:, None], longest, limit)
                pulled = tl.where(kept, pulled * lift, 0.0)
                given = tl.where(kept, share * lift, 0.0)
            value_slope += tl.dot(given.to(pull.dtype), pull, input_precision=EXACT)
            cell = row[:, None] * (heads * WIDTH) + feature
            mixed = tl.load(output + cell, mask=present[:, None], other=0.0)
            middle = tl.sum(mixed.to(tl.float32) * pull.to(tl.float32), 1)
            slope = (share * (pulled - middle[None, :])).to(asked.dtype)
            key_slope += tl.dot(slope, asked, input_precision=EXACT)
        cell = here[:, None] * key_slope_row + feature
        tl.store(key_slopes + cell, (key_slope * scale).to(key_slopes.dtype.element_ty), mask=inside)
        cell = here[:, None] * value_slope_row + feature
        tl.store(value_slopes + cell, value_slope.to(value_slopes.dtype.element_ty), mask=inside)
    for upper in range(tl.program_id(1) * ROWS, queries, tl.num_programs(1) * ROWS):
        row = upper + tl.arange(0, ROWS)
        present = row < queries
        asked = tl.load(query + row[:, None] * query_row + feature, mask=present[:, None], other=0.0)
        pull = tl.load(pulls + row[:, None] * pull_row + feature, mask=present[:, None], other=0.0)
        cell = row[:, None] * (heads * WIDTH) + feature
        mixed = tl.load(output + cell, mask=present[:, None], other=0.0)
        level = tl.load(levels + place + row, mask=present, other=0.0)
        middle = tl.sum(mixed.to(tl.float32) * pull.to(tl.float32), 1)
        query_slope = tl.zeros([ROWS, WIDTH], tl.float32)
        start, end = 0, keys
        if LIMITED:
            start = tl.maximum(upper + shift - left, 0)
            end = tl.minimum(upper + ROWS + shift + right, keys)
        for first in range(start, end, KEYS):
            here = first + tl.arange(0, KEYS)
            inside = (here < keys)[:, None]
            known = tl.load(key + here[:, None] * key_row + feature, mask=inside, other=0.0)
            held = tl.load(value + here[:, None] * value_row + feature, mask=inside, other=0.0)
            scores = tl.dot(asked, tl.trans(known), input_precision=EXACT) * (scale * LOG2E)
            seen = _seen(row[:, None], here[None, :], keys, shift, left, right, LIMITED)
            share = tl.exp2(tl.where(seen, scores - level[:, None], float("-inf")))
            pulled = tl.dot(pull, tl.trans(held), input_precision=EXACT)
            if DROP:
                kept = _kept(seed, (place + row)[:, None], here[None, :], longest, limit)
                pulled = tl.where(kept, pulled * lift, 0.0)
            slope = (share * (pulled - middle[:, None])).to(known.dtype)
            query_slope += tl.dot(slope, known, input_precision=EXACT)
        cell = row[:, None] * query_slope_row + feature
        tl.store(query_slopes + cell, (query_slope * scale).to(query_slopes.dtype.element_ty), mask=present[:, None])

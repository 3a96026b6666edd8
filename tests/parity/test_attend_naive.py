"""`attend` against attention written as three loops over numbers."""

import math
from itertools import product

import pytest
import torch

from headway.nn.attention import Visible, attend
from headway.nn.positions import AlibiPositions, RelativePositions
from headway.sequences import Sequences

HEADS, WIDTH = 2, 3
LENGTHS = [4, 1, 6]
BIASES = ["none", "alibi", "relative"]
CONDITIONS = list(product([False, True], [False, True], [None, 0, 2], BIASES))


def positions(kind):
    torch.manual_seed(3)
    if kind == "alibi":
        return AlibiPositions(HEADS)
    return RelativePositions(WIDTH, furthest=2).double() if kind == "relative" else None


def added(kind, source, query, distance, head):
    """What the position kind adds to one score, written from the papers' formulas."""
    if kind == "alibi":
        return -(2.0 ** (-8.0 * (head + 1) / HEADS)) * abs(distance)
    if kind == "relative":
        vector = source.table[max(-2, min(2, distance)) + 2].tolist()
        return sum(a * b for a, b in zip(query, vector, strict=True)) / math.sqrt(WIDTH)
    return 0.0


def naive(query, key, value, sees, kind):
    """Equation 1 over lists of numbers: outputs and weights, zeros where a query sees nothing."""
    sentences, queries, keys = len(query), query.shape[1], key.shape[1]
    output = torch.zeros(sentences, queries, HEADS, WIDTH, dtype=torch.float64)
    weights = torch.zeros(sentences, HEADS, queries, keys, dtype=torch.float64)
    source, shift = positions(kind), keys - queries
    for b, h, i in product(range(sentences), range(HEADS), range(queries)):
        q = query[b, i, h].tolist()
        scores = {
            j: sum(x * y for x, y in zip(q, key[b, j, h].tolist(), strict=True)) / math.sqrt(WIDTH)
            + added(kind, source, q, j - i - shift, h)
            for j in range(keys)
            if sees(b, i + shift, j)
        }
        total = sum(math.exp(score) for score in scores.values())
        for j, score in scores.items():
            weights[b, h, i, j] = math.exp(score) / total
            for feature in range(WIDTH):
                output[b, i, h, feature] += math.exp(score) / total * value[b, j, h, feature].item()
    return output, weights


def inputs(queries, keys):
    generator = torch.Generator().manual_seed(5)
    shapes = [(len(LENGTHS), time, HEADS, WIDTH) for time in (queries, keys, keys)]
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


def rule(padding, causal, window):
    def sees(b, place, j):
        if padding and j >= LENGTHS[b]:
            return False
        if causal and j > place:
            return False
        return window is None or abs(j - place) <= window

    return sees


@pytest.mark.parametrize(("padding", "causal", "window", "kind"), CONDITIONS)
@pytest.mark.parametrize("queries", [6, 4, 8])
def test_attend_equals_three_loops_for_every_visibility_and_bias(padding, causal, window, kind, queries):
    query, key, value = inputs(queries, max(LENGTHS))
    present = Sequences.pad([[7] * length for length in LENGTHS], 0).present if padding else None
    visible = Visible(keys=present, causal=causal, window=window)
    source = positions(kind)
    bias = None if source is None else source.bias
    expected, expected_weights = naive(query, key, value, rule(padding, causal, window), kind)
    fused = attend(query, key, value, visible, bias)
    assert fused.weights is None
    torch.testing.assert_close(fused.output, expected, rtol=1e-6, atol=1e-7)
    explicit = attend(query, key, value, visible, bias, need_weights=True)
    torch.testing.assert_close(explicit.output, expected, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(explicit.weights, expected_weights, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("causal", "window", "kind"), list(product([False, True], [None, 0, 2], BIASES)))
@pytest.mark.parametrize("need_weights", [False, True])
def test_packed_attend_equals_three_loops_sentence_by_sentence(causal, window, kind, need_weights):
    query, key, value = inputs(max(LENGTHS), max(LENGTHS))
    sentences = Sequences.pack([[7] * length for length in LENGTHS])
    packed = [torch.cat([x[b, :length] for b, length in enumerate(LENGTHS)]) for x in (query, key, value)]
    visible = Visible.between(sentences, sentences, causal=causal, window=window)
    source = positions(kind)
    got = attend(*packed, visible, None if source is None else source.bias, need_weights=need_weights)
    expected, weights = naive(query, key, value, rule(True, causal, window), kind)
    wanted = torch.cat([expected[b, :length] for b, length in enumerate(LENGTHS)])
    torch.testing.assert_close(got.output, wanted, rtol=1e-6, atol=1e-7)
    if need_weights:
        for b, length in enumerate(LENGTHS):
            torch.testing.assert_close(got.weights[b, :, :length], weights[b, :, :length], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("need_weights", [False, True])
def test_packed_queries_see_the_keys_of_their_own_sentence_alone_when_the_sides_differ_in_length(need_weights):
    seen = [3, 5, 1]
    query, key, value = inputs(max(LENGTHS), max(seen))
    sides = [Sequences.pack([[7] * length for length in lengths]) for lengths in (LENGTHS, seen)]
    packed = [
        torch.cat([x[b, :length] for b, length in enumerate(lengths)])
        for x, lengths in ((query, LENGTHS), (key, seen), (value, seen))
    ]
    got = attend(*packed, Visible.between(*sides), need_weights=need_weights)
    expected, _ = naive(query, key, value, lambda b, _, j: j < seen[b], "none")
    wanted = torch.cat([expected[b, :length] for b, length in enumerate(LENGTHS)])
    torch.testing.assert_close(got.output, wanted, rtol=1e-6, atol=1e-7)

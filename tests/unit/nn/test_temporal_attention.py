"""Attention over the states of a source, whole and in windows, against plain loops."""

import math

import pytest
import torch

from headway.nn.attention.local import Monotonic, Predictive, window_of
from headway.nn.attention.scores import score_of
from headway.nn.attention.temporal import FixedContext, TemporalAttention
from headway.sequences import Sequences

DIM, SIZE = 4, 2
LENGTHS = (7, 1, 4)
SOURCE = Sequences.pad([[5] * length for length in LENGTHS], 0)


def made(window):
    torch.manual_seed(3)
    attention = TemporalAttention(
        score_of("multiplicative", query_dim=DIM, key_dim=DIM, hidden=1), window_of(window, size=SIZE, dim=DIM)
    )
    if isinstance(attention.window, Predictive):
        torch.nn.init.normal_(attention.window.inner.bias)
        torch.nn.init.normal_(attention.window.place.weight, std=3.0)
    return attention


def naive(attention, query, states, position):
    """The weights of one query over the states of one sentence without padding."""
    window, length = attention.window, len(states)
    centre, factors = None, [1.0] * length
    if isinstance(window, Monotonic):
        centre = min(position, length - 1)
    elif isinstance(window, Predictive):
        inner = torch.tanh(window.inner.weight @ query + window.inner.bias)
        centre = length / (1.0 + math.exp(-float(window.place.weight[0] @ inner)))
        deviation = SIZE / 2
        factors = [math.exp(-((place - centre) ** 2) / (2 * deviation**2)) for place in range(length)]
    seen = [place for place in range(length) if centre is None or abs(place - centre) <= SIZE]
    raised = {place: math.exp(float(query @ (attention.score.key.weight @ states[place]))) for place in seen}
    total = sum(raised.values())
    return [raised.get(place, 0.0) / total * factors[place] for place in range(length)]


@torch.no_grad()
@pytest.mark.parametrize("window", ["all", "local-m", "local-p"])
def test_weights_and_contexts_are_those_of_the_formula(window):
    attention = made(window)
    queries, states = torch.randn(3, 9, DIM), torch.randn(3, 7, DIM)
    context, weights = attention(queries, attention.remember(states, SOURCE), torch.arange(9))
    for sentence, length in enumerate(LENGTHS):
        assert bool((weights[sentence, :, length:] == 0).all())
        for position in range(9):
            own = states[sentence, :length]
            wanted = torch.tensor(naive(attention, queries[sentence, position], own, position))
            torch.testing.assert_close(weights[sentence, position, :length], wanted)
            torch.testing.assert_close(context[sentence, position], wanted @ own)


@pytest.mark.parametrize("window", ["all", "local-m", "local-p"])
def test_one_query_at_a_time_finds_what_all_at_once_find(window):
    attention = made(window)
    queries, memory = torch.randn(3, 9, DIM), attention.remember(torch.randn(3, 7, DIM), SOURCE)
    whole = attention(queries, memory, torch.arange(9))
    for position in range(9):
        context, weights = attention(queries[:, position : position + 1], memory, torch.tensor([position]))
        torch.testing.assert_close(context, whole.context[:, position : position + 1])
        torch.testing.assert_close(weights, whole.weights[:, position : position + 1])


def test_a_window_that_moves_on_stays_at_the_end_of_a_short_source():
    outside, factor = Monotonic(1)(torch.zeros(1, 5, DIM), torch.arange(5), torch.tensor([3]), 4)
    assert factor is None
    assert (~outside[0]).int().tolist() == [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 1, 1, 1], [0, 1, 1, 1]]


@torch.no_grad()
def test_predicted_places_lie_within_their_own_sentence():
    window = made("local-p").window
    centre = window.centre(torch.randn(3, 200, DIM) * 9, SOURCE.lengths)
    assert bool((centre >= 0).all())
    assert bool((centre <= SOURCE.lengths[:, None]).all())
    assert float(centre.std()) > 0.1


def test_a_memory_keeps_the_chosen_sentences_in_their_order():
    attention = made("local-p")
    memory, chosen = attention.remember(torch.randn(3, 7, DIM), SOURCE), torch.tensor([2, 0])
    queries = torch.randn(3, 1, DIM)
    kept = attention(queries[chosen], memory.keep(chosen), torch.tensor([1]))
    torch.testing.assert_close(kept.context, attention(queries, memory, torch.tensor([1])).context[chosen])


def test_a_fixed_context_is_the_same_for_every_query():
    summary = torch.randn(3, DIM)
    found = FixedContext()(torch.randn(3, 2, DIM), FixedContext().remember(summary, SOURCE), torch.arange(2))
    assert found.weights is None
    assert torch.equal(found.context, summary[:, None].expand(3, 2, DIM))

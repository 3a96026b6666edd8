"""What is measured, and what is made of it."""

import time

import numpy as np
import pytest
import torch

from headway.data.plan import Plan
from headway.forecast.measurement import CHOSEN, Script, kept_tensors, repeated, scripted, spread, typical
from headway.models.transformer import Transformer, TransformerConfig
from headway.search import DecodingConfig, Request, Symbols, decode
from headway.sequences import Sequences

CONFIG = TransformerConfig(dim=16, heads=2, hidden=24, encoder_layers=1, decoder_layers=1, dropout=0.0, longest=64)


def test_the_chosen_batches_stand_for_all_and_so_do_the_first_of_them():
    costs = np.random.default_rng(1).lognormal(size=500)
    chosen = spread(costs)
    assert len(set(chosen)) == CHOSEN
    ranks = np.argsort(np.argsort(costs))[chosen] / len(costs)
    assert ranks.min() < 0.05
    assert ranks.max() > 0.95
    for some in (4, 8, 16):
        assert ranks[:some].mean() == pytest.approx(0.5, abs=0.13)
        assert np.ptp(ranks[:some]) > 0.7


@pytest.mark.parametrize("count", [1, 2, 3, 15])
def test_of_few_batches_all_are_chosen(count):
    assert sorted(spread(np.arange(float(count)))) == list(range(count))


def test_a_plan_of_repeated_batches_has_their_pairs():
    plan = Plan(np.array([4, 2, 0, 1, 3]), np.array([0, 2, 3, 5]), "packed", 100)
    again = repeated(plan, [2, 0, 2])
    assert [again[place].tolist() for place in range(len(again))] == [[1, 3], [4, 2], [1, 3]]


def test_seconds_follow_a_line_through_what_was_measured():
    costs = np.array([1.0, 2.0, 3.0, 4.0])
    assert typical(0.5 + 0.1 * costs, costs, 10.0) == pytest.approx(1.5)


def test_a_moment_in_which_the_machine_was_busy_does_not_count():
    costs = np.linspace(1.0, 4.0, 12)
    times = 0.5 + 0.1 * costs
    times[[2, 5, 9]] *= 4.0
    assert typical(times, costs, 2.5) == pytest.approx(0.75, rel=0.1)
    assert times.mean() > 1.2


def test_dearer_is_never_cheaper_nor_dearer_than_in_proportion():
    costs = np.array([1.0, 2.0, 3.0])
    assert typical(np.array([3.0, 2.0, 1.0]), costs, 100.0) == 2.0
    assert typical(np.array([0.0, 2.0, 4.0]), costs, 4.0) == pytest.approx(4.0)


def test_kept_bytes_are_those_of_activations_each_storage_once_and_no_weights():
    model = Transformer(CONFIG, 30, 30)
    weight = model.encoder.layers[0].feedforward.inner.weight
    x = torch.ones(10, 16, requires_grad=True)
    with kept_tensors(model) as kept:
        hidden = torch.nn.functional.linear(x, weight)  # keeps x, and a weight of the model
        (hidden * hidden.t().contiguous().t() * hidden).sum().backward()  # hidden, its copy, and their product
    assert kept.bytes == 4 * (10 * 16 + 3 * 10 * 24)


def outputs(ratio, until):
    model = Transformer(CONFIG, 30, 30).eval()
    script = Script(end=2, ratio=ratio, until=until)
    told = scripted(model, script)
    source = Sequences.pad([[5] * 4, [6] * 10, [7] * 7], 0)
    config = DecodingConfig(beam=1, limit_ratio=5.0)
    with torch.no_grad():
        state = told.start(told.encode(source))
        requests = [Request((5,) * 3), Request((6,) * 9), Request((7,) * 6)]
        found = decode(told, state, requests, config, Symbols(1, 2, (0, 1)))
    return [len(each[0].tokens) for each in found], script.written


def test_a_scripted_model_writes_as_much_as_it_is_told():
    lengths, written = outputs(2.0, time.monotonic() + 3600)
    assert lengths == [7, 19, 13]  # and their end symbols
    assert written == 8 + 20 + 14


def test_a_scripted_model_ends_when_its_time_is_over():
    lengths, written = outputs(2.0, time.monotonic() - 1)
    assert lengths == [0, 0, 0]
    assert written == 3

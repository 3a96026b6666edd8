from collections import Counter

import numpy as np
import pytest
import torch
from tables import END, START, SYMBOLS, A, B, C, Noise, Tables, search

from headway.search import Request, decode
from headway.search.config import DecodingConfig
from headway.search.sampling import _mixed, drawn, uniform

DRAWS = 20_480
PROBABILITIES = np.array([0.4, 0.25, 0.15, 0.1, 0.06, 0.04])
# Surprises are 0.92, 1.39, 1.90, 2.30, 2.81 and 3.22, 1.54 expected: the nearest are 1, 2, 0 and then 3.
EXPECTED = {
    "temperature": ({"temperature": 0.5}, PROBABILITIES**2),
    "high temperature": ({"temperature": 2.0}, PROBABILITIES**0.5),
    "top_k": ({"top_k": 2}, PROBABILITIES * [1, 1, 0, 0, 0, 0]),
    "top_p": ({"top_p": 0.7}, PROBABILITIES * [1, 1, 1, 0, 0, 0]),
    "top_p that the first token has": ({"top_p": 0.39}, PROBABILITIES * [1, 0, 0, 0, 0, 0]),
    "typical": ({"typical": 0.35}, PROBABILITIES * [0, 1, 1, 0, 0, 0]),
    "typical with more mass": ({"typical": 0.75}, PROBABILITIES * [1, 1, 1, 0, 0, 0]),
    "all": ({}, PROBABILITIES),
    "top_k and top_p": ({"top_k": 3, "top_p": 0.6}, PROBABILITIES * [1, 1, 0, 0, 0, 0]),
}


@pytest.mark.parametrize("case", EXPECTED)
def test_tokens_are_drawn_as_often_as_the_settings_say(case):
    options, expected = EXPECTED[case]
    expected = expected / expected.sum()
    shuffled = [4, 2, 0, 5, 1, 3]  # ids are not in the order of probability
    merits = torch.from_numpy(PROBABILITIES[shuffled]).log().float().expand(DRAWS // 64, 64, -1)
    numbers = torch.from_numpy(uniform(np.arange(DRAWS // 64, dtype=np.uint64), 64, 5))
    tokens = drawn(merits, numbers, DecodingConfig(sample=True, **options))
    counts = np.bincount(np.array(shuffled)[tokens.flatten().numpy()], minlength=6)
    assert counts[expected == 0].sum() == 0
    there = expected > 0
    chi_square = ((counts - DRAWS * expected)[there] ** 2 / (DRAWS * expected[there])).sum()
    assert chi_square < 20.5  # the 0.999 quantile for five degrees of freedom


def test_sampled_outputs_are_as_frequent_as_they_are_likely():
    tree = {(): {A: 0.7, B: 0.3}, (A,): {END: 0.5, C: 0.5}, (B,): {END: 0.2, A: 0.8}}
    expected = {(A,): 0.35, (A, C): 0.35, (B,): 0.06, (B, A): 0.24}
    found = search(*[tree] * 20, requests=[{"seed": seed} for seed in range(20)], sample=True, nbest=1024)
    counts = Counter(h.tokens for each in found for h in each)
    total = 20 * 1024
    assert counts.total() == total
    assert sum((counts[each] - total * p) ** 2 / (total * p) for each, p in expected.items()) < 16.3  # three degrees
    for hypothesis in found[0]:
        assert hypothesis.log_probability == pytest.approx(np.log(expected[hypothesis.tokens]))
        assert hypothesis.finished


def test_the_numbers_are_those_of_splitmix64():
    """The first outputs from seed 1234567, as the reference implementation gives them."""
    golden = 0x9E3779B97F4A7C15
    state = np.array([[1234567, 1234567 + golden]], dtype=np.uint64)
    assert _mixed(state).tolist() == [[6457827717110365317, 3203168211198807973]]


def test_the_numbers_are_uniform_and_unlike_from_step_to_step_and_row_to_row():
    numbers = np.stack([uniform(np.arange(64, 128, dtype=np.uint64), 32, step) for step in range(16)])
    assert len(np.unique(numbers)) == numbers.size
    assert numbers.min() >= 0 and numbers.max() < 1
    counts = np.histogram(numbers, 20, (0, 1))[0]
    assert ((counts - numbers.size / 20) ** 2 / (numbers.size / 20)).sum() < 43.8  # 0.999 for 19 degrees of freedom
    for one, two in (
        (numbers[1:], numbers[:-1]),
        (numbers[:, 1:], numbers[:, :-1]),
        (numbers[..., 1:], numbers[..., :-1]),
    ):
        assert abs(np.corrcoef(one.ravel(), two.ravel())[0, 1]) < 0.02


def sampled(order, seeds, **options):
    config = DecodingConfig(sample=True, limit_ratio=1.0, limit_extra=0, **{"nbest": 5, **options})
    requests = [Request((7,) * (3 + sentence), seed=seeds[sentence]) for sentence in order]
    noise = Noise(6, vocabulary=12, seed=7, sharpness=1.0)
    return decode(noise, noise.begin(order), requests, config, SYMBOLS)


def test_samples_of_a_sentence_do_not_depend_on_the_others_or_on_their_order():
    seeds = [11, 12, 13, 14, 15, 16]
    together = sampled(range(6), seeds)
    assert sampled([4, 2, 5, 0, 3, 1], seeds) == [together[sentence] for sentence in [4, 2, 5, 0, 3, 1]]
    for sentence in range(6):
        assert sampled([sentence], seeds) == [together[sentence]]


def test_the_seed_chooses_the_samples_and_more_samples_hold_the_fewer():
    assert sampled([5], [0] * 6) == sampled([5], [0] * 6)
    texts = [{h.tokens for h in sampled([5], [seed] * 6)[0]} for seed in range(8)]
    assert len({frozenset(each) for each in texts}) == 8
    many = Counter(h.tokens for h in sampled([5], [0] * 6, nbest=9)[0])
    assert Counter(h.tokens for h in sampled([5], [0] * 6)[0]) <= many


def test_equal_samples_are_all_returned_and_come_best_first():
    (found,) = search({(): {A: 0.9, B: 0.1}}, sample=True, nbest=200)
    assert len(found) == 200
    assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
    assert {h.tokens for h in found} == {(A,), (B,)}


def test_samples_respect_limits_rules_and_dead_ends():
    endless = {(A,) * length: {A: 1.0} for length in range(9)}
    dead = {(): {A: 1.0}, (A,): {A: 0.0}}
    loop = {(A,) * length: {A: 0.98, B: 0.02} for length in range(9)}
    found = search(endless, dead, loop, limits=[3, 4, 4], sample=True, nbest=3, no_repeat=2, requests=[{}, {}, {}])
    assert {(h.tokens, h.finished) for h in found[0]} == {((A, A), False)}  # a third A would be the second A A
    assert {(h.tokens, h.finished) for h in found[1]} == {((A,), False)}
    found = search(endless, limits=[3], sample=True, nbest=3)
    assert {(h.tokens, h.finished) for h in found[0]} == {((A, A, A), False)}
    found = search(loop, limits=[3], sample=True, nbest=30, requests=[{"prefix": (B,)}])
    assert {h.tokens for h in found[0]} == {(B,)}


def test_a_sample_cut_at_its_limit_is_no_better_than_one_that_ended():
    tree = {(): {A: 0.5, B: 0.5}, (A,): {A: 0.9, END: 0.1}, (B,): {END: 1.0}}
    (found,) = search(tree, limits=[1], sample=True, nbest=50)
    assert [h.finished for h in found] == sorted((h.finished for h in found), reverse=True)
    assert {(h.tokens, h.finished) for h in found} >= {((A,), False), ((B,), True)}


def test_greedy_is_the_limit_of_a_low_temperature():
    tree = {(): {A: 0.6, B: 0.4}, (A,): {A: 0.5, B: 0.3, C: 0.2}}
    (found,) = search(tree, sample=True, nbest=20, temperature=0.01)
    assert {h.tokens for h in found} == {search(tree, beam=1)[0][0].tokens}


def test_the_tables_hand_out_copies():
    stepper = Tables({(): {A: 1.0}})
    first, _ = stepper.step(torch.tensor([[START]]), None, stepper.begin())
    first.zero_()
    again, _ = stepper.step(torch.tensor([[START]]), None, stepper.begin())
    assert again[0, 0, A] == 0 and again[0, 0, SYMBOLS.start] == -torch.inf

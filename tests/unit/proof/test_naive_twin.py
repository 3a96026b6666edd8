"""The naive twin of the search, against the search itself over a model that is a table, and against plain sense."""

import itertools
import math
import random
from functools import cache

import pytest
import torch

from headway.proof import naive
from headway.search import DecodingConfig, Request, Scoring, Symbols, decode

VOCABULARY, START, END = 7, 0, 1
SYMBOLS = Symbols(START, END, forbidden=(START,))


@cache
def table(seed, prefix):
    """The log-probabilities after a prefix, in single precision; whatever a real model might give."""
    draw = random.Random(f"{seed} {prefix}")
    values = torch.tensor([draw.choice([0.0, 1.0, 2.0]) + draw.random() for _ in range(VOCABULARY)]).log_softmax(-1)
    values[START] = -math.inf
    return values


class Table:
    """The table as a model: its memory is the outputs themselves."""

    def __init__(self, seed):
        self.seed = seed

    def step(self, tokens, parents, state):
        parents = torch.zeros_like(tokens) if parents is None else parents
        rows = [
            [(*past[parent], token) for parent, token in zip(own, new, strict=True)]
            for past, own, new in zip(state, parents.tolist(), tokens.tolist(), strict=True)
        ]
        values = [torch.stack([table((self.seed, place), row[1:]) for row in each]) for place, each in enumerate(rows)]
        return torch.stack(values), rows

    def keep(self, state, sentences):
        raise NotImplementedError  # one sentence at a time


def predict(seed):
    return lambda outputs: [table((seed, 0), tuple(output)).tolist() for output in outputs]


@pytest.mark.parametrize("beam", [1, 2, 3, 5])
@pytest.mark.parametrize("limit", [0, 1, 4, 9])
@pytest.mark.parametrize("penalty", [0.0, 0.6, 2.0])
def test_the_twin_finds_exactly_what_the_search_finds(beam, limit, penalty):
    for seed, nbest in itertools.product(range(3), {1, beam}):
        config = DecodingConfig(beam=beam, nbest=nbest, length_penalty=penalty, limit_ratio=0.0, limit_extra=limit)
        (wanted,) = decode(Table(seed), [[()]], [Request((3,))], config, SYMBOLS)
        found = naive.beam_search(predict(seed), END, limit, config)
        assert [each.tokens for each in found.hypotheses] == [each.tokens for each in wanted]
        assert [each.finished for each in found.hypotheses] == [each.finished for each in wanted]
        assert [each.score for each in found.hypotheses] == pytest.approx([each.score for each in wanted], rel=1e-12)
        assert found.hypotheses[0].token_log_probabilities == wanted[0].token_log_probabilities


def test_a_wide_beam_finds_the_best_of_all_outputs():
    def score(tokens):
        parts = [table((3, 0), tokens[:place])[token].item() for place, token in enumerate(tokens)]
        return sum(parts) / Scoring(0.6).penalty(len(tokens))

    written = range(2, VOCABULARY)
    every = [(*tokens, END) for length in range(4) for tokens in itertools.product(written, repeat=length)]
    config = DecodingConfig(beam=64, nbest=1)
    found = naive.beam_search(predict(3), END, 3, config).hypotheses[0]
    assert (*found.tokens, END) == max(every, key=score)


@pytest.mark.parametrize("seed", range(10))
def test_greedy_is_a_beam_of_one(seed):
    config = DecodingConfig(beam=1)
    (wanted,) = naive.beam_search(predict(seed), END, 6, config).hypotheses
    answer = naive.greedy(predict(seed), END, 6, Scoring(0.6))
    assert answer.hypotheses == [wanted]
    row = list(wanted.tokens) + [END] * wanted.finished
    gaps = [torch.tensor(predict(seed)([row[:place]])[0]).topk(2).values for place in range(len(row))]
    assert answer.margin <= min(float(first - second) for first, second in gaps) + 1e-6


def test_the_margin_is_the_narrowest_choice():
    """Two outputs a hair apart, where only the first is wanted."""
    values = {(): [-math.inf, -9.0, -1.0, -1.00001], (2,): [-math.inf, -0.1, -5.0, -5.0]}
    answer = naive.beam_search(
        lambda outputs: [values.get(tuple(output), values[(2,)]) for output in outputs], END, 3, DecodingConfig(beam=1)
    )
    assert answer.hypotheses[0].tokens == (2,)
    assert answer.margin == pytest.approx(1e-5)


def test_of_equal_tokens_the_lower_is_likelier():
    assert naive.likeliest([0.5, 2.0, 2.0, 1.0, 2.0], 2) == [1, 2]
    assert naive.likeliest([1.0, 2.0], 5) == [1, 0]

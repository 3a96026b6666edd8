import pytest
import torch

from headway.config import validated
from headway.errors import ConfigError
from headway.search import DecodingConfig, beam_search, decode, greedy


class Markov:
    """The next token depends on the newest one alone; the state is empty."""

    def __init__(self, table):
        self.table = table

    def step(self, tokens, state):
        return self.table[tokens], state

    def select(self, state, rows):
        return state


@pytest.mark.parametrize(("length", "limit"), [(0, 20), (1, 22), (7, 34), (500, 256)])
def test_the_limit_follows_the_source_up_to_the_longest(length, limit):
    assert DecodingConfig().limit(length) == limit


@pytest.mark.parametrize(
    "wrong",
    [
        {"beam": 0},
        {"beam": 65},
        {"beam": 2, "nbest": 3},
        {"nbest": 0},
        {"length_penalty": float("nan")},
        {"length_penalty": -0.1},
        {"limit_ratio": float("inf")},
        {"longest": 0},
        {"limit_extra": -1},
    ],
)
def test_settings_that_cannot_work_are_refused(wrong):
    with pytest.raises(ConfigError):
        validated(DecodingConfig, wrong, "recipe")


def test_decode_is_greedy_for_a_beam_of_one_and_beam_search_otherwise():
    scores = torch.randn(12, 12, generator=torch.Generator().manual_seed(1))
    table = (scores + torch.eye(12)[1]).log_softmax(1)
    symbols = {"start": 0, "end": 1, "forbidden": (0,)}
    config = DecodingConfig(beam=1, longest=9, length_penalty=0.3)
    expected = greedy(Markov(table), None, limits=[9, 9], length_penalty=0.3, **symbols)
    assert decode(Markov(table), None, config, source_lengths=[3, 4], **symbols) == [[h] for h in expected]
    config = DecodingConfig(beam=3, nbest=2, longest=9)
    wide = beam_search(Markov(table), None, beam=3, nbest=2, length_penalty=0.6, limits=[9, 9], **symbols)
    assert decode(Markov(table), None, config, source_lengths=[3, 4], **symbols) == wide
    assert len(wide[0]) == 2

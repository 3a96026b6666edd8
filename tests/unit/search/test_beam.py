"""Searches over small probability trees whose answers are computed by hand."""

from itertools import product
from math import log

import pytest
import torch

from headway.errors import ConfigError, HeadwayError
from headway.search import beam_search, greedy

START, END, A, B, C = range(5)
SYMBOLS = {"start": START, "end": END, "forbidden": (START,)}
END_ONLY = {END: 1.0}


class TreeStepper:
    """Next-token probabilities by prefix, which is the state of a row; a prefix without an entry can only end."""

    def __init__(self, *trees):
        self.trees = trees
        self.rows_stepped = []

    def begin(self):
        return [(sentence, ()) for sentence in range(len(self.trees))]

    def step(self, tokens, state):
        self.rows_stepped.append(len(tokens))
        state = [(s, (*prefix, token)) for (s, prefix), token in zip(state, tokens.tolist(), strict=True)]
        table = torch.full((len(state), 5), -torch.inf)
        for row, (sentence, prefix) in enumerate(state):
            assert prefix[0] == START
            for token, probability in self.trees[sentence].get(prefix[1:], END_ONLY).items():
                table[row, token] = log(probability) if probability else -torch.inf
        return table, state

    def select(self, state, rows):
        return [state[row] for row in rows.tolist()]


def search(*trees, beam, limits=None, **options):
    stepper = TreeStepper(*trees)
    return beam_search(stepper, stepper.begin(), beam=beam, limits=limits or [4] * len(trees), **SYMBOLS, **options)


def search_greedily(*trees, limits=None):
    stepper = TreeStepper(*trees)
    return greedy(stepper, stepper.begin(), limits=limits or [4] * len(trees), **SYMBOLS)


# Greedy follows A (0.6), then can do no better than 0.6 * 0.5; B C is 0.4 * 0.9 * 1.0.
GARDEN_PATH = {
    (): {A: 0.6, B: 0.4},
    (A,): {A: 0.5, B: 0.3, C: 0.2},
    (B,): {C: 0.9, A: 0.1},
    (A, A): {END: 0.4, A: 0.6},
    (A, A, A): {END: 0.7, B: 0.3},
    (B, C): {END: 1.0},
}


def test_a_beam_of_two_finds_what_greedy_misses():
    (greedily,) = search_greedily(GARDEN_PATH)
    assert greedily.tokens == (A, A, A)
    assert greedily.log_probability == pytest.approx(log(0.6 * 0.5 * 0.6 * 0.7))
    ((best,),) = search(GARDEN_PATH, beam=2)
    assert best.tokens == (B, C)
    assert best.finished
    assert best.log_probability == pytest.approx(log(0.4 * 0.9))
    assert best.token_log_probabilities == pytest.approx((log(0.4), log(0.9), 0.0))


SHORT_OR_LONG = {(): {A: 0.5, B: 0.5}, (A,): {END: 0.5, C: 0.5}, (B,): {C: 0.45, A: 0.55}, (A, C): {B: 1.0}}
# A: 0.25 over 2 symbols; B C: 0.225, B A: 0.275 over 3; A C B: 0.25 over 4.


def test_the_length_penalty_flips_the_winner():
    tree = {(): {A: 0.5, B: 0.5}, (A,): {END: 0.8, C: 0.2}, (B,): {C: 0.75, A: 0.25}, (B, C): {A: 1.0}}
    ((short,),) = search(tree, beam=2)
    ((long,),) = search(tree, beam=2, length_penalty=1.0)
    assert short.tokens == (A,)
    assert short.score == short.log_probability == pytest.approx(log(0.4))
    assert long.tokens == (B, C, A)
    assert long.score == pytest.approx(log(0.375) / ((5 + 4) / 6))


def test_the_penalty_is_that_of_equation_14_with_the_end_symbol_counted():
    ((best,),) = search({(): {A: 0.5, B: 0.5}}, beam=2, length_penalty=0.6)
    assert best.score == pytest.approx(log(0.5) / ((5 + 2) / 6) ** 0.6)


def test_the_nbest_list_is_in_order_of_score_and_without_repetition():
    (found,) = search(SHORT_OR_LONG, beam=4, nbest=4)
    assert [h.tokens for h in found] == [(B, A), (A,), (A, C, B), (B, C)]
    assert [h.score for h in found] == pytest.approx([log(p) for p in (0.275, 0.25, 0.25, 0.225)])
    assert all(h.finished for h in found)


def every_sequence(tree, limit):
    """All finished sequences of at most `limit` tokens with their probabilities, by brute force."""
    for length in range(limit + 1):
        for tokens in product((A, B, C), repeat=length):
            probability = 1.0
            for place, token in enumerate((*tokens, END)):
                probability *= tree.get(tokens[:place], END_ONLY).get(token, 0.0)
            if probability:
                yield tokens, probability


@pytest.mark.parametrize("tree", [GARDEN_PATH, SHORT_OR_LONG])
@pytest.mark.parametrize("strength", [0.0, 0.6, 2.0])
def test_a_beam_as_wide_as_the_tree_enumerates_it(tree, strength):
    expected = [(log(p) / ((5 + len(t) + 1) / 6) ** strength, t) for t, p in every_sequence(tree, 4)]
    (found,) = search(tree, beam=64, nbest=64, length_penalty=strength)
    assert [h.score for h in found] == pytest.approx(sorted((score for score, _ in expected), reverse=True))
    assert {h.tokens for h in found} == {tokens for _, tokens in expected}


def test_a_sentence_stops_as_soon_as_nothing_live_can_win():
    tree = {(): {A: 0.9, B: 0.1}, (A,): {END: 0.9, A: 0.1}, (B,): {B: 1.0}, (B, B): {B: 1.0}, (B, B, B): {B: 1.0}}
    stepper = TreeStepper(tree)
    ((best,),) = beam_search(stepper, stepper.begin(), beam=2, limits=[50], **SYMBOLS)
    assert best.tokens == (A,)
    assert stepper.rows_stepped == [1, 2]


def test_the_stop_reckons_with_the_best_penalty_still_possible():
    # A is finished with 0.5; B B B B has 0.45 and wins only through its length: the search must wait for it.
    tree = {(): {A: 0.55, B: 0.45}, (A,): {END: 0.91, C: 0.09}, (B,): {B: 1.0}, (B, B): {B: 1.0}, (B, B, B): {B: 1.0}}
    ((best,),) = search(tree, beam=2, length_penalty=0.6)
    assert best.tokens == (B, B, B, B)


def test_finished_sentences_leave_the_rows():
    quick, slow = {(): {END: 1.0}}, {(): {A: 1.0}, (A,): {A: 1.0}, (A, A): {A: 1.0}}
    stepper = TreeStepper(quick, slow, quick)
    found = beam_search(stepper, stepper.begin(), beam=2, limits=[4, 4, 4], **SYMBOLS)
    assert [h.tokens for (h,) in found] == [(), (A, A, A), ()]
    assert stepper.rows_stepped == [3, 2, 2, 2]
    stepper = TreeStepper(quick, slow, quick)
    assert [h.tokens for h in greedy(stepper, stepper.begin(), limits=[4, 4, 4], **SYMBOLS)] == [(), (A, A, A), ()]
    assert stepper.rows_stepped == [3, 1, 1, 1]


ENDLESS = {(A,) * length: {A: 0.9, B: 0.1} for length in range(10)}


@pytest.mark.parametrize("beam", [1, 2])
def test_at_its_limit_a_hypothesis_is_closed_unfinished(beam):
    never_ends = {prefix: {A: 0.9, B: 0.1} for n in range(3) for prefix in product((A, B), repeat=n)}
    ((best,),) = search(never_ends, beam=beam, limits=[2])
    assert best.tokens == (A, A)
    assert not best.finished
    assert best.log_probability == pytest.approx(log(0.9 * 0.9))


def test_a_finished_hypothesis_is_preferred_to_a_likelier_unfinished_one():
    (found,) = search(ENDLESS, beam=2, nbest=2, limits=[3])
    assert [(h.tokens, h.finished) for h in found] == [((B,), True)]
    assert found[0].log_probability == pytest.approx(log(0.1))


def test_the_end_symbol_may_follow_the_last_allowed_token():
    ((best,),) = search({(): {A: 1.0}, (A,): {END: 1.0}}, beam=2, limits=[1])
    assert best.tokens == (A,)
    assert best.finished


@pytest.mark.parametrize(("tree", "finished"), [({(): {END: 0.6, A: 0.4}}, True), ({(): {A: 1.0}}, False)])
def test_a_limit_of_zero_gives_an_empty_output(tree, finished):
    ((best,),) = search(tree, beam=3, limits=[0])
    assert (best.tokens, best.finished) == ((), finished)
    (greedily,) = search_greedily(tree, limits=[0])
    assert greedily == best


def test_each_sentence_has_its_own_limit():
    found = search(ENDLESS, ENDLESS, ENDLESS, beam=1, limits=[1, 5, 0])
    assert [len(h.tokens) for (h,) in found] == [1, 5, 0]


def test_a_dead_end_gives_what_there_is_so_far():
    tree = {(): {A: 1.0}, (A,): {A: 0.0}}
    ((best,),) = search(tree, beam=2)
    assert (best.tokens, best.finished, best.log_probability) == ((A,), False, 0.0)
    assert search_greedily(tree) == [best]


def test_equal_probabilities_go_to_the_lower_token_id():
    tree = {(): {C: 0.25, B: 0.25, A: 0.25, END: 0.25}}
    (found,) = search(tree, beam=4, nbest=4)
    assert [h.tokens for h in found] == [(), (A,), (B,), (C,)]
    assert search_greedily({(): {C: 0.5, B: 0.5}})[0].tokens == (B,)


def test_equal_totals_go_to_the_better_parent():
    tree = {(): {B: 0.5, A: 0.25, END: 0.25}, (B,): {C: 0.5, A: 0.5}}
    (found,) = search(tree, beam=3, nbest=3)
    assert [h.tokens for h in found] == [(), (B, A), (B, C)]


def test_forbidden_tokens_are_never_generated():
    tree = {(): {START: 0.9, A: 0.1}}
    ((best,),) = search(tree, beam=2)
    assert best.tokens == (A,)
    assert search_greedily(tree)[0].tokens == (A,)


def test_a_vocabulary_smaller_than_the_beam_is_searched_whole():
    (found,) = search({(): {A: 0.75, END: 0.25}}, beam=50, nbest=50)
    assert [h.tokens for h in found] == [(A,), ()]


def test_no_sentences_give_no_answers():
    assert beam_search(TreeStepper(), [], beam=2, limits=[], **SYMBOLS) == []
    assert greedy(TreeStepper(), [], limits=[], **SYMBOLS) == []


@pytest.mark.parametrize("beam", [1, 3])
def test_a_probability_that_is_not_a_number_is_an_error(beam):
    with pytest.raises(HeadwayError, match="not a number"):
        search({(): {A: 0.5, B: float("nan")}}, beam=beam)
    with pytest.raises(HeadwayError, match="not a number"):
        search_greedily({(): {A: 0.5, B: float("nan")}})


@pytest.mark.parametrize("options", [{"beam": 2, "nbest": 3}, {"beam": 0}, {"beam": 2, "length_penalty": -1.0}])
def test_impossible_options_are_refused(options):
    with pytest.raises(ConfigError):
        search(GARDEN_PATH, **options)

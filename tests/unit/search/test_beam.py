"""Searches over small probability trees whose answers are computed by hand."""

from itertools import product
from math import log

import pytest
from tables import END, END_ONLY, START, A, B, C, Tables, search

from headway.errors import HeadwayError

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
    ((greedily,),) = search(GARDEN_PATH, beam=1)
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


def test_the_coverage_penalty_flips_the_winner():
    # A leaves log(0.1) unread when it ends, B nothing: 0.6 * 0.1 ** 0.5 is less than 0.4.
    stepper = Tables({(): {A: 0.6, B: 0.4}}, unread={(A,): log(0.1)})
    ((best,),) = search(stepper=stepper, beam=2, coverage_penalty=0.5, length_penalty=0.6)
    assert best.tokens == (B,)
    assert best.score == pytest.approx(log(0.4) / (7 / 6) ** 0.6)
    (found,) = search(stepper=stepper, beam=2, nbest=2, coverage_penalty=0.5, length_penalty=0.6)
    assert found[1].score == pytest.approx(log(0.6) / (7 / 6) ** 0.6 + 0.5 * log(0.1))
    assert search(stepper=stepper, beam=2)[0][0].tokens == (A,)


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
    stepper = Tables(tree)
    ((best,),) = search(stepper=stepper, beam=2, limits=[50])
    assert best.tokens == (A,)
    assert stepper.shapes == [(1, 1), (1, 2)]


def test_the_stop_reckons_with_the_best_penalty_still_possible():
    # A is finished with 0.5; B B B B has 0.45 and wins only through its length: the search must wait for it.
    tree = {(): {A: 0.55, B: 0.45}, (A,): {END: 0.91, C: 0.09}, (B,): {B: 1.0}, (B, B): {B: 1.0}, (B, B, B): {B: 1.0}}
    ((best,),) = search(tree, beam=2, length_penalty=0.6)
    assert best.tokens == (B, B, B, B)


def test_the_stop_reckons_with_likely_rows_that_a_rule_ranks_last():
    # B ends with 0.12; behind B C (0.09) stands A A, ranked as 0.7 * 0.4 ** 3 for its repetition, but of total 0.28.
    tree = {(): {A: 0.7, B: 0.3}, (A,): {A: 0.4}, (B,): {END: 0.4, C: 0.3}}
    (found,) = search(tree, beam=3, repetition=3.0)
    assert found[0].tokens == (A, A)
    assert found[0].log_probability == pytest.approx(log(0.28))


def test_finished_sentences_leave_the_batch():
    quick, slow = {(): {END: 1.0}}, {(): {A: 1.0}, (A,): {A: 1.0}, (A, A): {A: 1.0}}
    stepper = Tables(quick, slow, quick)
    assert [h.tokens for (h,) in search(stepper=stepper, beam=2)] == [(), (A, A, A), ()]
    assert stepper.shapes == [(3, 1), (1, 1), (1, 2), (1, 2)]


def test_a_few_finished_sentences_wait_until_they_are_many():
    def slow(steps):
        return {(A,) * length: {A: 1.0} for length in range(steps)}

    stepper = Tables(*(slow(steps) for steps in (0, 1, 2, 3, 4)))
    found = search(stepper=stepper, beam=1, limits=[9] * 5)
    assert [h.tokens for (h,) in found] == [(A,) * steps for steps in (0, 1, 2, 3, 4)]
    assert [sentences for sentences, _ in stepper.shapes] == [5, 5, 3, 2, 1]


ENDLESS = {(A,) * length: {A: 0.9, B: 0.1} for length in range(10)}


@pytest.mark.parametrize("beam", [1, 2])
def test_at_its_limit_a_hypothesis_is_closed_unfinished(beam):
    never_ends = {prefix: {A: 0.9, B: 0.1} for n in range(3) for prefix in product((A, B), repeat=n)}
    ((best,),) = search(never_ends, beam=beam, limits=[2])
    assert best.tokens == (A, A)
    assert not best.finished
    assert best.log_probability == pytest.approx(log(0.9 * 0.9))


def test_unfinished_hypotheses_are_all_returned_where_none_finished():
    never_ends = {prefix: {A: 0.9, B: 0.1} for n in range(3) for prefix in product((A, B), repeat=n)}
    (found,) = search(never_ends, beam=3, nbest=3, limits=[2])
    assert [h.tokens for h in found] == [(A, A), (A, B), (B, A)]
    assert not any(h.finished for h in found)


def test_a_finished_hypothesis_is_preferred_to_a_likelier_unfinished_one():
    (found,) = search(ENDLESS, beam=2, nbest=2, limits=[3])
    assert [(h.tokens, h.finished) for h in found] == [((B,), True)]
    assert found[0].log_probability == pytest.approx(log(0.1))


def test_a_hypothesis_that_ends_keeps_its_place():
    # The end (0.5) takes one of two places, so that A alone goes on and B, which would win, is lost.
    tree = {(): {END: 0.4, A: 0.35, B: 0.25}, (A,): {END: 0.1, A: 0.9}, (B,): {END: 1.0}, (A, A): {END: 0.1}}
    (found,) = search(tree, beam=2, nbest=2)
    assert [h.tokens for h in found] == [(), (A, A)]


def test_the_end_symbol_may_follow_the_last_allowed_token():
    ((best,),) = search({(): {A: 1.0}, (A,): {END: 1.0}}, beam=2, limits=[1])
    assert best.tokens == (A,)
    assert best.finished


@pytest.mark.parametrize(("tree", "finished"), [({(): {END: 0.6, A: 0.4}}, True), ({(): {A: 1.0}}, False)])
@pytest.mark.parametrize("beam", [1, 3])
def test_a_limit_of_zero_gives_an_empty_output(tree, finished, beam):
    ((best,),) = search(tree, beam=beam, limits=[0])
    assert (best.tokens, best.finished) == ((), finished)


def test_each_sentence_has_its_own_limit():
    found = search(ENDLESS, ENDLESS, ENDLESS, beam=1, limits=[1, 5, 0])
    assert [len(h.tokens) for (h,) in found] == [1, 5, 0]


@pytest.mark.parametrize("beam", [1, 2])
def test_a_dead_end_gives_what_there_is_so_far(beam):
    ((best,),) = search({(): {A: 1.0}, (A,): {A: 0.0}}, beam=beam)
    assert (best.tokens, best.finished, best.log_probability) == ((A,), False, 0.0)


def test_equal_probabilities_go_to_the_lower_token_id():
    (found,) = search({(): {C: 0.25, B: 0.25, A: 0.25, END: 0.25}}, beam=4, nbest=4)
    assert [h.tokens for h in found] == [(), (A,), (B,), (C,)]
    assert search({(): {C: 0.5, B: 0.5}}, beam=1)[0][0].tokens == (B,)


def test_equal_totals_go_to_the_better_parent():
    tree = {(): {B: 0.5, A: 0.25, END: 0.25}, (B,): {C: 0.5, A: 0.5}}
    (found,) = search(tree, beam=3, nbest=3)
    assert [h.tokens for h in found] == [(), (B, A), (B, C)]


@pytest.mark.parametrize("beam", [1, 2])
def test_forbidden_tokens_are_never_generated(beam):
    ((best,),) = search({(): {START: 0.9, A: 0.1}}, beam=beam)
    assert best.tokens == (A,)


def test_a_vocabulary_smaller_than_the_beam_is_searched_whole():
    (found,) = search({(): {A: 0.75, END: 0.25}}, beam=50, nbest=50)
    assert [h.tokens for h in found] == [(A,), ()]


def test_no_sentences_give_no_answers():
    assert search(stepper=Tables(), limits=None) == []


@pytest.mark.parametrize("options", [{"beam": 1}, {"beam": 3}, {"sample": True}])
def test_a_probability_that_is_not_a_number_is_an_error(options):
    not_a_number = dict.fromkeys(range(5), float("nan"))
    with pytest.raises(HeadwayError, match="not a number"):
        search({(): not_a_number}, **options)
    with pytest.raises(HeadwayError, match="not a number"):
        search(ENDLESS, {(): {A: 1.0}, (A,): not_a_number}, **options)

from math import log

import pytest
import torch
from tables import END, SYMBOLS, A, B, C, Tables, search, settings

from headway.search import Request
from headway.search.rules import NoRepeat, Prefix, Repetition, Rows, rules


def shaped(rule, *written):
    """The merits of a vocabulary of six, all -1 before, after a rule saw rows of one sentence."""
    merits = torch.full((1, len(written), 6), -1.0)
    rule(merits, Rows([0], torch.tensor([written]).long()))
    return merits[0].tolist()


def impossible(rule, *written):
    return [{token for token, merit in enumerate(row) if merit == -torch.inf} for row in shaped(rule, *written)]


PLAIN = [Request((7,))]


def test_no_repeat_forbids_what_followed_the_same_context():
    assert impossible(NoRepeat(2, PLAIN), [3, 4, 3], [3, 4, 5], [3, 3, 3]) == [{4}, set(), {3}]
    assert impossible(NoRepeat(3, PLAIN), [3, 4, 5, 3, 4], [3, 4, 5, 4, 4]) == [{5}, set()]
    assert impossible(NoRepeat(1, PLAIN), [3, 4, 3]) == [{3, 4}]
    assert impossible(NoRepeat(4, PLAIN), [3, 4]) == [set()]


def test_no_repeat_spares_the_tokens_of_required_phrases():
    assert impossible(NoRepeat(1, [Request((7,), required=((4, 5),))]), [3, 4, 3]) == [{3}]


def test_no_output_holds_the_same_tokens_twice():
    loop = {(A, B) * n + rest: {A: 0.1, B: 0.1, [A, B][len(rest)]: 0.8} for n in range(5) for rest in ((), (A,))}
    assert search(loop, beam=1, limits=[6])[0][0].tokens == (A, B) * 3
    ((best,),) = search(loop, beam=1, limits=[6], no_repeat=2)
    assert best.tokens[:4] == (A, B, A, A)
    assert best.log_probability == pytest.approx(3 * log(0.8) + log(0.1))


def test_repetition_multiplies_the_log_probabilities_of_what_is_written():
    assert shaped(Repetition(3.0), [4, 2, 4]) == [[-1.0, -1.0, -3.0, -1.0, -3.0, -1.0]]


def test_repetition_shapes_the_choice_and_never_the_score():
    tree = {(): {A: 1.0}, (A,): {A: 0.6, B: 0.4}, (A, A): {END: 1.0}, (A, B): {END: 1.0}}
    ((plain,),) = search(tree, beam=1)
    ((shy,),) = search(tree, beam=1, repetition=2.0)
    assert (plain.tokens, shy.tokens) == ((A, A), (A, B))
    assert shy.score == shy.log_probability == pytest.approx(log(0.4))
    assert shy.token_log_probabilities == pytest.approx((0.0, log(0.4), 0.0))
    (both,) = search(tree, beam=2, nbest=2, repetition=2.0)
    assert [(h.tokens, h.score) for h in both] == [
        ((A, A), pytest.approx(log(0.6))),
        ((A, B), pytest.approx(log(0.4))),
    ]


def test_an_output_begins_with_its_prefix_and_is_scored_with_it():
    tree = {(): {A: 0.9, B: 0.1}, (B,): {A: 0.7, C: 0.3}, (B, C): {A: 0.2, END: 0.8}}
    found = search(tree, tree, beam=2, requests=[{"prefix": (B, C)}, {}])
    assert [h.tokens for (h,) in found] == [(B, C), (A,)]
    assert found[0][0].log_probability == pytest.approx(log(0.1 * 0.3 * 0.8))


def test_a_prefix_wins_over_other_rules():
    tree = {(): {A: 1.0}, (A,): {A: 0.5, B: 0.5}, (A, A): {B: 0.5, A: 0.5}}
    ((best,),) = search(tree, beam=2, no_repeat=1, requests=[{"prefix": (A, A)}])
    assert best.tokens == (A, A, B)
    assert best.log_probability == pytest.approx(log(0.25))


def test_a_prefix_forbids_all_but_its_next_token():
    rule = Prefix([Request((7,), prefix=(3, 4))])
    assert impossible(rule, [3], [3]) == [{0, 1, 2, 3, 5}] * 2
    assert impossible(rule, [3, 4]) == [set()]


def test_no_output_is_shorter_than_the_shortest_but_where_its_limit_asks_for_it():
    tree = {(A,) * length: {END: 0.9, A: 0.1} for length in range(9)}
    lengths = [len(each[0].tokens) for each in search(tree, tree, limits=[4, 6], beam=2, shortest_ratio=0.5)]
    assert lengths == [2, 3]
    assert len(search(tree, limits=[3], beam=2, shortest_extra=9)[0][0].tokens) == 3
    assert search(tree, limits=[3], beam=2)[0][0].tokens == ()


def test_there_are_only_the_rules_that_are_asked_for():
    assert rules(PLAIN, settings(), SYMBOLS) == []
    asked = rules([Request((7,), prefix=(3,))], settings(repetition=2.0, no_repeat=3), SYMBOLS)
    assert [type(rule) for rule in asked] == [Repetition, NoRepeat, Prefix]


def test_groups_take_different_tokens_where_their_likelihood_allows():
    # Group one takes A; for group two A costs 0.5: log(0.6) - 0.5 = -1.01 is less than log(0.4) = -0.92.
    tree = {(): {A: 0.6, B: 0.4}}
    assert [h.tokens for h in search(tree, beam=2, groups=2, nbest=2)[0]] == [(A,), (B,)]
    assert [h.tokens for h in search(tree, beam=2, groups=2, nbest=2, diversity=0.4)[0]] == [(A,)]
    assert [h.tokens for h in search(tree, beam=2, groups=2, nbest=2, diversity=0.0)[0]] == [(A,)]
    (first, second) = search(tree, beam=2, groups=2, nbest=2)[0]
    assert (first.score, second.score) == (pytest.approx(log(0.6)), pytest.approx(log(0.4)))


def test_a_group_avoids_the_tokens_of_every_row_of_the_groups_before():
    # The first group holds A and B; for the second both cost 0.9, and C, which costs nothing, comes before them.
    tree = {(): {A: 0.45, B: 0.35, C: 0.2}, **{(token,): {token: 1.0} for token in (A, B, C)}}
    (found,) = search(tree, beam=4, groups=2, nbest=4, diversity=0.9, limits=[1])
    assert [h.tokens for h in found] == [(A,), (B,), (C,)]


def test_the_first_group_is_a_plain_beam():
    tree = {(): {A: 0.6, B: 0.4}, (A,): {A: 0.5, B: 0.5}, (B,): {C: 0.9, A: 0.1}, (B, C): {END: 1.0}}
    (wide,) = search(tree, beam=2, nbest=2)
    (grouped,) = search(tree, beam=6, groups=3, nbest=6, diversity=5.0)
    assert {h.tokens: h.score for h in wide}.items() <= {h.tokens: h.score for h in grouped}.items()


def test_rows_of_groups_stay_apart_while_groups_shrink():
    stepper = Tables({(): {A: 0.6, B: 0.4}, (A,): {END: 0.9, C: 0.1}, (B,): {C: 1.0}, (B, C): {A: 1.0}})
    (found,) = search(stepper=stepper, beam=4, groups=2, nbest=4, limits=[5])
    assert {h.tokens: h.log_probability for h in found} == {
        (A,): pytest.approx(log(0.54)),
        (B, C, A): pytest.approx(log(0.4)),
    }

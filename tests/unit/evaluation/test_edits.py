import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.evaluation import token_error_rate
from headway.evaluation.edits import distance

WORDS = st.text("abc", max_size=6)


def test_edits_are_counted_by_hand():
    assert distance("kitten", "sitting") == 3
    assert distance("", "abc") == 3


@given(WORDS, WORDS, WORDS)
def test_the_distance_is_a_metric(a, b, c):
    assert (distance(a, b) == 0) == (a == b)
    assert distance(a, b) == distance(b, a)
    assert distance(a, c) <= distance(a, b) + distance(b, c)


def test_tokens_are_divided_at_white_space_and_weighed_over_all_outputs():
    assert token_error_rate(["K AE T", "D AO"], ["K AE T", "D AO G Z"]) == pytest.approx(100 * 2 / 7)


def test_the_nearest_of_several_references_counts():
    assert token_error_rate(["AE B"], [["AA B K"], ["AE B"]]) == 0.0

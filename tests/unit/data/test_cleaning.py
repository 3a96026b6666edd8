from collections import Counter

import pytest
from pydantic import ValidationError

from headway.data.cleaning import CleaningConfig, clean
from headway.data.pairs import Pair


def cleaned(sides, **settings):
    counts: Counter[str] = Counter()
    pairs = [Pair(source, target, line) for line, (source, target) in enumerate(sides, start=1)]
    return list(clean(pairs, CleaningConfig(**settings), counts)), counts


def test_by_default_only_empty_pairs_are_left_out_and_counted():
    sides = [("a", "b"), ("a", "b"), ("", "b"), ("a", " \t\u3000"), ("x" * 5000, "y"), ("e\u0301", "e")]
    kept, counts = cleaned(sides)
    assert [pair.line for pair in kept] == [1, 2, 5, 6]
    assert kept[-1].source == "e\u0301"
    assert counts == {"empty": 2}


def test_empty_pairs_are_kept_on_demand():
    assert len(cleaned([("", ""), ("", "b")], drop_empty=False)[0]) == 2


@pytest.mark.parametrize(("side", "kept"), [("a b c", 1), ("a b c d", 0)])
def test_a_pair_with_more_words_than_allowed_on_either_side_is_left_out(side, kept):
    assert len(cleaned([(side, "a")], longest_words=3)[0]) == kept
    pairs, counts = cleaned([("a", side)], longest_words=3)
    assert len(pairs) == kept
    assert counts["too long"] == 1 - kept


@pytest.mark.parametrize(("side", "kept"), [("äöü", 1), ("äöüß", 0)])
def test_a_pair_with_more_characters_than_allowed_on_either_side_is_left_out(side, kept):
    pairs, counts = cleaned([(side, "a"), ("a", side)], longest_characters=3)
    assert len(pairs) == 2 * kept
    assert counts["too long"] == 2 - 2 * kept


def test_a_pair_more_unequal_than_allowed_is_left_out():
    kept, counts = cleaned([("aaaa", "bb"), ("bb", "aaaaa"), ("aaaaa", "bb")], longest_ratio=2.0)
    assert [pair.line for pair in kept] == [1]
    assert counts == {"ratio": 2}


def test_a_ratio_to_nothing_is_too_large_but_nothing_equals_nothing():
    kept, _ = cleaned([("", ""), ("a", "")], longest_ratio=100.0, drop_empty=False)
    assert [pair.line for pair in kept] == [1]


def test_of_equal_pairs_the_first_stays_where_duplicates_are_dropped():
    kept, counts = cleaned([("a", "b"), ("a", "c"), ("a", "b"), ("ab", ""), ("a", "b")], drop_duplicates=True)
    assert [pair.line for pair in kept] == [1, 2]
    assert counts == {"duplicate": 2, "empty": 1}


def test_composing_comes_before_everything_else():
    kept, counts = cleaned([("e\u0301", "x"), ("é", "x")], unicode="nfc", drop_duplicates=True, longest_characters=1)
    assert kept == [Pair("é", "x", 1)]
    assert counts == {"duplicate": 1}


def test_a_pair_is_counted_under_one_reason_only():
    sides = [("a b c d e", "a"), ("", "a" * 99), ("a" * 99, "b c d e")]
    _, counts = cleaned(sides, longest_words=3, longest_characters=50, longest_ratio=2.0, drop_duplicates=True)
    assert counts.total() == len(sides)


def test_pairs_are_handed_on_one_by_one():
    def endless():
        line = 0
        while True:
            line += 1
            yield Pair("a", "b", line)

    stream = clean(endless(), CleaningConfig(), Counter())
    assert [next(stream).line, next(stream).line] == [1, 2]


@pytest.mark.parametrize("settings", [{"longest_words": 0}, {"longest_ratio": 0.5}, {"unicode": "nfd"}, {"longest": 3}])
def test_settings_that_mean_nothing_are_refused(settings):
    with pytest.raises(ValidationError):
        CleaningConfig(**settings)

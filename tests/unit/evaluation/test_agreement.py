import itertools
import sys

import numpy as np
import pytest
import sacrebleu
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headway.errors import DataError
from headway.evaluation import agreement as module
from headway.evaluation.agreement import agreement, consensus

REAL = [
    "Ein Mann mit einem orangefarbenen Hut, der etwas anstarrt.",
    "Ein Mann mit orangem Hut starrt etwas an.",
    "Ein Mann in einem orangefarbenen Hut starrt auf etwas.",
    "Ein Boston Terrier läuft über saftig-grünes Gras vor einem weißen Zaun.",
    "ein   Boston\tTerrier läuft über  grünes Gras vor weißem Zaun",
    "ha ha ha ha ha ha ha ha",
    "",
    "A",
    " \u3000\n",
    "一隻狗在草地上奔跑",
    "😀😀😀 a",
]


def by_sacrebleu(texts):
    return np.array([[sacrebleu.sentence_chrf(text, [other]).score for other in texts] for text in texts])


def test_the_matrix_is_sacrebleus_sentence_chrf():
    found = agreement(REAL)
    assert found.dtype == np.float64
    assert found == pytest.approx(by_sacrebleu(REAL), abs=1e-9)
    assert not np.allclose(found, found.T)  # recall weighs more: rows are outputs and columns references
    assert 20 < found[0, 2] < found[0, 0] == 100


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text("ab c\u00e9\U0001f600", max_size=25), min_size=1, max_size=6))
@example(["aaaa aaaa", "aaaaaaa", "a"])
@example(["", ""])
def test_random_texts_agree_as_sacrebleu_says(texts):
    assert agreement(texts) == pytest.approx(by_sacrebleu(texts), abs=1e-9)


def test_the_size_of_the_pieces_changes_nothing(monkeypatch):
    whole = agreement(REAL)
    monkeypatch.setattr(module, "_AT_ONCE", 30)
    assert (agreement(REAL) == whole).all()


def test_no_texts_have_an_empty_matrix():
    assert agreement([]).shape == (0, 0)
    assert consensus([]) == []


def test_half_a_surrogate_pair_is_a_character():
    assert agreement(["a\ud800", "a\ud800", "ab"])[0].tolist() == [100, 100, 25]


def test_many_texts_are_compared_at_once():
    """Functions are called for every text, not for every pair of them, which takes a hundred times as long."""
    generator = np.random.default_rng(0)
    texts = ["".join(generator.choice(list("etaoinshrdlu "), 100)) for _ in range(64)]

    def calls(count):
        counted = []
        sys.setprofile(lambda frame, event, argument: counted.append(event))
        try:
            agreement(texts[:count])
        finally:
            sys.setprofile(None)
        return len(counted)

    calls(8)  # what is done once
    assert calls(64) - calls(8) < 64 * 63 // 2


def test_the_text_most_like_all_others_comes_first():
    texts = ["the dog barks", "a cat sat on the mat", "the cat sat on the mat", "the cat sat on a mat"]
    matrix = by_sacrebleu(texts)
    expected = sorted(range(4), key=lambda place: -matrix[place].mean())
    assert consensus(texts) == expected
    assert expected[0] == 2
    assert expected[-1] == 0


def test_a_weight_makes_a_text_count_more_as_a_reference():
    texts = ["the dog barks", "the dog barked", "a cat sat on the mat", "a cat sat on a mat", "the cat sat"]
    weights = [0.3, 0.3, 0.1, 0.1, 0.2]
    matrix = by_sacrebleu(texts)
    expected = sorted(range(5), key=lambda place: -(matrix[place] * weights).sum())
    assert consensus(texts, weights) == expected
    assert expected[0] in (0, 1)
    assert consensus(texts, [10 * weight for weight in weights]) == expected
    assert consensus(texts)[0] not in (0, 1)


def test_of_equal_utility_the_earlier_comes_first():
    assert consensus(["b", "a", "a", "b", "a"]) == [1, 2, 4, 0, 3]
    assert consensus(["x", "", "y", ""]) == [0, 2, 1, 3]
    turned = [f"{'xyz' * place}q{'xyz' * (6 - place)}" for place in range(7)]
    for texts in (["abc", "cab", "bca"], [*turned, *turned]):
        places = consensus(texts)
        utility = agreement(texts).mean(axis=1)
        assert all(
            utility[first] > utility[second] - 1e-9 and (utility[first] > utility[second] + 1e-9 or first < second)
            for first, second in itertools.pairwise(places)
        )


@pytest.mark.parametrize("weights", [[1.0], [1.0, -0.5], [0.0, 0.0], [1.0, float("nan")], [float("inf"), 1.0]], ids=str)
def test_weights_that_are_none_are_refused(weights):
    with pytest.raises(DataError, match="consensus: "):
        consensus(["a", "b"], weights)

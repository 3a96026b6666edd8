import random
from collections import Counter

import pytest

from headway.data.noise import BLANK, FURTHEST, noised

WORDS = [f"w{number}" for number in range(2000)]
TEXT = " ".join(WORDS)


def test_words_are_left_out_and_blanked_as_often_as_asked_for():
    found = noised(TEXT, 0.1, random.Random(1)).split()
    assert 1740 <= len(found) <= 1860
    assert 130 <= Counter(found)[BLANK] <= 230


def test_no_word_moves_further_than_allowed_and_some_do_move():
    found = noised(TEXT, 0.0, random.Random(1)).split()
    moves = {abs(place - int(word[1:])) for place, word in enumerate(found)}
    assert sorted(found) == sorted(WORDS)
    assert moves == set(range(FURTHEST + 1))


def test_the_same_chance_gives_the_same_noise():
    first, again, other = (noised(TEXT, 0.2, random.Random(seed)) for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("probability", [0.0, 0.9])
@pytest.mark.parametrize("text", ["", "one", "  two  words "])
def test_a_text_with_words_keeps_one_at_least(text, probability):
    for seed in range(30):
        assert bool(noised(text, probability, random.Random(seed))) == bool(text.strip())

from pathlib import Path

import pytest

from headway.data.config import DataConfig

CORPUS = {"source": Path("a"), "target": Path("b")}


@pytest.mark.parametrize(
    ("pairs", "held"),
    [(19, 0), (100, 5), (4_000, 200), (8_000, 200), (20_000, 400), (50_000, 1000), (3_000_000, 1000)],
)
def test_a_small_corpus_gives_fewer_pairs_to_validate_on(pairs, held):
    assert DataConfig(**CORPUS).held_out_of(pairs) == held


def test_no_more_pairs_are_held_out_than_the_recipe_says():
    assert DataConfig(**CORPUS, held_out=30).held_out_of(50_000) == 30

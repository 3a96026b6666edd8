import hashlib
from itertools import combinations

import pytest

from headway.data.demos import DEMOS
from headway.errors import DataError


@pytest.fixture(scope="module", params=sorted(DEMOS))
def make(request):
    return DEMOS[request.param]


def test_nothing_held_out_is_seen_in_training_on_either_side(make):
    demo = make(train=8000)
    for one, other in combinations((demo.train, demo.valid, demo.test), 2):
        assert not {pair.source for pair in one} & {pair.source for pair in other}
        assert not {pair.target for pair in one} & {pair.target for pair in other}


def test_the_sizes_are_as_asked_and_no_source_repeats(make):
    demo = make(train=3000, valid=200, test=300)
    assert (len(demo.train), len(demo.valid), len(demo.test)) == (3000, 200, 300)
    assert len({pair.source for pair in demo.train + demo.valid + demo.test}) == 3500


def test_the_seed_decides_everything(make):
    first, again, different = (make(train=500, valid=50, test=50, seed=seed) for seed in (3, 3, 4))
    assert (first.train, first.valid, first.test) == (again.train, again.valid, again.test)
    assert first.train != different.train and first.test != different.test


def test_the_test_sentences_do_not_depend_on_how_many_train(make):
    assert make(train=10, valid=10, test=50).test == make(train=500, valid=50, test=50).test


def test_a_demo_without_test_sentences_is_refused(make):
    with pytest.raises(DataError, match="test must be at least 1"):
        make(test=0)


def test_the_phrases_are_those_that_published_figures_were_measured_on():
    demo = DEMOS["phrases"](train=4000)
    spoken = "".join(f"{pair.source}\t{pair.target}\n" for pair in demo.train + demo.valid + demo.test)
    assert hashlib.sha256(spoken.encode()).hexdigest() == (
        "9e59b900948d51528895b976e9cb8c70ec4a89c74c2a91ea701b36d83b78c46c"
    )

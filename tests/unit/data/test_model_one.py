from collections import defaultdict

import numpy as np
import pytest

from headway.data import model_one
from headway.data.model_one import learn_translations, ranked
from headway.errors import DataError


def corpus(pairs=60, words=12, seed=0):
    """Sentences of which the target has, in any order, one token for every source token, and sometimes an idle one."""
    generator = np.random.default_rng(seed)
    made = []
    for _ in range(pairs):
        source = generator.integers(0, words, generator.integers(1, 7)).tolist()
        target = [token + 1 for token in source] + [0] * int(generator.integers(0, 2))
        made.append((source, generator.permutation(target).tolist()))
    return made


def learnt(pairs, iterations=5, size=14):
    found = learn_translations(pairs, source_size=size, target_size=size, iterations=iterations)
    return dict(zip(zip(found.sources.tolist(), found.targets.tolist(), strict=True), found.probabilities, strict=True))


def by_hand(pairs, iterations):
    """Model 1 as its formulas stand, by loops and dictionaries."""
    probabilities = defaultdict(lambda: 1.0)
    for _ in range(iterations):
        counts, totals = defaultdict(float), defaultdict(float)
        for source, target in pairs:
            for made in target:
                given = ["nothing", *source]
                total = sum(probabilities[each, made] for each in given)
                for each in given:
                    counts[each, made] += probabilities[each, made] / total
                    totals[each] += probabilities[each, made] / total
        probabilities = defaultdict(float, {key: count / totals[key[0]] for key, count in counts.items()})
    return {key: value for key, value in probabilities.items() if key[0] != "nothing" and value > 0}


@pytest.mark.parametrize("iterations", [1, 2, 6])
def test_the_probabilities_are_those_of_the_formulas(iterations):
    pairs = corpus()
    assert learnt(pairs, iterations) == pytest.approx(by_hand(pairs, iterations), rel=1e-12)


def test_each_iteration_finds_the_translations_more_surely():
    pairs = corpus(200)
    shares = [np.mean([learnt(pairs, iterations)[word, word + 1] for word in range(12)]) for iterations in (1, 3, 10)]
    assert shares == sorted(shares)
    assert shares[-1] > 0.9 > 0.6 > shares[0]


def test_the_size_of_the_pieces_changes_nothing(monkeypatch):
    whole = learnt(corpus())
    monkeypatch.setattr(model_one, "AT_ONCE", 50)
    assert learnt(corpus()) == pytest.approx(whole, rel=1e-12)


def test_a_table_that_is_too_large_keeps_what_belongs_together(monkeypatch):
    pairs = corpus(300)
    whole = learnt(pairs)
    monkeypatch.setattr(model_one, "AT_ONCE", 100)
    monkeypatch.setattr(model_one, "MOST_ENTRIES", 60)
    pruned = learnt(pairs)
    assert len(pruned) <= 60 < len(whole)
    assert all(max(range(14), key=lambda made: pruned.get((word, made), 0.0)) == word + 1 for word in range(12))


def test_every_source_token_keeps_one_link_however_small_the_table(monkeypatch):
    monkeypatch.setattr(model_one, "MOST_ENTRIES", 2)
    assert [source for source, _ in learnt(corpus())] == list(range(12))


def test_a_corpus_that_is_too_large_is_thinned_evenly(monkeypatch):
    pairs = corpus(400)
    monkeypatch.setattr(model_one, "MOST_LINKS", 2000)
    read = []

    def watched():
        for pair in pairs:
            read.append(pair)
            yield pair

    held = model_one._read(watched(), 14, 14)
    kept = len(held.source_bounds) - 1
    assert read == pairs
    assert np.dot(np.diff(held.source_bounds), np.diff(held.target_bounds)) <= 2000
    step = -(-len(pairs) // kept)
    assert step in (3, 9, 27)
    expected = [token for source, _ in pairs[::step] for token in (14, *source)]
    assert held.sources.tolist() == expected
    assert held.targets.tolist() == [token for _, target in pairs[::step] for token in target]


def test_pairs_with_an_empty_side_or_too_many_links_teach_nothing(monkeypatch):
    pairs = corpus()
    monkeypatch.setattr(model_one, "AT_ONCE", 100)
    odd = [([], [1, 2]), ([1, 2], []), ([], []), ([13] * 20, [13] * 20)]
    assert learnt([*odd, *pairs, *odd]) == learnt(pairs)


def test_pairs_that_teach_nothing_at_all_are_refused():
    with pytest.raises(DataError, match="none has tokens on both sides"):
        learnt([([], [1]), ([2], [])])


@pytest.mark.parametrize("pair", [([14], [1]), ([1], [14]), ([-1], [1]), ([1], [3, -2])], ids=str)
def test_an_id_outside_the_vocabulary_is_refused_with_its_pair(pair):
    with pytest.raises(DataError, match="pair 61: an id is not one of 14 tokens"):
        learnt([*corpus(), pair])


def test_progress_hears_of_every_iteration():
    heard = []
    learn_translations(corpus(), source_size=14, target_size=14, iterations=3, progress=heard.append)
    assert heard == [1, 2, 3]


def test_frequencies_are_those_of_the_targets():
    found = learn_translations(iter([([1], [2, 2]), ([1, 3], [0])]), source_size=4, target_size=5, iterations=1)
    assert found.frequencies.tolist() == [1, 0, 2, 0, 0]


def test_of_equal_values_in_a_row_the_earlier_ranks_first():
    order, ranks = ranked(np.array([2, 0, 2, 2, 0]), np.array([0.5, 0.1, 0.7, 0.5, 0.2]))
    assert order.tolist() == [4, 1, 2, 0, 3]
    assert ranks.tolist() == [0, 1, 0, 1, 2]

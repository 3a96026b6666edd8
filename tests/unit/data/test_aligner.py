import random
from pathlib import Path

import numpy as np
import pytest

from headway.data.aligner import Aligner, stored_pairs
from headway.data.config import DataConfig
from headway.data.feed import Feed
from headway.data.preparation import divide, prepare, reopen
from headway.data.tokenizer import TokenizerConfig
from headway.validation import validation_batches


def silent(*_):
    pass


def learnt(pairs, size=40):
    return Aligner.learn(lambda: pairs, source_size=size, target_size=size)


@pytest.fixture(scope="module")
def swapped():
    """Pairs whose target has every token plus 20, each two neighbours in the other order."""
    chance = random.Random(1)
    pairs = []
    for _ in range(300):
        source = [chance.randrange(20) for _ in range(2 * chance.randint(1, 4))]
        target = [source[place ^ 1] + 20 for place in range(len(source))]
        pairs.append((source, target))
    return pairs


def test_tokens_find_the_ones_they_translate_whatever_their_order(swapped):
    aligner = learnt(swapped)
    distinct = [(source, target) for source, target in swapped if len(set(source)) == len(source)]
    right = [
        aligner(source, target).tolist() == [place ^ 1 for place in range(len(source))] for source, target in distinct
    ]
    assert sum(right) / len(right) > 0.98


def test_of_equal_tokens_the_nearer_is_found_and_unseen_ones_keep_to_the_diagonal(swapped):
    aligner = learnt(swapped)
    assert aligner([3, 5, 7, 3], [23, 25, 27, 23]).tolist() == [0, 1, 2, 3]
    assert aligner([0, 0, 0, 0], [1, 1]).tolist() in ([0, 2], [1, 2], [1, 3], [0, 3])  # none was seen with another
    assert aligner([39] * 6, [38] * 3).tolist() == [0, 2, 4] or aligner([39] * 6, [38] * 3).tolist() == [1, 3, 5]


def test_what_becomes_nothing_collects_nothing():
    chance = random.Random(2)
    pairs = []
    for _ in range(300):
        source = [chance.randrange(10) for _ in range(chance.randint(2, 5))]
        pairs.append((source, [token + 20 for token in source if token % 3] or [39]))
    aligner = learnt(pairs)
    silent_ones = [
        source[place] % 3 == 0
        for source, target in pairs
        if any(token % 3 for token in source)
        for place in aligner(source, target)
    ]
    assert sum(silent_ones) / len(silent_ones) < 0.01


def test_a_pair_with_an_empty_side_has_no_links(swapped):
    aligner = learnt(swapped)
    assert len(aligner.codes([], [1, 2])) == len(aligner.codes([1, 2], [])) == 0
    assert aligner.codes([3, 5], [25, 23]).tolist() == [(0 << 16) + 1, (1 << 16) + 0]


@pytest.fixture
def prepared(corpus, tmp_path):
    def run(*, aligned=True, **more):
        config = DataConfig(source=corpus[0], target=corpus[1], held_out=3, **more)
        split = divide(config, silent)
        found = prepare(
            config,
            TokenizerConfig(vocabulary=300),
            tmp_path / "data",
            longest=64,
            split=split,
            report=silent,
            aligned=aligned,
        )
        return config, found

    return run


def feed_of(prepared, folder: Path):
    return Feed(prepared, seed=1, budget=512, layout="padded", folder=folder, dropout=0.0, longest=63)


def test_alignments_of_training_and_validation_pairs_are_made_once_and_found_again(prepared, tmp_path):
    config, found = prepared()
    assert len(found.alignment) == len(found.store)
    assert len(found.valid_alignment) == len(found.split.valid)
    written = (tmp_path / "data" / "alignment" / "links").stat().st_mtime_ns
    assert prepared()[1].alignment.mask(np.arange(2), 40, 40).any()
    assert (tmp_path / "data" / "alignment" / "links").stat().st_mtime_ns == written
    again = reopen(config, tmp_path / "data")
    every = np.arange(len(found.store))
    assert (again.alignment.mask(every, 60, 60) == found.alignment.mask(every, 60, 60)).all()
    assert len(again.valid_alignment) == len(found.valid_alignment)
    (tmp_path / "data" / "valid-alignment" / "links").unlink()
    assert reopen(config, tmp_path / "data").valid_alignment.manifest == found.valid_alignment.manifest


def test_every_token_of_a_batch_has_one_link_to_a_token_of_its_source(prepared, tmp_path):
    _, found = prepared()
    _, batches = feed_of(found, tmp_path / "plans").epoch(0, 0)
    for batch in [*batches, *validation_batches(found, 64)]:
        tokens = batch.alignment[:, : batch.written.longest]
        assert (tokens.sum(-1) == batch.written.present).all()
        assert not batch.alignment[:, batch.written.longest :].any()
        read = batch.source.present[:, None] & (batch.source.positions < batch.source.lengths[:, None] - 1)[:, None]
        assert not (batch.alignment & ~read).any()


def test_validation_batches_have_the_links_of_their_own_pairs(prepared):
    _, found = prepared()
    for batch in validation_batches(found, 64, cells=40):
        for row in range(batch.pairs):
            source = batch.source.tokens[row, : int(batch.source.lengths[row]) - 1].tolist()
            target = batch.written.tokens[row, : int(batch.written.lengths[row])].tolist()
            place = [found.source.encode([pair.source])[0] for pair in found.split.valid].index(source)
            links = found.valid_alignment.mask(np.array([place]), len(target), len(source))[0]
            assert (batch.alignment[row, : len(target), : len(source)].numpy() == links).all()


def test_given_alignments_are_kept_also_of_held_out_pairs(prepared, corpus, tmp_path):
    lines = ["0-0" if number % 3 else "" for number in range(60)]
    (tmp_path / "links").write_text("".join(f"{line}\n" for line in lines))
    _, found = prepared(alignment=tmp_path / "links")
    links = found.alignment.mask(np.arange(len(found.store)), 60, 60).any((1, 2))
    assert 0 < links.sum() < len(links)
    assert any(pair.links for pair in found.split.valid)
    for place, pair in enumerate(found.split.valid):
        assert found.valid_alignment.mask(np.array([place]), 60, 60).any() == bool(pair.links)


def test_a_model_that_needs_none_gets_none(prepared, tmp_path):
    config, found = prepared(aligned=False)
    assert found.alignment is None and found.valid_alignment is None
    assert reopen(config, tmp_path / "data").alignment is None
    assert all(batch.alignment is None for batch in validation_batches(found, 64))


def test_stored_pairs_come_in_order_with_all_their_ids(prepared):
    _, found = prepared()
    pairs = list(stored_pairs(found.store, at_once=7))
    assert len(pairs) == len(found.store)
    for place, (source, target) in enumerate(pairs):
        assert source == found.store.source(place).tolist()
        assert target == found.store.target(place).tolist()

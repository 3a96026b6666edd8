import errno
import json
import os

import numpy as np
import pytest

from headway.data import store as module
from headway.data.store import build_store, open_store, seal
from headway.data.tokenizer import Tokenizer, TokenizerConfig
from headway.errors import FolderError, HeadwayError
from headway.folders import MANIFEST

PAIRS = [(f"source line {number} of many" * (number % 3), f"target line {number}") for number in range(50)]
KEY = {"tokenizer": "abc", "longest": 100, "nested": {"a": (1, 2)}}
FILES = [f"{side}.{kind}" for side in ("source", "target") for kind in ("tokens", "lengths", "offsets")]


@pytest.fixture(scope="module")
def bpe():
    return Tokenizer.train([text for pair in PAIRS for text in pair], TokenizerConfig(vocabulary=300))


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "deep" / "store"


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(module, "_CHUNK", 8)


def left_over(folder):
    return [path for path in folder.parent.iterdir() if path != folder]


def test_the_store_gives_back_every_pair(bpe, folder):
    build_store(folder, iter(PAIRS), bpe, bpe, key=KEY)
    store = open_store(folder, KEY)
    assert len(store) == len(PAIRS)
    for number, (source, target) in enumerate(PAIRS):
        assert store.source(number).tolist() == bpe.encode([source])[0]
        assert store.target(number).tolist() == bpe.encode([target])[0]
        assert store.source_lengths[number] == len(store.source(number))
        assert store.target_lengths[number] == len(store.target(number))
    assert left_over(folder) == []


def test_a_pair_that_is_not_there_is_an_index_error(bpe, folder):
    store = build_store(folder, PAIRS, bpe, bpe, key=KEY)
    for index in (-1, len(PAIRS)):
        with pytest.raises(IndexError):
            store.source(index)


@pytest.mark.parametrize(("held", "near"), [(1 << 20, 512), (-1, 0), (-1, 3), (-1, 512)])
@pytest.mark.parametrize("pairs", [[], [7], [7, 7, 3], [49, 0, 20, 21, 19, 48, 3], list(range(50))])
def test_many_sentences_come_in_the_order_asked_for(bpe, folder, monkeypatch, held, near, pairs):
    monkeypatch.setattr(module, "_HELD", held)
    monkeypatch.setattr(module, "_NEAR", near)
    store = build_store(folder, PAIRS, bpe, bpe, key=KEY)
    tokens, lengths = store.gather("source", np.array(pairs, dtype=np.int64))
    expected = bpe.encode([PAIRS[pair][0] for pair in pairs])
    assert lengths.tolist() == [len(ids) for ids in expected]
    assert tokens.tolist() == [token for ids in expected for token in ids]


def test_a_store_cut_short_while_in_use_is_named(bpe, folder):
    store = build_store(folder, PAIRS, bpe, bpe, key=KEY)
    (folder / "target.tokens").write_bytes(b"")
    with pytest.raises(FolderError, match=r"target\.tokens"):
        store.target(3)


def test_no_store_and_another_key_both_ask_for_a_build(bpe, folder):
    assert open_store(folder, KEY) is None
    build_store(folder, PAIRS, bpe, bpe, key=KEY)
    assert open_store(folder, KEY) is not None
    assert open_store(folder, KEY | {"longest": 101}) is None


def test_a_store_of_another_format_asks_for_a_build(bpe, folder, monkeypatch):
    build_store(folder, PAIRS, bpe, bpe, key=KEY)
    monkeypatch.setattr(module, "FORMAT", module.FORMAT + 1)
    assert open_store(folder, KEY) is None


def test_building_again_replaces_the_store(bpe, folder):
    build_store(folder, PAIRS, bpe, bpe, key=KEY)
    build_store(folder, PAIRS[:3], bpe, bpe, key={"other": 1})
    assert len(open_store(folder, {"other": 1})) == 3
    assert left_over(folder) == []


def test_pairs_too_long_are_dropped_and_counted(bpe, folder):
    lengths = [max(len(bpe.encode([text])[0]) for text in pair) for pair in PAIRS]
    limit = sorted(lengths)[len(lengths) // 2]
    store = build_store(folder, PAIRS, bpe, bpe, key=KEY, longest=limit)
    kept = [pair for pair, length in zip(PAIRS, lengths, strict=True) if length <= limit]
    assert 0 < store.dropped == len(PAIRS) - len(kept)
    assert open_store(folder, KEY).dropped == store.dropped
    assert [bpe.decode(store.target(number)) for number in range(len(store))] == [target for _, target in kept]


def test_progress_hears_how_many_pairs_were_read(bpe, folder):
    heard = []
    build_store(folder, PAIRS, bpe, bpe, key=KEY, longest=1, progress=heard.append)
    assert heard == [8, 16, 24, 32, 40, 48, 50]


def test_a_corpus_without_pairs_makes_an_empty_store(bpe, folder):
    build_store(folder, [], bpe, bpe, key=KEY)
    store = open_store(folder, KEY)
    assert len(store) == 0
    assert len(store.source_lengths) == 0


@pytest.mark.parametrize(("size", "bytes_each"), [(65_535, 2), (65_536, 4)])
def test_tokens_take_no_more_bytes_than_the_vocabulary_needs(size, bytes_each, folder, monkeypatch):
    numbers_only = Tokenizer.train(["0"], TokenizerConfig(kind="words"))
    monkeypatch.setattr(numbers_only, "size", size)
    monkeypatch.setattr(numbers_only, "encode", lambda texts: [[int(word) for word in text.split()] for text in texts])
    numbers = f"0 7 {size - 1}"
    store = build_store(folder, [(numbers, numbers)], numbers_only, numbers_only, key=KEY)
    assert store.source(0).tolist() == [0, 7, size - 1]
    assert (folder / "source.tokens").stat().st_size == 3 * bytes_each


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_build_that_breaks_off_leaves_nothing(bpe, folder, error):
    def broken():
        yield from PAIRS
        raise error

    with pytest.raises(error):
        build_store(folder, broken(), bpe, bpe, key=KEY)
    assert list(folder.parent.iterdir()) == []


def test_a_full_disk_is_one_line_that_names_the_folder(bpe, folder, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(HeadwayError, match=f"{folder}: cannot be written"):
        build_store(folder, PAIRS, bpe, bpe, key=KEY)
    assert list(folder.parent.iterdir()) == []


def test_a_rebuild_that_breaks_off_leaves_the_old_store(bpe, folder):
    def broken():
        yield PAIRS[0]
        raise RuntimeError

    build_store(folder, PAIRS, bpe, bpe, key=KEY)
    with pytest.raises(RuntimeError):
        build_store(folder, broken(), bpe, bpe, key={"other": 1})
    assert len(open_store(folder, KEY)) == len(PAIRS)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["cut", "removed", "longer", "flipped"])
def test_a_damaged_store_is_none_and_is_built_again(bpe, folder, name, damage):
    built = build_store(folder, PAIRS, bpe, bpe, key=KEY)
    before = (folder / name).read_bytes()
    changed = {"cut": before[:-1], "longer": before + b"x", "flipped": bytes([before[0] ^ 1]) + before[1:]}
    if damage == "removed":
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(changed[damage])
    assert open_store(folder, KEY) is None
    assert build_store(folder, PAIRS, bpe, bpe, key=KEY).manifest == built.manifest
    assert (folder / name).read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"{", b"\x00", b"\xff", b"[" * 100_000])
def test_a_store_whose_manifest_is_damaged_is_built_again(bpe, folder, content):
    built = build_store(folder, PAIRS, bpe, bpe, key=KEY)
    (folder / MANIFEST).write_bytes(content)
    assert open_store(folder, KEY) is None
    assert build_store(folder, PAIRS, bpe, bpe, key=KEY).manifest == built.manifest


def test_a_folder_with_a_file_of_others_is_not_replaced(bpe, folder):
    build_store(folder, PAIRS, bpe, bpe, key=KEY)
    (folder / "thesis.txt").write_text("mine")
    with pytest.raises(FolderError, match=r"thesis\.txt: was not written by Headway"):
        build_store(folder, PAIRS, bpe, bpe, key={"other": 1})
    assert (folder / "thesis.txt").read_text() == "mine"
    assert len(open_store(folder, KEY)) == len(PAIRS)


def test_a_store_that_is_cut_while_in_use_is_an_error_that_names_the_file(bpe, folder, monkeypatch):
    monkeypatch.setattr(module, "_HELD", 0)
    store = build_store(folder, PAIRS, bpe, bpe, key=KEY)
    os.truncate(folder / "source.tokens", 2)
    with pytest.raises(FolderError, match=r"source\.tokens: damaged or changed while in use"):
        store.source(len(PAIRS) - 1)


def test_the_description_counts_what_the_files_hold(bpe, folder):
    store = build_store(folder, PAIRS, bpe, bpe, key=KEY)
    described = json.loads((folder / MANIFEST).read_text())
    assert described["pairs"] == len(PAIRS)
    assert described["tokens"] == [int(np.sum(store.source_lengths)), int(np.sum(store.target_lengths))]
    assert described["vocabulary"] == {"source": bpe.size, "target": bpe.size}


def test_a_seal_hangs_on_what_is_said_and_not_on_its_order():
    one = seal({"a": 1, "b": 2}, {"c": 3, "d": 4})
    assert one == seal({"b": 2, "a": 1}, {"d": 4, "c": 3})
    assert one != seal({"a": 1, "b": 3}, {"c": 3, "d": 4}) != seal({"a": 1, "b": 2}, {"c": 3, "d": 5})

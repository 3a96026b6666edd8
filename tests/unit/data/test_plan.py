import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from headway.data import plan as module
from headway.data.plan import fill, plan_epoch
from headway.data.store import build_store
from headway.data.tokenizer import Tokenizer, TokenizerConfig
from headway.errors import ConfigError, DataError, FolderError

LAYOUTS = ["padded", "packed"]
GOLDEN = {"padded": [[6, 1], [4, 3], [2, 5], [0, 7]], "packed": [[3, 2, 5], [1, 6, 0], [7, 4]]}


@pytest.fixture
def lengths():
    chance = np.random.default_rng(5)
    source = chance.integers(0, 40, 3000).astype(np.int32)
    return source, np.clip(source + chance.integers(-5, 6, 3000), 0, None).astype(np.int32)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(module, "_RUN", 16)
    monkeypatch.setattr(module, "_BLOCK", 32)


def planned(lengths, folder, **changes):
    settings = {"seed": 1, "epoch": 0, "budget": 256, "layout": "padded"} | changes
    return plan_epoch(*lengths, folder=folder, **settings)


def listed(plan):
    return [plan[position].tolist() for position in range(len(plan))]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_pair_occurs_exactly_once_in_an_epoch(lengths, tmp_path, layout):
    plan = planned(lengths, tmp_path, layout=layout)
    assert sorted(pair for batch in listed(plan) for pair in batch) == list(range(3000))
    assert all(len(batch) > 0 for batch in listed(plan))


@pytest.mark.parametrize("budget", [48, 256, 100_000])
def test_no_padded_batch_has_more_cells_than_the_budget(lengths, tmp_path, budget):
    plan = planned(lengths, tmp_path, budget=budget)
    for batch in listed(plan):
        assert all(len(batch) * (side[batch].max() + 1) <= budget for side in lengths)


@pytest.mark.parametrize("budget", [48, 256, 100_000])
def test_no_packed_batch_has_more_tokens_than_the_budget(lengths, tmp_path, budget):
    plan = planned(lengths, tmp_path, budget=budget, layout="packed")
    for batch in listed(plan):
        assert all((side[batch] + 1).sum() <= budget for side in lengths)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_same_inputs_give_the_same_plan(lengths, tmp_path, layout):
    first, second = (planned(lengths, tmp_path / name, layout=layout) for name in ("a", "b"))
    assert listed(first) == listed(second)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("change", [{"seed": 2}, {"epoch": 1}])
def test_another_seed_or_epoch_gives_another_plan(lengths, tmp_path, layout, change):
    assert listed(planned(lengths, tmp_path, layout=layout)) != listed(
        planned(lengths, tmp_path, layout=layout, **change)
    )


def test_a_plan_is_what_it_was_in_earlier_versions(tmp_path):
    lengths = np.arange(1, 9, dtype=np.int32), np.arange(8, 0, -1, dtype=np.int32)
    assert listed(planned(lengths, tmp_path, budget=20)) == GOLDEN["padded"]
    assert listed(planned(lengths, tmp_path, budget=20, layout="packed")) == GOLDEN["packed"]


def test_a_plan_is_reused_and_never_mixed_up(lengths, tmp_path, monkeypatch):
    plan = listed(planned(lengths, tmp_path))
    other = lengths[0], np.where(np.arange(3000) == 7, lengths[1] + 1, lengths[1]).astype(np.int32)
    planned(other, tmp_path)
    monkeypatch.setattr(module, "_blocks", None)
    assert listed(planned(lengths, tmp_path)) == plan
    with pytest.raises(TypeError):
        planned(lengths, tmp_path, epoch=1)


@pytest.mark.parametrize("damage", ["cut", "removed", "longer", "flipped", "empty", "link"])
def test_a_damaged_plan_is_computed_again(lengths, tmp_path, damage):
    plan = listed(planned(lengths, tmp_path))
    (path,) = tmp_path.glob("plan-*")
    before = path.read_bytes()
    flipped = bytes([before[0] ^ 1]) + before[1:]
    changed = {"cut": before[:-8], "longer": before + bytes(8), "flipped": flipped, "empty": b""}
    path.unlink()
    if damage == "link":
        (tmp_path / "other").write_bytes(flipped)
        path.symlink_to("other")
        with pytest.raises(FolderError, match="is not a plain file"):
            planned(lengths, tmp_path)
        return
    if damage != "removed":
        path.write_bytes(changed[damage])
    assert listed(planned(lengths, tmp_path)) == plan
    assert path.read_bytes() == before


def test_a_plan_that_is_cut_while_in_use_is_an_error_that_names_the_file(lengths, tmp_path):
    plan = planned(lengths, tmp_path)
    os.truncate(plan.order.path, 8)
    with pytest.raises(FolderError, match=r"plan-.*: damaged or changed while in use"):
        listed(plan)


def test_a_plan_that_breaks_off_leaves_nothing(lengths, tmp_path, monkeypatch):
    def broken(*_):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(module, "_blocks", broken)
    with pytest.raises(KeyboardInterrupt):
        planned(lengths, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_old_plans_are_removed_and_one_in_use_stays_readable(lengths, tmp_path):
    first = planned(lengths, tmp_path)
    before = listed(first)
    for epoch in range(1, 8):
        planned(lengths, tmp_path, epoch=epoch)
    assert len(list(tmp_path.iterdir())) == module._KEPT
    assert listed(first) == before


def test_a_sentence_longer_than_the_budget_names_both_numbers(lengths, tmp_path):
    longest = max(side.max() for side in lengths) + 1
    planned(lengths, tmp_path, budget=int(longest))
    with pytest.raises(ConfigError, match=f"batch tokens fewer than the longest sentence: {longest - 1} .* {longest} "):
        planned(lengths, tmp_path, budget=int(longest) - 1)


def test_an_empty_corpus_is_refused(tmp_path):
    with pytest.raises(DataError, match="no pair"):
        planned((np.empty(0, np.int32), np.empty(0, np.int32)), tmp_path)


@pytest.mark.parametrize("position", [-1, 10**6])
def test_a_position_outside_the_epoch_is_an_index_error(lengths, tmp_path, position):
    with pytest.raises(IndexError):
        planned(lengths, tmp_path)[position]


def test_batches_of_a_block_do_not_come_in_order_of_length(lengths, tmp_path):
    plan = planned(lengths, tmp_path)
    longest = [int(lengths[1][batch].max()) for batch in listed(plan)]
    rises = sum(later >= earlier for earlier, later in pairwise(longest))
    assert 0.35 < rises / len(longest) < 0.75


def test_fill_counts_tokens_against_cells(tmp_path):
    words = Tokenizer.train(["a b c"], TokenizerConfig(kind="words"))
    store = build_store(tmp_path / "store", [("a b c", "a"), ("b", "c")], words, words, key={})
    lengths = store.source_lengths, store.target_lengths
    assert fill(planned(lengths, tmp_path, budget=8), store) == (4 + 2 + 2 + 2) / (8 + 4)
    assert fill(planned(lengths, tmp_path, layout="packed"), store) == 1.0


def test_multi30k_batches_are_nearly_full(tmp_path, monkeypatch):
    folder = Path(os.environ.get("HEADWAY_DATA", "/nonexistent"), "multi30k", "raw")
    if not folder.is_dir():
        pytest.skip("HEADWAY_DATA does not name a folder with multi30k/raw")
    monkeypatch.undo()
    sides = [(folder / f"train.{language}").read_text("utf-8").rstrip("\n").split("\n") for language in ("en", "de")]
    tokenizer = Tokenizer.train(sides[0] + sides[1], TokenizerConfig(vocabulary=8000))
    store = build_store(tmp_path / "store", zip(*sides, strict=True), tokenizer, tokenizer, key={})
    for layout, least in (("padded", 0.95), ("packed", 0.99)):
        plan = planned((store.source_lengths, store.target_lengths), tmp_path, budget=4096, layout=layout)
        assert fill(plan, store) >= least

import dataclasses
import threading
import time

import numpy as np
import pytest
import torch

from headway.data import batches as module
from headway.data.arrays import maximum
from headway.data.batches import Resegment, batches, collate
from headway.data.dropout import BpeDropout
from headway.data.plan import plan_epoch
from headway.data.store import build_store
from headway.data.tokenizer import Tokenizer, TokenizerConfig
from headway.sequences import Sequences

PAIRS = [("the cat sat " * (number % 4), f"le chat {number} " * (number % 3)) for number in range(60)]
LAYOUTS = ["padded", "packed"]


@pytest.fixture(scope="module")
def tokenizers():
    return tuple(
        Tokenizer.train([pair[side] for pair in PAIRS], TokenizerConfig(vocabulary=280 - 10 * side)) for side in (0, 1)
    )


@pytest.fixture(scope="module")
def store(tokenizers, tmp_path_factory):
    return build_store(tmp_path_factory.mktemp("data") / "store", PAIRS, *tokenizers, key={})


@pytest.fixture(params=LAYOUTS)
def plan(request, store, tmp_path):
    lengths = store.source_lengths, store.target_lengths
    return plan_epoch(*lengths, seed=1, epoch=0, budget=64, layout=request.param, folder=tmp_path)


def sequences(rows, layout, padding):
    return Sequences.pack(rows) if layout == "packed" else Sequences.pad(rows, padding)


def alike(ours, theirs):
    assert torch.equal(ours.tokens, theirs.tokens)
    assert torch.equal(ours.lengths, theirs.lengths)
    assert (ours.longest, ours.full) == (theirs.longest, theirs.full)


def same(ours, theirs):
    alike(ours.source, theirs.source)
    alike(ours.target, theirs.target)
    assert torch.equal(ours.labels, theirs.labels)
    assert ours.units == theirs.units


def batch_threads():
    return [thread for thread in threading.enumerate() if thread.name == "headway-batches"]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pairs", [[3, 5, 1, 50], [0], [7, 7], list(range(60))])
def test_a_batch_holds_what_a_plain_loop_would_put_there(store, tokenizers, layout, pairs):
    source, target = tokenizers
    batch = collate(store, np.array(pairs), source, target, layout)
    sources = [[*source.encode([PAIRS[pair][0]])[0], source.end] for pair in pairs]
    targets = [target.encode([PAIRS[pair][1]])[0] for pair in pairs]
    alike(batch.source, sequences(sources, layout, source.padding))
    alike(batch.target, sequences([[target.start, *ids] for ids in targets], layout, target.padding))
    labels = sequences([[*ids, target.end] for ids in targets], layout, target.padding)
    assert torch.equal(batch.labels, labels.tokens)
    assert batch.units == int((labels.lengths).sum())
    assert batch.pairs == len(pairs)


def test_a_batch_moves_as_one(store, tokenizers):
    batch = collate(store, np.array([1, 2]), *tokenizers, "padded")
    moved = batch.to("meta")
    assert {moved.source.tokens.device.type, moved.target.lengths.device.type, moved.labels.device.type} == {"meta"}
    assert (moved.units, moved.pairs) == (batch.units, batch.pairs)


def test_all_batches_come_in_the_order_of_the_plan(store, plan, tokenizers):
    made = list(batches(store, plan, *tokenizers))
    assert len(made) == len(plan) > 3
    for position, batch in enumerate(made):
        same(batch, collate(store, plan[position], *tokenizers, plan.layout))


@pytest.mark.parametrize("start", [0, 2, 10**6])
def test_batches_go_on_from_a_position(store, plan, tokenizers, start):
    made = list(batches(store, plan, *tokenizers, start=start))
    positions = range(start, len(plan))
    assert len(made) == len(positions)
    for position, batch in zip(positions, made, strict=True):
        same(batch, collate(store, plan[position], *tokenizers, plan.layout))


@pytest.mark.parametrize("start", [0, 1, 3, 10**6])
@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_ranks_divide_the_batches_and_get_equally_many(store, plan, tokenizers, start, world):
    ranks = [list(batches(store, plan, *tokenizers, start=start, rank=rank, world=world)) for rank in range(world)]
    assert {len(made) for made in ranks} == {-(-max(0, len(plan) - start) // world)}
    for group, together in enumerate(zip(*ranks, strict=True)):
        first = start + group * world
        for rank, batch in enumerate(together):
            own = first + rank < len(plan)
            wanted = collate(store, plan[first + rank if own else first], *tokenizers, plan.layout)
            same(batch, wanted if own else dataclasses.replace(wanted, units=0))


def test_a_rank_reads_only_its_own_batches(store, plan, tokenizers, monkeypatch):
    read = []
    monkeypatch.setattr(
        module, "collate", lambda _, pairs, *rest: read.append(pairs.tolist()) or collate(_, pairs, *rest)
    )
    list(batches(store, plan, *tokenizers, rank=1, world=3))
    positions = range(0, len(plan), 3)
    assert read == [plan[first + 1 if first + 1 < len(plan) else first].tolist() for first in positions]


def test_the_thread_ends_when_the_consumer_stops(store, plan, tokenizers):
    iterator = batches(store, plan, *tokenizers)
    next(iterator)
    assert len(batch_threads()) == 1
    iterator.close()
    assert batch_threads() == []


def test_the_thread_ends_with_the_epoch(store, plan, tokenizers):
    for _ in batches(store, plan, *tokenizers):
        pass
    assert batch_threads() == []


def test_no_more_batches_are_made_than_asked_for_in_advance(store, plan, tokenizers, monkeypatch):
    made = []
    real = collate
    monkeypatch.setattr(module, "collate", lambda *given: made.append(1) or real(*given))
    iterator = batches(store, plan, *tokenizers, ahead=2)
    next(iterator)
    time.sleep(0.05)
    assert len(made) <= 3
    iterator.close()


def test_an_error_of_the_thread_is_raised_by_the_iterator(store, plan, tokenizers, monkeypatch):
    made = iter(range(2))

    def failing(*given):
        next(made)
        return collate(*given)

    monkeypatch.setattr(module, "collate", failing)
    iterator = batches(store, plan, *tokenizers)
    next(iterator)
    next(iterator)
    with pytest.raises(RuntimeError, match="StopIteration"):
        next(iterator)
    assert batch_threads() == []


@pytest.mark.parametrize("layout", LAYOUTS)
def test_resegmenting_depends_on_seed_epoch_and_pair_alone(store, tokenizers, layout):
    source, target = tokenizers

    def made(pairs, seed=1, epoch=0):
        again = Resegment(BpeDropout(source, 0.5), BpeDropout(target, 0.5), seed, epoch)
        return collate(store, np.array(pairs), source, target, layout, again)

    same(made([3, 7]), made([3, 7]))
    assert made(range(60)).units > collate(store, np.arange(60), source, target, layout).units
    assert made(range(60)).units not in {made(range(60), epoch=1).units, made(range(60), seed=2).units}
    if layout == "packed":
        both, alone = made([3, 7]), made([7])
        assert torch.equal(both.source.tokens[-len(alone.source.tokens) :], alone.source.tokens)


def test_resegmented_sentences_are_the_same_text(store, tokenizers):
    source, target = tokenizers
    again = Resegment(BpeDropout(source, 0.5), None, 1, 0)
    batch = collate(store, np.array([3, 11]), source, target, "padded", again)
    assert [source.decode(row) for row in batch.source.tokens.tolist()] == [PAIRS[3][0], PAIRS[11][0]]
    assert torch.equal(batch.labels, collate(store, np.array([3, 11]), source, target, "padded").labels)


def test_a_sentence_that_would_grow_too_long_keeps_its_segmentation(store, tokenizers):
    longest = max(map(maximum, (store.source_lengths, store.target_lengths)))
    again = Resegment(BpeDropout(tokenizers[0], 0.9), BpeDropout(tokenizers[1], 0.9), 1, 0, longest=longest)
    batch = collate(store, np.arange(60), *tokenizers, "padded", again)
    assert batch.source.longest <= longest + 1
    assert batch.target.longest <= longest + 1

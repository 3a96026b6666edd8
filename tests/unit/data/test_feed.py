import numpy as np
import pytest

from headway.config import validated
from headway.data.config import DataConfig
from headway.data.feed import Feed
from headway.data.preparation import divide, prepare
from headway.data.tokenizer import TokenizerConfig


def quiet(*_):
    pass


@pytest.fixture
def feed(tmp_path):
    def made(corpora, **settings):
        for number, count in enumerate(corpora):
            lines = [f"{'w ' * (place % 7)}{number}\t{place % 5}\n" for place in range(count)]
            (tmp_path / f"{number}.tsv").write_text("".join(lines))
        (tmp_path / "valid.tsv").write_text("v\tv\n")
        tables = [{"source": f"{number}.tsv"} for number in range(len(corpora))]
        given = {"folder": str(tmp_path), "corpora": tables, "valid_source": "valid.tsv", "temperature": 100.0}
        config = validated(DataConfig, given, "test")
        split = divide(config, quiet)
        prepared = prepare(config, TokenizerConfig(kind="words"), tmp_path / "d", longest=99, split=split, report=quiet)
        common = {
            "seed": 1,
            "budget": 64,
            "layout": "padded",
            "folder": tmp_path / "plans",
            "dropout": 0.0,
            "longest": 98,
        }
        return Feed(prepared, **common | settings)

    return made


def test_an_epoch_follows_the_mixture_of_the_settings(feed):
    order = feed([30, 90]).plan(0).order[:]
    assert len(order) == 120
    assert int((order < 30).sum()) == 60


def test_an_epoch_follows_the_curriculum(feed):
    made = feed([70], curriculum=2)
    lengths = np.asarray(made.prepared.store.source_lengths)
    assert [int(lengths[made.plan(epoch).order].max()) for epoch in (0, 1, 2)] == [4, 7, 7]
    assert [len(made.plan(epoch).order) for epoch in (0, 1)] == [40, 70]


def test_an_epoch_tells_its_batches_and_gives_each_rank_its_own(feed):
    made = feed([40])
    length, alone = made.epoch(0, 1)
    every = list(alone)
    assert len(every) == length - 1
    shares = []
    for rank in (0, 1):
        told, batches = made.epoch(0, 1, rank=rank, world=2)
        assert told == length
        shares.append(list(batches))
    assert len(shares[0]) == len(shares[1])
    both = [batch for pair in zip(*shares, strict=True) for batch in pair]
    assert sum(batch.units for batch in both) == sum(batch.units for batch in every)
    assert [batch.source.tokens.tolist() for batch in both][: len(every)] == [b.source.tokens.tolist() for b in every]

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from headway.data.batches import Resegment, collate
from headway.data.config import DataConfig
from headway.data.dropout import BpeDropout
from headway.data.feed import Feed
from headway.data.preparation import divide, prepare
from headway.data.store import build_store
from headway.data.tokenizer import Tokenizer, TokenizerConfig
from headway.data.word_dropout import WordDropout
from headway.errors import ConfigError

LINES = [f"the cat {number} sat extraordinarily on 🙂 the  mat" for number in range(40)]


def trained(kind="bpe", tags=()):
    return Tokenizer.train(LINES, TokenizerConfig(kind=kind, vocabulary=290 if kind == "bpe" else None), tags)


@pytest.fixture(scope="module")
def bpe():
    return trained()


@pytest.fixture(scope="module")
def store(bpe, tmp_path_factory):
    return build_store(tmp_path_factory.mktemp("data") / "store", [(line, line) for line in LINES], bpe, bpe, key={})


def ids(tokenizer, text):
    return np.array(tokenizer.encode([text])[0], dtype=np.int64)


@pytest.mark.parametrize("kind", ["bpe", "characters", "words"])
def test_what_is_left_are_whole_words_in_their_order(kind):
    tokenizer = trained(kind)
    dropout, chance = WordDropout(tokenizer, 0.4), random.Random(0)
    for line in LINES:
        left = tokenizer.decode(dropout(ids(tokenizer, line), chance))
        words = iter(line.split())
        assert all(any(word == other for other in words) for word in left.split()), left


@pytest.mark.parametrize("kind", ["bpe", "characters", "words"])
def test_the_share_of_words_left_out_is_the_probability(kind):
    tokenizer = trained(kind)
    dropout, chance = WordDropout(tokenizer, 0.3), random.Random(1)
    lines = [ids(tokenizer, line) for line in LINES]
    assert [dropout.words(line)[-1] + 1 for line in lines] == [len(line.split()) for line in LINES]
    left = [dropout.words(dropout(line, chance))[-1] + 1 for line in lines * 5]
    assert sum(left) / (5 * sum(len(line.split()) for line in LINES)) == pytest.approx(0.7, abs=0.05)
    assert len(set(left)) > 4


@pytest.mark.parametrize("text", ["cat", "  the cat ", "   ", "cat  "])
def test_one_word_stays_at_least(bpe, text):
    dropout, chance = WordDropout(bpe, 0.999999), random.Random(0)
    for _ in range(20):
        left = bpe.decode(dropout(ids(bpe, text), chance))
        assert len(left.split()) == min(1, len(text.split()))
    assert len(dropout(ids(bpe, ""), chance)) == 0


def test_every_word_may_be_the_one_that_stays(bpe):
    dropout, chance = WordDropout(bpe, 0.999999), random.Random(0)
    assert {bpe.decode(dropout(ids(bpe, "the cat sat"), chance)).strip() for _ in range(50)} == {"the", "cat", "sat"}


def test_tags_always_stay():
    tokenizer = trained(tags=["en", "formal"])
    tags = tokenizer.tagged(["formal", "en"])
    dropout, chance = WordDropout(tokenizer, 0.9), random.Random(0)
    for line in LINES:
        left = dropout(np.array([*tags, *ids(tokenizer, line)]), chance).tolist()
        assert left[:2] == tags
        assert len(left) > 2


def test_a_vocabulary_without_blanks_is_one_of_words():
    chinese = Tokenizer.train(["我爱你"] * 3, TokenizerConfig(kind="characters"))
    assert WordDropout(chinese, 0.5).words(ids(chinese, "我爱你")).tolist() == [0, 1, 2]


@pytest.mark.parametrize("probability", [-0.1, 1.0, float("nan")])
def test_what_is_no_probability_is_refused(bpe, probability):
    with pytest.raises(ConfigError, match=r"data\.word_dropout"):
        WordDropout(bpe, probability)


def made(store, bpe, pairs, *, seed=1, epoch=0, subwords=0.0, words=0.3, longest=None):
    segmenter = BpeDropout(bpe, subwords) if subwords else None
    again = Resegment(segmenter, segmenter, seed, epoch, longest, WordDropout(bpe, words) if words else None)
    return collate(store, np.array(pairs), bpe, bpe, "packed", again)


def test_sources_depend_on_seed_epoch_and_pair_alone_and_targets_stay_whole(store, bpe):
    both, alone = made(store, bpe, [3, 7]), made(store, bpe, [7])
    assert torch.equal(both.source.tokens[-len(alone.source.tokens) :], alone.source.tokens)
    assert torch.equal(made(store, bpe, range(40)).source.tokens, made(store, bpe, range(40)).source.tokens)
    drawn = [made(store, bpe, range(40), seed=seed, epoch=epoch) for seed, epoch in ((1, 0), (1, 1), (2, 0))]
    assert len({tuple(batch.source.tokens.tolist()) for batch in drawn}) == 3
    plain = collate(store, np.arange(40), bpe, bpe, "packed")
    assert drawn[0].source.tokens.shape[0] < 0.85 * plain.source.tokens.shape[0]
    assert torch.equal(drawn[0].labels, plain.labels)


def test_subword_dropout_segments_what_word_dropout_leaves(store, bpe):
    words, both = made(store, bpe, range(40)), made(store, bpe, range(40), subwords=0.5)
    sentences = [
        [bpe.decode(row) for row in batch.source.tokens.split(batch.source.lengths.tolist())] for batch in (words, both)
    ]
    assert sentences[0] == sentences[1]
    assert both.source.tokens.shape[0] > words.source.tokens.shape[0]
    assert both.units > words.units
    short = made(store, bpe, range(40), subwords=0.9, longest=3)
    assert torch.equal(short.source.tokens, words.source.tokens)


def test_subword_dropout_alone_draws_as_it_always_did(store, bpe):
    assert torch.equal(
        made(store, bpe, range(40), subwords=0.5, words=0.0).labels, made(store, bpe, range(40), subwords=0.5).labels
    )


def test_word_dropout_alone_neither_decodes_nor_encodes(store, bpe, monkeypatch):
    def refuse(*_):
        raise AssertionError

    monkeypatch.setattr(type(bpe), "decode", refuse)
    monkeypatch.setattr(type(bpe), "encode", refuse)
    assert made(store, bpe, range(40)).pairs == 40


def test_the_feed_hands_the_probability_on(tmp_path):
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in LINES))
    config = DataConfig(folder=tmp_path, source=Path("text"), target=Path("text"))
    ready = prepare(
        config,
        TokenizerConfig(vocabulary=290),
        tmp_path / "data",
        longest=128,
        split=divide(config, lambda *_: None),
        report=lambda *_: None,
    )
    plain = Feed(ready, seed=1, budget=999, layout="packed", folder=tmp_path / "plans", dropout=0.0, longest=127)

    def epoch(feed, number=0):
        return torch.cat([batch.source.tokens for batch in feed.epoch(number, 0)[1]])

    dropping = replace(plain, word_dropout=0.3)
    assert len(epoch(dropping)) < 0.85 * len(epoch(plain))
    assert not torch.equal(epoch(dropping), epoch(dropping, 1))
    assert torch.equal(epoch(dropping), epoch(replace(dropping)))

from pathlib import Path

import numpy as np
import pytest

from headway.config import validated
from headway.data.batches import Resegment, collate
from headway.data.config import DataConfig
from headway.data.dropout import BpeDropout
from headway.data.pairs import Pair
from headway.data.preparation import divide, prepare, reopen
from headway.data.store import build_store
from headway.data.tokenizer import TAG, Tokenizer, TokenizerConfig
from headway.errors import ConfigError
from headway.validation import validation_batches

TEXTS = ["le chat voit <2de> la pomme", "<tag:de> <tag:en> le pain", TAG.format("de") * 50]
KINDS = ["bpe", "characters", "words"]


def quiet(*_):
    pass


@pytest.fixture(params=KINDS)
def tokenizer(request):
    return Tokenizer.train(TEXTS, TokenizerConfig(kind=request.param, vocabulary=300), ["en", "de", "pt-BR"])


def test_tags_are_tokens_of_their_own_and_saved_with_the_tokenizer(tokenizer, tmp_path):
    assert len(set(tokenizer.tags.values())) == 3
    tokenizer.save(tmp_path / "tokenizer.json")
    again = Tokenizer.load(tmp_path / "tokenizer.json")
    assert again.tags == tokenizer.tags
    assert again.tagged(["pt-BR", "en"]) == [tokenizer.tags["pt-BR"], tokenizer.tags["en"]]
    assert again.size == tokenizer.size


def test_no_text_spells_a_tag(tokenizer):
    spelled = [*TEXTS, *map(TAG.format, tokenizer.tags), " <tag:de> ", "<tag:de>\u00a0<tag:en>"]
    found = {token for ids in tokenizer.encode(spelled) for token in ids}
    found |= {token for text in spelled for token, _ in tokenizer.pieces(text)}
    assert found.isdisjoint(tokenizer.tags.values())


def test_tags_are_no_part_of_decoded_text(tokenizer):
    ids = tokenizer.encode(["le chat"])[0]
    assert tokenizer.decode(tokenizer.tagged(["en", "de"]) + ids) == tokenizer.decode(ids)
    assert not tokenizer.words().keys() & set(map(TAG.format, tokenizer.tags))


def test_an_unknown_tag_is_refused_with_those_that_are_known(tokenizer):
    with pytest.raises(ConfigError, match=r"tag 'fr': not a tag of this tokenizer; it knows en, de, pt-BR"):
        tokenizer.tagged(["de", "fr"])
    with pytest.raises(ConfigError, match="it knows none"):
        Tokenizer.train(["le chat"], TokenizerConfig(kind="words")).tagged(["de"])


def test_an_ordinary_word_of_a_foreign_vocabulary_is_no_tag(tmp_path):
    words = Tokenizer.train(["le chat <tag:x>"], TokenizerConfig(kind="words"))
    assert "<tag:x>" in words.words()
    assert words.tags == {}


def test_a_vocabulary_too_small_for_the_tags_is_refused():
    Tokenizer.train(TEXTS, TokenizerConfig(vocabulary=263), ["a", "b", "c"])
    with pytest.raises(ConfigError, match="256 bytes and 7 special symbols; set at least 263"):
        Tokenizer.train(TEXTS, TokenizerConfig(vocabulary=262), ["a", "b", "c"])


@pytest.fixture(scope="module")
def joint():
    return Tokenizer.train(TEXTS, TokenizerConfig(vocabulary=300), ["en", "de"])


PAIRS = [
    Pair("le chat", "THE CAT", 1, 0, ("en", "de")),
    Pair("le pain", "BREAD", 2, 1),
    Pair("<tag:de> la pomme", "APPLE", 3, 1, ("de",)),
]


@pytest.fixture
def store(joint, tmp_path):
    return build_store(tmp_path / "store", PAIRS, joint, joint, key={})


def test_the_store_puts_the_tags_of_each_pair_before_its_source(store, joint):
    for place, pair in enumerate(PAIRS):
        assert store.source(place).tolist() == joint.tagged(pair.tags) + joint.encode([pair.source])[0]
        assert store.target(place).tolist() == joint.encode([pair.target])[0]
    assert store.corpora == (1, 2)


def test_tags_count_towards_the_longest_source(joint, tmp_path):
    length = len(joint.encode(["le chat voit"])[0])
    for tags, longest, kept in (((), length, 1), (("en",), length, 0), (("en",), length + 1, 1)):
        pair = Pair("le chat voit", "x", tags=tags)
        assert len(build_store(tmp_path / "short", [pair], joint, joint, key={}, longest=longest)) == kept


def test_bpe_dropout_leaves_tags_in_their_place(store, joint):
    dropout = BpeDropout(joint, 0.9)
    batch = collate(store, np.arange(3), joint, joint, "padded", Resegment(dropout, dropout, 1, 0))
    for row, pair in zip(batch.source.tokens.tolist(), PAIRS, strict=True):
        tags = joint.tagged(pair.tags)
        assert row[: len(tags)] == tags
        assert not set(row[len(tags) :]) & set(joint.tags.values())
        assert joint.decode(row) == pair.source


def config(folder, **settings):
    return validated(DataConfig, {"folder": str(folder), **settings}, "test")


@pytest.fixture
def folder(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.tsv").write_text("".join(f"{name} {n}\t{name.upper()} {n}\n" for n in range(40)))
    return tmp_path


@pytest.mark.parametrize("is_joint", [True, False])
def test_training_and_validation_pairs_are_tagged_by_their_corpus(is_joint, folder, tmp_path):
    corpora = [{"source": "a.tsv", "tags": ["x", "y"]}, {"source": "b.tsv"}]
    settings = config(folder, corpora=corpora, tags=["z"])
    tokenizer = TokenizerConfig(kind="words", joint=is_joint)
    split = divide(settings, quiet)
    made = prepare(settings, tokenizer, tmp_path / "data", longest=9, split=split, report=quiet)
    assert list(made.source.tags) == ["x", "y", "z"]
    assert list(made.target.tags) == (["x", "y", "z"] if is_joint else [])
    for prepared in (made, reopen(settings, tmp_path / "data")):
        for place in range(len(prepared.store)):
            tags = ["x", "y"] if place < prepared.store.corpora[0] else ["z"]
            assert prepared.store.source(place).tolist()[: len(tags)] == prepared.source.tagged(tags)
        assert {pair.source[0]: pair.tags for pair in prepared.split.valid} == {"a": ("x", "y"), "b": ("z",)}
        (batch,) = validation_batches(prepared, 9)
        firsts = sorted(tuple(row[:2]) for row in batch.source.tokens.tolist())
        tagged = [
            tuple(prepared.source.tagged(["x", "y"])),
            (prepared.source.tags["z"], prepared.source.encode(["b"])[0][0]),
        ]
        assert set(firsts) == set(tagged)


def test_one_corpus_is_tagged_too(folder, tmp_path):
    settings = config(folder, source="a.tsv", tags=["en", "de"])
    split = divide(settings, quiet)
    made = prepare(settings, TokenizerConfig(kind="words"), tmp_path / "d", longest=9, split=split, report=quiet)
    assert made.store.source(0).tolist()[:2] == made.source.tagged(["en", "de"])


def test_a_loaded_tokenizer_without_the_tags_is_refused(folder, tmp_path):
    Tokenizer.train(["a b"], TokenizerConfig(kind="words"), ["en"]).save(folder / "tokenizer.json")
    settings = config(folder, source="a.tsv", tags=["en", "de"])
    loaded = TokenizerConfig(file=Path("tokenizer.json"))
    with pytest.raises(ConfigError, match="the tokenizer of the source knows no de;"):
        prepare(settings, loaded, tmp_path / "d", longest=9, split=divide(settings, quiet), report=quiet)

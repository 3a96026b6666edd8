import io
from pathlib import Path

import numpy as np
import pytest
import torch

from headway.data.alignment import build_alignment, open_alignment, words_of_tokens
from headway.data.batches import Resegment, collate
from headway.data.config import DataConfig
from headway.data.dropout import BpeDropout
from headway.data.feed import Feed
from headway.data.pairs import Pair
from headway.data.preparation import divide, prepare, reopen
from headway.data.store import build_store
from headway.data.tokenizer import Tokenizer, TokenizerConfig
from headway.data.word_dropout import WordDropout
from headway.errors import DataError

TEXTS = ["le chat mange", "  un\u00a0été 🙂  bleu ", "", "anticonstitutionnellement oui"]


def silent(*_):
    pass


@pytest.mark.parametrize("kind", ["bpe", "characters", "words"])
def test_every_token_stands_in_the_word_that_white_space_makes_of_the_text(kind):
    tokenizer = Tokenizer.train(["le chat mange un été bleu"], TokenizerConfig(kind=kind, vocabulary=280))
    for text, numbers in zip(TEXTS, words_of_tokens(tokenizer, TEXTS), strict=True):
        pieces = [shown for _, shown in tokenizer.pieces(text)]
        assert len(numbers) == len(pieces)
        words = text.split()
        assert {number for number in numbers if number >= 0} == set(range(len(words)))
        for piece, number in zip(pieces, numbers, strict=True):
            if number < 0:
                assert not piece.strip() or "‹" in piece, piece
            elif "‹" not in piece:
                assert piece.strip() in words[number]


def test_sentencepiece_has_words_too():
    sentencepiece = pytest.importorskip("sentencepiece")
    model = io.BytesIO()
    sentences = ["le chat mange la pomme"] * 50 + ["abcdefghij klmnop"] * 30
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences), model_writer=model, vocab_size=40, hard_vocab_limit=False, minloglevel=2
    )
    from headway.data.tokenizer import SentencePieceTokenizer

    tokenizer = SentencePieceTokenizer(sentencepiece.SentencePieceProcessor(model_proto=model.getvalue()))
    (numbers,) = words_of_tokens(tokenizer, ["le chaton  pomme"])
    pieces = [piece for _, piece in tokenizer.pieces("le chaton  pomme")]
    for word, spelled in enumerate(["le", "chaton", "pomme"]):
        assert "".join(p for p, n in zip(pieces, numbers, strict=True) if n == word).strip() == spelled
    told_by_blanks = WordDropout(tokenizer, 0.5).words(np.array(tokenizer.encode(["le chaton  pomme"])[0]))
    assert told_by_blanks.max() == 2


PAIRS = [
    Pair("le chat", "the cat", links="0-0 1-1"),
    Pair("un chien noir", "a black dog", links="0-0 1-2 2-1 2-1"),
    Pair("rien du tout " * 20, "nothing", links="0-0"),
    Pair("extraordinairement", "very extraordinary", tags=("fr",), links="0-0 0-1"),
    Pair("oui", "yes"),
]


@pytest.fixture(scope="module")
def tokenizer():
    lines = [text for pair in PAIRS for text in (pair.source, pair.target)]
    return Tokenizer.train(lines, TokenizerConfig(vocabulary=300), ["fr"])


@pytest.fixture(scope="module")
def built(tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    store = build_store(folder / "store", PAIRS, tokenizer, tokenizer, key={}, longest=30)
    links = build_alignment(
        folder / "alignment", PAIRS, tokenizer, tokenizer, key={"a": (1,)}, longest=30, progress=silent
    )
    return store, links


def expected(tokenizer, pair, targets, sources):
    """Token by token and link by link."""
    left, right = (words_of_tokens(tokenizer, [text])[0] for text in (pair.source, pair.target))
    mask = np.zeros((targets, sources), bool)
    for link in pair.links.split():
        word, translated = map(int, link.split("-"))
        for t, theirs in enumerate(right):
            for s, ours in enumerate(left):
                mask[t, s + len(pair.tags)] |= (ours, theirs) == (word, translated)
    return mask


def test_a_batch_links_every_token_of_a_target_word_to_every_token_of_its_source_words(tokenizer, built):
    store, links = built
    kept = [pair for pair in PAIRS if len(pair.source) < 60]
    assert len(links) == len(store) == len(kept) == 4
    chosen = np.array([2, 0, 3, 1])
    batch = collate(store, chosen, tokenizer, tokenizer, "padded", None, links)
    shape = batch.labels.shape[1], batch.source.tokens.shape[1]
    for row, place in enumerate(chosen):
        wanted = expected(tokenizer, kept[place], *shape)
        assert batch.alignment[row].tolist() == wanted.tolist()
    assert batch.alignment[0].sum() > 4  # the word of many tokens
    assert not batch.alignment[0][:, 0].any()  # its tag
    assert batch.to("meta").alignment.device.type == "meta"
    twice = batch.repeated(2)
    assert torch.equal(twice.alignment, torch.cat((batch.alignment, batch.alignment)))


def test_only_padded_batches_of_stored_segmentation_have_an_alignment(tokenizer, built):
    store, links = built
    again = Resegment(BpeDropout(tokenizer, 0.5), None, 1, 0)
    for layout, resegment in (("packed", None), ("padded", again)):
        assert collate(store, np.arange(2), tokenizer, tokenizer, layout, resegment, links).alignment is None
    assert collate(store, np.arange(2), tokenizer, tokenizer, "padded").alignment is None


def test_an_alignment_is_found_again_by_its_key_and_damage_is_noticed(tokenizer, tmp_path):
    folder = tmp_path / "alignment"
    assert open_alignment(folder, {}) is None
    for key in ({"a": 1}, {"a": 2}):
        build_alignment(folder, PAIRS, tokenizer, tokenizer, key=key, longest=30, progress=silent)
    assert open_alignment(folder, {"a": 1}) is None
    again = open_alignment(folder, {"a": 2})
    assert len(again) == len(PAIRS) - 1
    assert [path.name for path in tmp_path.iterdir()] == ["alignment"]
    (folder / "links").write_bytes(b"\xff" + (folder / "links").read_bytes()[1:])
    assert open_alignment(folder, {"a": 2}) is None


@pytest.fixture
def config(tmp_path):
    """Two hundred pairs of which some fall to cleaning and to validation, and their alignments."""
    lines = [f"mot{n} le chat" if n % 7 else "" for n in range(200)]
    (tmp_path / "s").write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "t").write_text("".join(f"the word{n}\n" for n in range(200)))
    (tmp_path / "a").write_text("".join("0-1 1-0\n" if line else "\n" for line in lines))
    return DataConfig(folder=tmp_path, source=Path("s"), target=Path("t"), alignment=Path("a"))


def prepared(config, folder):
    split = divide(config, silent)
    return prepare(config, TokenizerConfig(vocabulary=300), folder, longest=64, split=split, report=silent)


def test_links_stay_with_their_pairs_through_cleaning_and_held_out_pairs(config, tmp_path):
    ready = prepared(config, tmp_path / "data")
    assert len(ready.alignment) == len(ready.store) < 180
    feed = Feed(ready, seed=1, budget=256, layout="padded", folder=tmp_path / "plans", dropout=0.0, longest=63)
    count, made = feed.epoch(0, 0)
    for batch in made:
        for row, (source, labels) in enumerate(zip(batch.source.tokens, batch.labels, strict=True)):
            texts = ready.source.decode(source), ready.target.decode(labels)
            number = texts[0].split()[0].removeprefix("mot")
            assert texts == (f"mot{number} le chat", f"the word{number}")
            wanted = expected(ready.source, Pair(*texts, links="0-1 1-0"), *batch.alignment.shape[1:])
            assert batch.alignment[row].tolist() == wanted.tolist()
    assert count > 3
    again = reopen(config, tmp_path / "data")
    assert again.alignment.manifest == ready.alignment.manifest


def test_an_alignment_that_changed_is_not_resumed_from(config, tmp_path):
    prepared(config, tmp_path / "data")
    path = tmp_path / "a"
    path.write_text(path.read_text().replace("0-1", "1-1"))
    with pytest.raises(DataError, match="changed since this run began"):
        reopen(config, tmp_path / "data")


@pytest.mark.parametrize("name", ["MANIFEST.json", "links", "offsets"])
def test_a_damaged_alignment_is_built_again(config, tmp_path, name):
    before = prepared(config, tmp_path / "data").alignment
    (tmp_path / "data" / "alignment" / name).write_bytes(b"\xff")
    assert reopen(config, tmp_path / "data").alignment.manifest == before.manifest

"""Vocabularies that grow."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.data import extension
from headway.data.extension import extend, pieces_of_new
from headway.data.tokenizer import SPECIALS, Tokenizer, TokenizerConfig
from headway.errors import ConfigError

OLD = ["the cat sees the apple .", "the dog eats the bread ."] * 20
NEW = ["myocardial infarction was excluded", "infarction of the myocardium, <s> </s>", "naïve café 犬犬"] * 10
ADDED = 40


@pytest.fixture(scope="module")
def old():
    return Tokenizer.train(OLD, TokenizerConfig(vocabulary=290))


@pytest.fixture(scope="module")
def new(old):
    return extend(old, NEW, ADDED)


def taken_apart(old, new, ids):
    pieces = pieces_of_new(old, new)
    return [piece for token in ids for piece in ([token] if token < old.size else pieces[token - old.size])]


def test_an_extension_by_nothing_is_the_same_tokenizer(old):
    assert extend(old, NEW, 0) is old
    assert pieces_of_new(old, old) == []


def test_old_tokens_keep_their_ids_and_new_ones_stand_behind_them(old, new):
    before, after = old.backend.get_vocab(), new.backend.get_vocab()
    assert before.items() <= after.items()
    assert sorted(after.values()) == list(range(old.size + ADDED))
    roles = ("padding", "start", "end", "unknown")
    assert [getattr(new, role) for role in roles] == [getattr(old, role) for role in roles]


def test_new_text_becomes_shorter_and_old_text_stays_as_it_was(old, new):
    shorter, longer = (sum(map(len, tokenizer.encode(NEW))) for tokenizer in (new, old))
    assert shorter < 0.5 * longer
    assert new.encode(["the cat sees"]) == old.encode(["the cat sees"])
    assert len(new.encode(["infarction"])[0]) == 1


@settings(max_examples=150, deadline=None)
@given(text=st.text() | st.text(alphabet="myocardinftsle .é犬<>/"))
def test_taking_new_tokens_apart_gives_the_old_segmentation_and_text_comes_back_whole(text, old, new):
    (ids,) = new.encode([text])
    assert taken_apart(old, new, ids) == old.encode([text])[0]
    assert new.decode(ids) == text


def test_the_most_frequent_pairs_are_joined_first(old):
    grown = extend(old, ["zq"] * 9 + ["zx"] * 5 + ["zk"], 2)
    assert [grown.backend.id_to_token(token) for token in (old.size, old.size + 1)] == ["Ġz", "Ġzq"]


def test_a_pair_seen_once_is_not_worth_a_token(old):
    assert extend(old, ["qz xk"], 10).size == old.size


def test_extending_twice_gives_the_same_tokenizer(old, new):
    assert extend(old, NEW, ADDED).fingerprint() == new.fingerprint()


def test_an_extended_tokenizer_can_be_saved_and_extended_again(old, new, tmp_path):
    new.save(tmp_path / "tokenizer.json")
    again = extend(Tokenizer.load(tmp_path / "tokenizer.json"), ["überhaupt nicht"] * 5, 5)
    assert again.size == new.size + 5
    assert new.backend.get_vocab().items() <= again.backend.get_vocab().items()


def test_symbols_added_behind_the_vocabulary_keep_their_ids(old):
    tree = json.loads(old.to_json())
    symbol = {"id": old.size, "content": "<tag>", "special": True, "single_word": False, "lstrip": False,
              "rstrip": False, "normalized": False}  # fmt: skip
    tree["added_tokens"].append(symbol)
    import tokenizers

    from headway.data.tokenizer import JsonTokenizer

    tagged = JsonTokenizer(tokenizers.Tokenizer.from_str(json.dumps(tree)))
    grown = extend(tagged, NEW, 10)
    assert grown.backend.token_to_id("<tag>") == old.size
    assert grown.size == old.size + 11
    assert min(token for token in grown.encode(NEW)[0] if token >= old.size) > old.size


@pytest.mark.parametrize("kind", ["bpe", "words"])
def test_new_tags_become_symbols_that_no_text_can_spell(kind):
    tokenizer = Tokenizer.train(OLD, TokenizerConfig(kind=kind, vocabulary=290), ["known"])
    grown = extend(tokenizer, [*NEW, "<tag:new>"], 3, ["known", "new"])
    assert grown.tags == {"known": 4, "new": tokenizer.size}
    assert grown.size == tokenizer.size + 4
    assert pieces_of_new(tokenizer, grown)[0] == [tokenizer.unknown]
    assert grown.tags["new"] not in grown.encode(["<tag:new>"])[0]
    assert extend(grown, NEW, 0, ["new", "known"]) is grown
    assert extend(tokenizer, NEW, 0, ["new"]).size == tokenizer.size + 1


def test_the_words_counted_at_once_are_bounded(old, monkeypatch):
    monkeypatch.setattr(extension, "MOST_WORDS", 50)
    texts = [f"infarction w{number}" for number in range(400)]
    assert len(extension._counted(old.backend, texts)) <= 50
    assert len(extend(old, texts, 20).encode(["infarction"])[0]) == 1


@pytest.mark.parametrize(("kind", "text"), [("words", "infarction"), ("characters", "犬")])
def test_new_words_and_characters_are_appended_by_frequency(kind, text):
    config = TokenizerConfig(kind=kind)
    tokenizer = Tokenizer.train(OLD, config)
    grown = extend(tokenizer, [f"{text} {text} {text} ü <s>", "ü y"], 1)
    assert tokenizer.encode([text]) == [[tokenizer.unknown]]
    assert grown.size == tokenizer.size + 1
    assert grown.encode([text]) == [[tokenizer.size]]
    assert grown.encode(OLD) == tokenizer.encode(OLD)
    assert tokenizer.backend.get_vocab().items() <= grown.backend.get_vocab().items()
    assert pieces_of_new(tokenizer, grown) == [[tokenizer.unknown]]


def test_no_new_word_spells_a_control_symbol():
    tokenizer = Tokenizer.train(OLD, TokenizerConfig(kind="words"))
    grown = extend(tokenizer, [" ".join(SPECIALS)] * 9, 9)
    assert grown.size == tokenizer.size


def test_a_tokenizer_that_cannot_grow_is_refused(old, tmp_path):
    tree = json.loads(old.to_json())
    tree["model"]["ignore_merges"] = True
    (tmp_path / "tokenizer.json").write_text(json.dumps(tree))
    with pytest.raises(ConfigError, match=r"start\.extend: only byte-level BPE, characters and words can grow"):
        extend(Tokenizer.load(tmp_path / "tokenizer.json"), NEW, 5)


def test_a_sentencepiece_model_is_kept_but_not_extended(tmp_path):
    sentencepiece = pytest.importorskip("sentencepiece")
    options = {"vocab_size": 24, "pad_id": 3, "bos_id": 1, "eos_id": 2, "unk_id": 0, "minloglevel": 2}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(OLD), model_prefix=str(tmp_path / "pieces"), **options
    )
    tokenizer = Tokenizer.load(tmp_path / "pieces.model")
    assert extend(tokenizer, NEW, 0) is tokenizer
    with pytest.raises(ConfigError, match=r"start\.extend"):
        extend(tokenizer, NEW, 5)

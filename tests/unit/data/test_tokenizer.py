import json
import os
import subprocess
import sys
from collections import Counter

import pytest

from headway.config import validated
from headway.data import tokenizer as module
from headway.data.tokenizer import SentencePieceTokenizer, Tokenizer, TokenizerConfig
from headway.errors import ConfigError, DataError

LINES = ["The quick brown fox jumps over the lazy dog.", "Die Größe der Füße, <s> und </s> <pad>!", "naïve café"] * 20
SPELLED = ["<s>", "</s>", "<pad>", "<unk>", "a <s> b</s> ▁<pad>", "▁", "<s><s>"]


@pytest.fixture(scope="module")
def bpe():
    return Tokenizer.train(LINES, TokenizerConfig(vocabulary=320))


def controls(tokenizer):
    return {tokenizer.padding, tokenizer.start, tokenizer.end}


def test_special_symbols_have_the_first_four_ids(bpe):
    assert (bpe.padding, bpe.start, bpe.end, bpe.unknown) == (0, 1, 2, 3)


def test_the_vocabulary_has_the_size_asked_for(bpe):
    assert bpe.size == 320
    assert max(token for ids in bpe.encode(LINES) for token in ids) < 320


@pytest.mark.parametrize("kind", ["bpe", "characters", "words"])
@pytest.mark.parametrize("text", SPELLED)
def test_text_that_spells_a_control_symbol_never_becomes_one(kind, text, tmp_path):
    trained = Tokenizer.train([*LINES, *SPELLED], TokenizerConfig(kind=kind, vocabulary=320))
    trained.save(tmp_path / "tokenizer.json")
    for tokenizer in (trained, Tokenizer.load(tmp_path / "tokenizer.json")):
        assert controls(tokenizer).isdisjoint(tokenizer.encode([text])[0])
        assert controls(tokenizer).isdisjoint(token for token, _ in tokenizer.pieces(text))
        assert (tokenizer.padding, tokenizer.start, tokenizer.end, tokenizer.unknown) == (0, 1, 2, 3)


def test_no_control_symbol_comes_out_of_a_foreign_file(bpe, tmp_path):
    tree = json.loads(bpe.to_json())
    for added in tree["added_tokens"]:
        added["special"] = False  # then the library itself would take "<s>" in a text for the symbol
    (tmp_path / "tokenizer.json").write_text(json.dumps(tree))
    foreign = Tokenizer.load(tmp_path / "tokenizer.json")
    for text in SPELLED:
        assert controls(foreign).isdisjoint(foreign.encode([text])[0])


def test_a_saved_tokenizer_loads_as_it_was(bpe, tmp_path):
    bpe.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert loaded.to_json() == bpe.to_json()
    assert loaded.fingerprint() == bpe.fingerprint()
    assert loaded.encode(LINES) == bpe.encode(LINES)


def test_decoding_skips_special_symbols(bpe):
    ids = bpe.encode(["the fox"])[0]
    assert bpe.decode([bpe.start, *ids, bpe.unknown, bpe.end, bpe.padding]) == "the fox"


def test_training_does_not_depend_on_the_number_of_threads(bpe):
    script = (
        "import json, sys\n"
        "from headway.data.tokenizer import Tokenizer, TokenizerConfig\n"
        "sys.stdout.write(Tokenizer.train(json.load(sys.stdin), TokenizerConfig(vocabulary=320)).fingerprint())"
    )
    for threads in ("1", "3"):
        environment = {**os.environ, "RAYON_NUM_THREADS": threads, "TOKENIZERS_PARALLELISM": "true"}
        command, given = [sys.executable, "-c", script], json.dumps(LINES).encode()
        assert subprocess.check_output(command, input=given, env=environment).decode() == bpe.fingerprint()


@pytest.mark.parametrize("kind", ["characters", "words"])
def test_training_twice_gives_the_same_vocabulary(kind):
    config = TokenizerConfig(kind=kind)
    assert Tokenizer.train(LINES, config).to_json() == Tokenizer.train(LINES, config).to_json()


@pytest.mark.parametrize("vocabulary", [None, 5, 259])
def test_a_vocabulary_below_the_bytes_is_refused(vocabulary):
    with pytest.raises(ConfigError, match="at least 260"):
        Tokenizer.train(LINES, TokenizerConfig(vocabulary=vocabulary))


def test_the_smallest_vocabulary_still_encodes_everything():
    tokenizer = Tokenizer.train(["a"], TokenizerConfig(vocabulary=260))
    assert tokenizer.size == 260
    assert tokenizer.decode(tokenizer.encode(["日本 🎉\n"])[0]) == "日本 🎉\n"


def test_pieces_show_the_text_as_it_was_written(bpe):
    text = "  The Größe\tof café\n"
    pieces = bpe.pieces(text)
    assert "".join(shown for _, shown in pieces) == text
    assert [token for token, _ in pieces] == bpe.encode([text])[0]


def test_a_character_split_over_pieces_shows_its_bytes(bpe):
    assert [shown for _, shown in bpe.pieces("the🎉")][-4:] == ["‹F0›", "‹9F›", "‹8E›", "‹89›"]


@pytest.mark.parametrize("text", ["the fox", "x", " x", "   fox", "\nx", ""])
def test_pieces_show_nothing_that_was_not_written(bpe, text):
    assert "".join(shown for _, shown in bpe.pieces(text)) == text


def test_the_first_word_is_the_same_token_as_inside_a_sentence(bpe):
    assert bpe.encode(["the the"])[0] == 2 * bpe.encode(["the"])[0]


@pytest.mark.parametrize("kind", ["bpe", "words"])
def test_whole_words_are_found_by_their_spelling(kind):
    tokenizer = Tokenizer.train(LINES, TokenizerConfig(kind=kind, vocabulary=320))
    assert tokenizer.encode(["the"])[0] == [tokenizer.words()["the"]]
    assert "<s>" not in tokenizer.words()


def test_every_character_is_one_token():
    tokenizer = Tokenizer.train(["añ b\r\n🎉"], TokenizerConfig(kind="characters"))
    text = "b\n  🎉ñ\r"
    ids = tokenizer.encode([text])[0]
    assert len(ids) == len(text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.encode(["aZ"])[0][1] == tokenizer.unknown


def test_words_are_split_at_whitespace():
    tokenizer = Tokenizer.train(["one two three.", "two"], TokenizerConfig(kind="words"))
    ids = tokenizer.encode(["two  three. four"])[0]
    assert len(ids) == 3
    assert ids[2] == tokenizer.unknown
    assert tokenizer.decode(ids) == "two three."


def test_word_vocabularies_are_not_cut_at_a_hidden_limit():
    words = [f"w{number}" for number in range(30_500)]
    assert Tokenizer.train(words, TokenizerConfig(kind="words")).size == 30_504


def test_a_lone_surrogate_is_refused_by_name(bpe):
    with pytest.raises(DataError, match=r"text 2: a lone surrogate U\+D800 at character 2"):
        bpe.encode(["fine", "a\ud800"])
    with pytest.raises(DataError, match="surrogate"):
        Tokenizer.train(["\udc80"], TokenizerConfig(vocabulary=300))


def test_no_texts_give_no_ids(bpe):
    assert bpe.encode([]) == []
    assert bpe.encode(["", "a"])[0] == []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not json",
        b"[]",
        b"{}",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"model":{"type":"BPE","vocab":{"a":1},"merges":[["a","b"]]}}',
    ],
)
def test_a_malformed_file_is_refused_in_one_line(content, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        Tokenizer.load(path)
    assert str(caught.value).startswith(f"{path}: not a tokenizer.json")
    assert "\n" not in str(caught.value)


def test_absurd_ids_are_refused(bpe, tmp_path):
    tree = {"version": "1.0", "model": {"type": "WordLevel", "vocab": {"<unk>": 4_000_000_000}, "unk_token": "<unk>"}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(tree))
    with pytest.raises(DataError, match="4000000000"):
        Tokenizer.load(tmp_path / "tokenizer.json")


@pytest.mark.parametrize("highest", [9, 10])
def test_a_vocabulary_may_leave_out_as_many_ids_as_it_has(highest, tmp_path):
    tree = {
        "version": "1.0",
        "model": {
            "type": "WordLevel",
            "vocab": {"[PAD]": 0, "<s>": 1, "</s>": 2, "<unk>": 3, "a": highest},
            "unk_token": "<unk>",
        },
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(tree))
    if highest < 10:
        assert Tokenizer.load(tmp_path / "tokenizer.json").size == 10
    else:
        with pytest.raises(DataError, match="ids up to 10 for 5 tokens"):
            Tokenizer.load(tmp_path / "tokenizer.json")


def test_a_missing_symbol_is_named(tmp_path):
    tree = {
        "version": "1.0",
        "model": {"type": "WordLevel", "vocab": {"[PAD]": 0, "</s>": 1, "<unk>": 2}, "unk_token": "<unk>"},
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(tree))
    with pytest.raises(DataError, match="no symbol for start"):
        Tokenizer.load(tmp_path / "tokenizer.json")


def test_a_foreign_file_may_name_its_symbols_otherwise(tmp_path):
    names = {"x": 0, "[PAD]": 4, "[CLS]": 3, "[SEP]": 2, "[UNK]": 1}
    tree = {"version": "1.0", "model": {"type": "WordLevel", "vocab": names, "unk_token": "[UNK]"}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(tree))
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert (loaded.padding, loaded.start, loaded.end, loaded.unknown, loaded.size) == (4, 3, 2, 1, 5)


def test_a_foreign_file_cannot_truncate_pad_or_randomise(bpe, tmp_path):
    tree = json.loads(bpe.to_json())
    tree["truncation"] = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    tree["padding"] = {
        "strategy": {"Fixed": 50},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "<pad>",
    }
    tree["model"]["dropout"] = 0.9
    (tmp_path / "tokenizer.json").write_text(json.dumps(tree))
    assert Tokenizer.load(tmp_path / "tokenizer.json").encode(LINES) == bpe.encode(LINES)


def test_a_file_beyond_the_limit_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LARGEST_FILE", 2**20)
    (tmp_path / "tokenizer.json").write_bytes(b" " * (2**20 + 1))
    with pytest.raises(DataError, match="larger than 1 MB"):
        Tokenizer.load(tmp_path / "tokenizer.json")


@pytest.mark.parametrize("name", ["missing.json", "missing.model", "."])
def test_a_file_that_cannot_be_read_is_named(name, tmp_path):
    with pytest.raises(DataError, match=r"no such file|is a folder"):
        Tokenizer.load(tmp_path / name)


@pytest.mark.parametrize("dropout", [-0.1, 1.0, 1.5])
def test_a_dropout_that_is_no_probability_below_one_is_refused(dropout):
    with pytest.raises(ConfigError, match="dropout"):
        validated(TokenizerConfig, {"dropout": dropout}, "recipe")


def sentencepiece_model(folder, **options):
    sentencepiece = pytest.importorskip("sentencepiece")
    settings = {"vocab_size": 45, "pad_id": 3, "bos_id": 1, "eos_id": 2, "unk_id": 0, "minloglevel": 2} | options
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_prefix=str(folder / "pieces"), **settings
    )
    return folder / "pieces.model"


def test_a_sentencepiece_model_serves_alike(tmp_path):
    tokenizer = Tokenizer.load(sentencepiece_model(tmp_path))
    assert isinstance(tokenizer, SentencePieceTokenizer)
    assert (tokenizer.padding, tokenizer.start, tokenizer.end, tokenizer.unknown, tokenizer.size) == (3, 1, 2, 0, 45)
    text = "The quick fox"
    ids = tokenizer.encode([text])[0]
    assert tokenizer.decode([tokenizer.start, *ids, tokenizer.end]) == text
    assert [token for token, _ in tokenizer.pieces(text)] == ids
    assert "".join(shown for _, shown in tokenizer.pieces(text)).strip() == text
    for spelled in SPELLED:
        assert controls(tokenizer).isdisjoint(tokenizer.encode([spelled])[0])
    assert tokenizer.words().keys() == {tokenizer.processor.id_to_piece(i)[1:] for i in tokenizer.words().values()}
    tokenizer.save(tmp_path / "again.model")
    assert Tokenizer.load(tmp_path / "again.model").fingerprint() == tokenizer.fingerprint()


def test_a_sentencepiece_model_without_padding_pads_with_its_start_symbol(tmp_path):
    tokenizer = Tokenizer.load(sentencepiece_model(tmp_path, pad_id=-1))
    assert tokenizer.padding == tokenizer.start != tokenizer.end


def test_a_sentencepiece_model_without_an_end_is_refused(tmp_path):
    with pytest.raises(DataError, match="no symbol for end"):
        Tokenizer.load(sentencepiece_model(tmp_path, eos_id=-1))


@pytest.mark.parametrize("content", [b"", b"nonsense" * 10])
def test_a_malformed_sentencepiece_model_is_refused(content, tmp_path):
    pytest.importorskip("sentencepiece")
    (tmp_path / "bad.model").write_bytes(content)
    with pytest.raises(DataError, match=r"bad\.model: "):
        Tokenizer.load(tmp_path / "bad.model")


def test_sentencepiece_missing_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    (tmp_path / "pieces.model").write_bytes(b"anything")
    with pytest.raises(DataError, match=r"pip install 'headway\[sentencepiece\]'"):
        Tokenizer.load(tmp_path / "pieces.model")


@pytest.mark.parametrize("letters", ["a", " ", "\u0301", "ab", "語", "a."], ids=ascii)
@pytest.mark.parametrize("kind", ["bpe", "words"])
def test_a_word_without_end_is_learnt_from_in_pieces(kind, letters):
    """What the library would learn from one word alone would take the square of its length."""
    config = TokenizerConfig(kind=kind, vocabulary=320)
    text = (letters * 300_000)[:300_000]
    learnt = Tokenizer.train([*LINES, text], config)
    assert max(len(learnt.spelling(token)) for token in range(learnt.size)) <= module.LONGEST_WORD
    assert learnt.fingerprint() == Tokenizer.train([*LINES, *module._divided([text])], config).fingerprint()
    assert max(map(len, next(module._divided([text])).split()), default=0) <= module.LONGEST_WORD


@pytest.mark.parametrize("words", [["語" * 999, "le", "chat"], ["a" * 1000, "b" * 1000], ["x", "", "", "y"] * 300])
def test_words_up_to_the_limit_are_learnt_from_as_they_stand(words):
    text = " ".join(words)
    divided = next(module._divided([text]))
    assert divided.replace("\n", "") == text
    assert divided.split() == text.split()


ODD_BLANKS = [
    "a  b\tc ",
    "  x\u00a0y  z",
    "le chat\n",
    "\t\ttab",
    "",
    " ",
    "x" * 30 + "  ",
    "你好世界 再见",
    "the cat the cat's",
]


@pytest.mark.parametrize("texts", [ODD_BLANKS * 3, [f"le chat {n % 7} voit la pomme {n % 13}" for n in range(300)]])
def test_counted_words_teach_what_the_texts_teach(texts, monkeypatch):
    learned = Tokenizer.train(texts, TokenizerConfig(vocabulary=320)).to_bytes()
    monkeypatch.setattr(module, "_counted", iter)
    assert Tokenizer.train(texts, TokenizerConfig(vocabulary=320)).to_bytes() == learned


def test_of_many_different_words_the_common_ones_and_a_share_of_the_rare_ones_are_learnt_from(monkeypatch):
    monkeypatch.setattr(module, "MOST_WORDS", 100)
    texts = [f"common rare{n} {'late' * (n >= 1500)}" for n in range(3000)]
    found = Counter(" ".join(module._counted(texts)).split())
    assert len(found) <= 100
    assert found["common"] == 3000
    assert 1300 < found["late"] < 1700
    assert 1500 < found.total() - 4500 < 6000  # the few stand for all


def test_words_are_the_tokens_that_begin_with_a_blank_without_it(bpe):
    words = bpe.words()
    assert "" not in words and "fox" not in words  # too rare to be a token of its own
    assert {token: bpe.spelling(token) for token in words.values()} == {
        token: f" {word}" for word, token in words.items()
    }
    assert len(words) == sum(bpe.spelling(token).startswith(" ") for token in range(bpe.size)) - 1  # the blank alone


def test_of_too_many_words_a_sample_stands_for_the_rare_ones_and_frequent_ones_keep_their_counts(monkeypatch):
    monkeypatch.setattr(module, "MOST_WORDS", 100)
    frequent = {f"often{number}": 20 + number for number in range(20)}
    texts = [" ".join([word] * count) for word, count in frequent.items()] + [f"rare{n}" for n in range(800)]
    counts = Counter(word for text in module._counted(texts) for word in text.split())
    assert {word: counts[word] for word in frequent} == frequent
    rare = {word: count for word, count in counts.items() if word.startswith("rare")}
    assert len(rare) <= 80 and sum(rare.values()) == pytest.approx(800, rel=0.3)

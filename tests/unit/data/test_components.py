import base64
import io
import json
import random
from contextlib import suppress

import pytest
import sentencepiece
import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors

from headway.data.components import check_pieces, checked, table_growth
from headway.data.tokenizer import SPECIALS, Tokenizer
from headway.errors import DataError
from sentences import SENTENCES

GPT4 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
TEXTS = [*SENTENCES[:5], "", "  e\u0301\u0301ﬁ ½ ﷺ Ａ 🙂\t<s>x</s>", "##at  ▁le"]


@pytest.fixture(scope="module")
def pieces():
    """A sentencepiece model."""
    content = io.BytesIO()
    settings = {"vocab_size": 40, "hard_vocab_limit": False, "minloglevel": 9}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(SENTENCES), model_writer=content, **settings)
    return content.getvalue()


@pytest.fixture(scope="module")
def table(pieces):
    """Its table of characters that are replaced."""
    name = b"\x0a\x08nmt_nfkc\x12"
    after = pieces[pieces.index(name) + len(name) :]  # the size in three bytes of seven bits
    return after[3 : 3 + sum((byte & 0x7F) << 7 * place for place, byte in enumerate(after[:3]))]


def vocabulary():
    return {token: place for place, token in enumerate([*SPECIALS, *"abcdefghijklmnop ▁é", "le", "ch", "##at", "▁le"])}


def made(model, **parts):
    backend = tokenizers.Tokenizer(model)
    for kind, part in parts.items():
        setattr(backend, kind, part)
    backend.add_special_tokens(list(SPECIALS))
    return json.loads(backend.to_str())


def like_bert():
    return made(
        models.WordPiece(vocabulary(), unk_token="<unk>"),
        normalizer=normalizers.BertNormalizer(),
        pre_tokenizer=pre_tokenizers.BertPreTokenizer(),
        post_processor=processors.TemplateProcessing("<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]),
        decoder=decoders.WordPiece(),
    )


def like_xlm(table):
    tree = made(
        models.Unigram([(token, -float(place)) for token, place in vocabulary().items()], unk_id=3),
        pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]),
        decoder=decoders.Metaspace(),
    )
    replaced = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(table).decode()}
    blanks = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}
    return tree | {"normalizer": {"type": "Sequence", "normalizers": [replaced, blanks]}}


def like_llama():
    blank = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    model = models.BPE(vocabulary(), [("l", "e"), ("c", "h")], unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    return made(model, normalizer=blank, decoder=decoders.Sequence(parts))


def like_gpt4():
    split = pre_tokenizers.Split(Regex(GPT4), "isolated")
    divided = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(use_regex=False)])
    model = models.BPE(vocabulary(), [("l", "e")])
    return made(model, pre_tokenizer=divided, decoder=decoders.ByteLevel(), post_processor=processors.ByteLevel())


def of_words():
    return made(models.WordLevel(vocabulary(), unk_token="<unk>"), pre_tokenizer=pre_tokenizers.Whitespace())


@pytest.mark.parametrize("kind", ["bert", "xlm", "llama", "gpt4", "words"])
@pytest.mark.parametrize("typed", [True, False])
def test_ordinary_tokenizers_load_and_encode_as_the_library_does(kind, typed, table, tmp_path):
    makers = {"bert": like_bert, "xlm": lambda: like_xlm(table), "llama": like_llama, "gpt4": like_gpt4}
    tree = makers.get(kind, of_words)()
    backend = tokenizers.Tokenizer.from_str(json.dumps(tree))
    backend.encode_special_tokens = True
    if not typed:  # as older files are
        del tree["model"]["type"]
    (tmp_path / "tokenizer.json").write_text(json.dumps(tree))
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert loaded._encode(TEXTS) == [each.ids for each in backend.encode_batch(TEXTS, add_special_tokens=False)]
    assert loaded.to_json() == backend.to_str(pretty=True)


def test_padding_and_truncation_that_a_file_asks_for_are_left_out(tmp_path):
    long = {"strategy": {"Fixed": 10**9}, "direction": "Right", "pad_id": 0, "pad_type_id": 0, "pad_token": "x"}
    cut = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 5}
    asked = {"padding": long | {"pad_to_multiple_of": None}, "truncation": cut}
    (tmp_path / "tokenizer.json").write_text(json.dumps(of_words() | asked))
    assert len(Tokenizer.load(tmp_path / "tokenizer.json").encode(["a b c"])[0]) == 3


LINEAR = [
    r"[\s\S]", r"\s+", r" {2,}", r"\p{N}", r"\p{N}{1,3}", "[0-9][0-9][0-9]", r"[\r\n]", r"\s?[!-/:-~！-／]+",
    r"'ll|x", r" ?\p{L}+|\.", r"[^\s\p{L}\p{N}]+[\r\n]*", GPT4,
]  # fmt: skip
UNKNOWN = [
    "(a+)+b", r"\s+$", "a*a*b", "(?:a|a)*", "x*x", "a+b", "[a&&b]+", "(?=x)", "a{999}", ".*", r"\1+", "a+?b", "a++",
    "a|", "|a", "a{1,}{2,}", "a*", "a?", "^a", GPT4 + "x", "[[a]b]", "(", "[", "\\",
]  # fmt: skip


@pytest.mark.parametrize("pattern", LINEAR + UNKNOWN)
def test_an_expression_is_one_of_a_known_shape_or_refused(pattern):
    tree = of_words()
    tree["normalizer"] = {"type": "Replace", "pattern": {"Regex": pattern}, "content": "x"}
    content = json.dumps(tree).encode()
    if pattern in LINEAR:
        assert json.loads(checked(content, "file")) == tree
    else:
        with pytest.raises(DataError, match="none of the known ones"):
            checked(content, "file")


def test_the_table_of_sentencepiece_makes_a_text_eleven_times_longer_at_most(table):
    assert table_growth(table) == 11  # U+FDFA


def test_a_model_of_sentencepiece_passes(pieces):
    check_pieces(pieces, "file")


def test_a_damaged_table_is_refused_or_the_library_reads_it(table, tmp_path, capfd):
    chance, tree = random.Random(5), like_xlm(table)
    for _ in range(30):
        damaged = bytearray(table)
        for _ in range(chance.choice((1, 10, 1000))):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        tree["normalizer"]["normalizers"][0]["precompiled_charsmap"] = base64.b64encode(damaged).decode()
        (tmp_path / "tokenizer.json").write_text(json.dumps(tree))
        with suppress(DataError):
            Tokenizer.load(tmp_path / "tokenizer.json").encode(TEXTS)
    assert capfd.readouterr().err == ""

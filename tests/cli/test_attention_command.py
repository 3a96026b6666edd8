"""`headway attention` and `headway embed` with tags, and of an output that is given."""

import json

import pytest
import torch

from headway.data.tokenizer import Tokenizer, TokenizerConfig
from headway.models.transformer import Transformer, TransformerConfig
from headway.search import DecodingConfig
from headway.translator import Translator, load

TEXTS = ["le chat voit la pomme", "un chien mange le pain", "tout"]


@pytest.fixture(scope="module")
def tagged(tmp_path_factory):
    """A model with two tags."""
    tokenizer = Tokenizer.train(TEXTS, TokenizerConfig(vocabulary=300), ["en", "de"])
    config = TransformerConfig(dim=16, heads=2, hidden=16, encoder_layers=1, decoder_layers=1, longest=32)
    torch.manual_seed(1)
    model = Transformer(config, tokenizer.size, tokenizer.size).eval()
    folder = tmp_path_factory.mktemp("models") / "tagged"
    Translator(model, tokenizer, tokenizer, DecodingConfig(beam=2, longest=12)).save(folder)
    return folder


def test_a_tag_is_shown_among_what_was_read(headway, tagged, tmp_path):
    for tags in ((), ("de",), ("en", "de")):
        options = [word for tag in tags for word in ("--tag", tag)]
        outcome = headway("attention", tagged, TEXTS[0], *options, "--out", tmp_path / "a.html", "--overwrite")
        wanted = load(tagged)(TEXTS[0], tags=tags)
        assert outcome.lines == [str(wanted)]
        assert (tmp_path / "a.html").read_text("utf-8") == wanted.attention.html()
        assert wanted.attention.source[: len(tags)] == tuple(f"⟨{tag}⟩" for tag in tags)


def test_the_attention_of_a_given_output_is_shown(headway, tagged, tmp_path):
    outcome = headway("attention", tagged, TEXTS[0], "--target", "un chien mange", "--out", tmp_path / "a.html")
    assert outcome.lines == ["un chien mange"]
    translator = load(tagged)
    wanted = translator.attention(TEXTS[0], translator.target.encode(["un chien mange"])[0])
    assert (tmp_path / "a.html").read_text("utf-8") == wanted.html()
    assert headway("attention", tagged, TEXTS[0], "--target", " ", "--out", tmp_path / "b.html").lines == [""]


def test_what_cannot_be_looked_at_is_refused_in_one_line(headway, tagged, tmp_path):
    out = ("--out", tmp_path / "a.html")
    assert "it knows en, de" in headway("attention", tagged, "tout", "--tag", "fr", *out).only_complaint
    assert (
        "it knows en, de" in headway("attention", tagged, "tout", "--target", "x", "--tag", "fr", *out).only_complaint
    )
    told = headway("attention", tagged, "tout", "--target", "chat " * 40, *out).only_complaint
    assert "--target: 41 target tokens, the model knows 31; give a shorter one" in told
    assert "it knows en, de" in headway("embed", tagged, "--tag", "fr", stdin=b"").only_complaint
    assert list(tmp_path.iterdir()) == []


def test_vectors_know_the_tag_before_them_and_are_those_of_the_text_alone(headway, tagged):
    plain, german, both = (
        json.loads(headway("embed", tagged, *tags, stdin=TEXTS[0].encode()).lines[0])
        for tags in ((), ("--tag", "de"), ("--tag", "en", "--tag", "de"))
    )
    assert plain["tokens"] == german["tokens"] == both["tokens"]
    assert "".join(plain["tokens"]).strip() == TEXTS[0]
    assert len(plain["vectors"]) == len(german["vectors"]) == len(plain["tokens"])
    assert plain["vectors"] != german["vectors"] != both["vectors"]
    ((*_, (_, last)),) = load(tagged).embed([TEXTS[0]])
    assert plain["vectors"][-1] == pytest.approx(last.tolist(), abs=1e-5)


def test_a_line_longer_than_the_model_knows_has_vectors_of_its_beginning(headway, tagged):
    for options, room in (((), 31), (("--tag", "de"), 30)):
        record = json.loads(headway("embed", tagged, *options, stdin=b"chat " * 99 + b"\n").lines[0])
        assert len(record["tokens"]) == len(record["vectors"]) == room
    assert headway("embed", tagged, "--tag", "de", stdin=b"\n").json == {"tokens": [], "vectors": []}

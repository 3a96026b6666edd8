"""Tags before the source: in Python, on the command line, and in validation."""

import pytest
import torch

from headway.data.pairs import Pair
from headway.data.tokenizer import Tokenizer, TokenizerConfig
from headway.errors import ConfigError
from headway.models.transformer import Transformer, TransformerConfig
from headway.objectives import LabelSmoothedLikelihood
from headway.search import DecodingConfig
from headway.translator import Translator, load
from headway.validation import Validator

TEXTS = ["le chat voit la pomme", "un chien mange le pain", "tout"]


@pytest.fixture(scope="module")
def tagged_folder(tmp_path_factory):
    tokenizer = Tokenizer.train(TEXTS, TokenizerConfig(vocabulary=300), ["en", "de"])
    config = TransformerConfig(dim=16, heads=2, hidden=16, encoder_layers=1, decoder_layers=1, longest=32)
    torch.manual_seed(1)
    model = Transformer(config, tokenizer.size, tokenizer.size).eval()
    with torch.no_grad():  # a model that would like nothing better than to write a tag
        model.output.weight[tokenizer.tags["de"]] *= 50
    folder = tmp_path_factory.mktemp("models") / "tagged"
    Translator(model, tokenizer, tokenizer, DecodingConfig(beam=2, longest=12)).save(folder)
    return folder


@pytest.fixture(scope="module")
def translator(tagged_folder):
    return load(tagged_folder)


def test_tags_stand_before_the_tokens_of_a_source_and_blank_texts_have_none(translator):
    plain = translator.tokenize(TEXTS)
    tags = translator.source.tagged(["en", "de"])
    assert translator.tokenize([*TEXTS, " "], tags=["en", "de"]) == [*(tags + ids for ids in plain), []]


def test_a_call_with_tags_reads_them(translator):
    answers = {tags: translator(TEXTS[0], tags=tags) for tags in ((), ("en",), ("de",), ("en", "de"))}
    assert len({answer.score for answer in answers.values()}) == 4
    assert translator([TEXTS[0]], tags=["en"])[0].score == answers["en",].score
    assert answers["en", "de"].tags == ("en", "de")
    assert answers["en", "de"].attention.source[:2] == ("⟨en⟩", "⟨de⟩")
    assert answers["en", "de"].attention.cross.shape[-1] == answers[()].attention.cross.shape[-1] + 2


def test_a_tag_is_never_written(translator):
    tags = set(translator.target.tags.values())
    for beam in (1, 3):
        for answer in translator(TEXTS, beam=beam, tags=["de"]):
            assert not tags & {token for each in answer.hypotheses for token in each.tokens}


def test_an_unknown_tag_is_refused_and_none_is_the_users_choice(translator):
    with pytest.raises(ConfigError, match="tag 'fr': not a tag of this tokenizer; it knows en, de"):
        translator(TEXTS[0], tags=["fr"])
    assert translator(TEXTS[0]).tags == ()


def test_the_command_line_takes_tags(headway, tagged_folder, translator, tmp_path):
    (tmp_path / "in").write_text("".join(f"{text}\n" for text in TEXTS))
    told = headway("translate", tagged_folder, "--input", tmp_path / "in", "--nbest", 1, "--tag", "en", "--tag", "de")
    wanted = translator(TEXTS, tags=["en", "de"], nbest=1)
    assert [line.rpartition(" ")[2] for line in told.lines] == [f"{answer.score:.6f}" for answer in wanted]
    files = ("--source", tmp_path / "in", "--reference", tmp_path / "in")
    (tmp_path / "out").write_text("".join(f"{answer}\n" for answer in translator(TEXTS, tags=["de"])))
    scored = headway("evaluate", tagged_folder, *files, "--tag", "de", "--json").json
    assert scored == headway("evaluate", tmp_path / "out", "--reference", tmp_path / "in", "--json").json


@pytest.mark.parametrize("content", [b"le chat\n", b""])
def test_the_command_line_refuses_an_unknown_tag(content, headway, tagged_folder, model_folder):
    assert "it knows en, de" in headway("translate", tagged_folder, "--tag", "fr", stdin=content).only_complaint
    assert "it knows none" in headway("translate", model_folder, "--tag", "fr", stdin=content).only_complaint


def test_validation_translates_with_the_tags_of_each_pair(translator, monkeypatch):
    searched = []
    real = Translator.search
    monkeypatch.setattr(
        Translator, "search", lambda self, given, **rest: searched.extend(given) or real(self, given, **rest)
    )
    pairs = [Pair(TEXTS[0], "x", 1, 0, ("en",)), Pair(TEXTS[1], "y", 2, 1, ()), Pair(" ", "z", 3, 0, ("de",))]
    validator = Validator(
        translator.source, translator.target, pairs, [], torch.device("cpu"), 3, 0, LabelSmoothedLikelihood()
    )
    validator(translator.model, lambda: None)
    plain = translator.tokenize(TEXTS[:2])
    assert [list(each.source) for each in searched] == [[translator.source.tags["en"], *plain[0]], plain[1], []]

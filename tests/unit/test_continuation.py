"""Texts drawn from a language model."""

import pytest
import torch

from headway.continuation import continuations
from headway.data.tokenizer import Tokenizer, TokenizerConfig
from headway.errors import ConfigError
from headway.models.language import LanguageConfig, LanguageModel
from headway.models.transformer import Transformer, TransformerConfig
from headway.search import DecodingConfig
from headway.translator import Translator

TEXTS = ["le chat voit la pomme", "un chien mange", "la reine garde tout le pain"]
TOKENIZER = Tokenizer.train(TEXTS, TokenizerConfig(kind="words"))


@pytest.fixture(scope="module")
def translator():
    torch.manual_seed(1)
    model = LanguageModel(LanguageConfig(dim=16, heads=2, hidden=16, layers=1, longest=12), *[TOKENIZER.size] * 2)
    return Translator(model.eval(), TOKENIZER, TOKENIZER, DecodingConfig(limit_extra=11))


def test_a_text_hangs_on_its_number_and_the_seed_alone(translator):
    many = continuations(translator, [""] * 40)
    assert len(set(many)) > 30
    assert continuations(translator, [""] * 3, first=20) == many[20:23]
    assert continuations(translator, [""] * 40, seed=0) == many
    assert continuations(translator, [""] * 40, seed=1) != many


def test_every_text_begins_as_it_must(translator):
    found = continuations(translator, ["le chat", "", "la reine "])
    assert found[0].startswith("le chat") and found[2].startswith("la reine")
    assert len(found[0].hypotheses[0].tokens) <= translator.longest


def test_a_low_temperature_draws_what_a_beam_of_one_finds(translator):
    cold = continuations(translator, [""] * 3, temperature=1e-3)
    assert set(cold) == set(continuations(translator, [""], sample=False, beam=1))


def test_the_probability_told_is_that_of_scoring_the_text(translator):
    from headway.scoring import score_tokens

    found = [text.hypotheses[0] for text in continuations(translator, ["", "le chat", "tout"] * 4)]
    ended = [each for each in found if each.finished]
    assert ended
    scored = score_tokens(translator, [((), each.tokens) for each in ended])
    for one, other in zip(ended, scored, strict=True):
        assert other.token_log_probabilities == pytest.approx(one.token_log_probabilities, abs=1e-4)


def test_a_beginning_that_the_model_cannot_write_is_refused(translator):
    with pytest.raises(ConfigError, match="shorter beginning"):
        continuations(translator, ["le chat " * 8])
    with pytest.raises(ConfigError, match="cannot write"):
        continuations(translator, ["zèbre"])


def test_a_model_with_a_source_draws_no_texts():
    config = TransformerConfig(dim=8, heads=2, hidden=8, encoder_layers=1, decoder_layers=1, longest=12)
    model = Transformer(config, TOKENIZER.size, TOKENIZER.size)
    with pytest.raises(ConfigError, match="language model"):
        continuations(Translator(model, TOKENIZER, TOKENIZER, DecodingConfig()), [""])


def test_a_language_model_translates_nothing(translator):
    with pytest.raises(ConfigError, match="headway sample"):
        translator("le chat")
    with pytest.raises(ConfigError, match="headway sample"):
        list(translator.stream("le chat"))

"""Perplexity, by token, word and character."""

import math

import pytest
import torch

from headway.data.tokenizer import Tokenizer, TokenizerConfig
from headway.models.language import LanguageConfig, LanguageModel
from headway.scoring import score, tally
from headway.search import DecodingConfig
from headway.translator import Translator

TEXTS = ["le chat voit la pomme", "", "un chien", "tout", "la reine mange le pain de la reine"]
TOKENIZER = Tokenizer.train(TEXTS, TokenizerConfig(vocabulary=280))


@pytest.fixture(scope="module")
def translator():
    torch.manual_seed(1)
    model = LanguageModel(LanguageConfig(dim=16, heads=2, hidden=16, layers=2, longest=64), *[TOKENIZER.size] * 2)
    return Translator(model.eval(), TOKENIZER, TOKENIZER, DecodingConfig())


@torch.inference_mode()
def surprise_of(translator, text):
    """Nats of a text and its end, token by token through the memory of decoding."""
    model, total = translator.model, 0.0
    from headway.sequences import Sequences

    state, newest = model.start(model.encode(Sequences.pad([[0]], 0))), TOKENIZER.start
    for token in [*TOKENIZER.encode([text])[0], TOKENIZER.end]:
        found, state = model.step(torch.tensor([[newest]]), None, state)
        total, newest = total - float(found[0, 0, token]), token
    return total


def test_perplexity_is_that_of_a_loop_over_tokens(translator):
    nats = sum(surprise_of(translator, text) for text in TEXTS)
    found = tally(translator, TEXTS)
    tokens = sum(len(ids) + 1 for ids in TOKENIZER.encode(TEXTS))
    assert (found.texts, found.tokens) == (len(TEXTS), tokens)
    assert found.log_probability == pytest.approx(-nats, rel=1e-5)
    assert found.perplexity == pytest.approx(math.exp(nats / tokens), rel=1e-5)
    words = sum(len(text.split()) + 1 for text in TEXTS)
    assert found.word_perplexity == pytest.approx(math.exp(nats / words), rel=1e-4)
    characters = sum(len(f"{text}\n") for text in TEXTS)
    assert found.bits_per_character == pytest.approx(nats / math.log(2) / characters, rel=1e-5)


def test_a_blank_text_is_the_end_symbol_alone(translator):
    (blank, other) = score(translator, [("", ""), ("", "tout")])
    assert len(blank.token_log_probabilities) == 1
    assert blank.log_probability == pytest.approx(-surprise_of(translator, ""), abs=1e-5)
    assert other.log_probability < 0.0


def test_a_source_changes_nothing(translator):
    pairs = [("le chat", "un chien"), ("", "un chien")]
    assert len({each.log_probability for each in score(translator, pairs)}) == 1


def test_nothing_comes_to_nothing():
    from headway.scoring import Tally

    assert (Tally().perplexity, Tally().bits_per_character) == (1.0, 0.0)

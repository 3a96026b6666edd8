"""What a model gives outputs that are handed to it."""

import pytest
import torch

from headway import scoring
from headway.data.tokenizer import Tokenizer, TokenizerConfig
from headway.errors import ConfigError, DataError
from headway.models.transformer import Transformer, TransformerConfig
from headway.nn.embedding import Projection
from headway.scoring import score, score_tokens, tokenize
from headway.search import DecodingConfig
from headway.translator import Translator

TEXTS = ["le chat voit la pomme", "un chien mange", "la reine", "le chat mange tout le pain de la reine", "tout"]
PAIRS = [(text, " ".join(reversed(text.split()))) for text in TEXTS]
TOKENIZER = Tokenizer.train(TEXTS, TokenizerConfig(kind="words"), ["en", "de"])


def built(seed=3, decoding=None, **settings):
    torch.manual_seed(seed)
    sizes = {
        "dim": 16,
        "heads": 2,
        "hidden": 16,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "longest": 24,
        "tie": "none",
    }
    model = Transformer(TransformerConfig(**sizes | settings), TOKENIZER.size, TOKENIZER.size).eval()
    with torch.no_grad():
        model.output.weight *= 1.5  # so that one token is far from as likely as another
        model.output.bias[TOKENIZER.end] += 4.0  # and outputs end
    return Translator(model, TOKENIZER, TOKENIZER, decoding or DecodingConfig(beam=4, nbest=4, shortest_extra=3))


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary", "relative", "alibi"])
def test_an_output_of_the_search_gets_what_the_search_gave_it(norm, positions):
    translator = built(norm=norm, positions=positions)
    sources = translator.tokenize(TEXTS)
    found = [
        (source, hypothesis)
        for source, answer in zip(sources, translator(TEXTS), strict=True)
        for hypothesis in answer.hypotheses
        if hypothesis.finished
    ]
    assert len(found) > len(TEXTS)
    scored = score_tokens(translator, [(source, hypothesis.tokens) for source, hypothesis in found])
    for (_, hypothesis), each in zip(found, scored, strict=True):
        assert each.log_probability == pytest.approx(hypothesis.log_probability, abs=1e-4)
        assert each.score == pytest.approx(hypothesis.score, abs=1e-4)
        assert each.token_log_probabilities == pytest.approx(hypothesis.token_log_probabilities, abs=1e-4)
    assert len({round(each.log_probability, 3) for each in scored}) > len(TEXTS)


def test_the_penalties_of_the_search_are_in_the_score():
    decoding = DecodingConfig(beam=2, shortest_extra=3, length_penalty=1.3, coverage_penalty=0.4)
    translator = built(decoding=decoding)
    answers = translator(TEXTS)
    pairs = zip(translator.tokenize(TEXTS), (answer.hypotheses[0].tokens for answer in answers), strict=True)
    scored = score_tokens(translator, list(pairs))
    assert all(answer.hypotheses[0].finished for answer in answers)
    assert [each.score for each in scored] == pytest.approx([answer.score for answer in answers], abs=1e-4)
    assert all(abs(each.score - each.log_probability) > 1e-2 for each in scored)


def test_a_score_does_not_depend_on_what_is_scored_with_it(monkeypatch):
    translator = built()
    together = score(translator, PAIRS)
    backwards = score(translator, PAIRS[::-1])[::-1]
    monkeypatch.setitem(scoring.CELLS, "cpu", 1)
    alone = score(translator, PAIRS)
    for first, second, third in zip(together, backwards, alone, strict=True):
        assert first.token_log_probabilities == pytest.approx(second.token_log_probabilities, abs=1e-5)
        assert first.token_log_probabilities == pytest.approx(third.token_log_probabilities, abs=1e-5)


def test_no_more_logits_are_held_than_allowed(monkeypatch):
    translator = built()
    whole, held = score(translator, PAIRS), []
    wide = Projection.wide
    monkeypatch.setattr(Projection, "wide", lambda self, states: held.append(states.shape[0]) or wide(self, states))
    assert score(translator, PAIRS) == whole and len(held) == 1  # few fit at once
    held.clear()
    monkeypatch.setitem(scoring.LOGITS, "cpu", 3 * TOKENIZER.size)
    for first, second in zip(whole, score(translator, PAIRS), strict=True):
        assert first.token_log_probabilities == pytest.approx(second.token_log_probabilities, abs=1e-5)
    assert max(held) == 3 and sum(held) == sum(len(each.token_log_probabilities) for each in whole)


def test_every_token_and_the_end_symbol_are_counted():
    for (_, target), each in zip(PAIRS, score(built(), PAIRS), strict=True):
        assert len(each.token_log_probabilities) == len(target.split()) + 1
        assert each.log_probability == pytest.approx(sum(each.token_log_probabilities))


def test_probabilities_of_all_next_tokens_sum_to_one():
    translator = built()
    source = translator.tokenize(TEXTS[:1])[0]
    every = score_tokens(translator, [(source, (token,)) for token in range(TOKENIZER.size)])
    total = sum(torch.tensor(each.token_log_probabilities[0]).exp() for each in every)
    assert float(total) == pytest.approx(1.0, abs=1e-5)


def test_blank_sides_are_scored_as_end_symbols_and_two_blanks_are_nothing():
    translator = built()
    blank, no_target, no_source = score(translator, [(" ", ""), ("le chat", " "), ("", "le chat")])
    assert blank == scoring.Scored(0.0, 0.0, ())
    assert len(no_target.token_log_probabilities) == 1
    assert len(no_source.token_log_probabilities) == 3
    assert score(translator, []) == []


def test_tags_are_read_before_the_source():
    translator = built()
    plain, tagged = (score(translator, PAIRS[:1], tags=tags)[0] for tags in ((), ("en",)))
    assert plain.log_probability != tagged.log_probability
    assert tokenize(translator, PAIRS[:1], tags=["en"])[0][0][0] == TOKENIZER.tags["en"]
    with pytest.raises(ConfigError, match="it knows en, de"):
        score(translator, PAIRS[:1], tags=["fr"])


@pytest.mark.parametrize(("side", "pair"), [("source", ("tout " * 24, "tout")), ("target", ("tout", "tout " * 24))])
def test_a_pair_longer_than_the_model_knows_is_refused_by_number(side, pair):
    with pytest.raises(DataError, match=f"pair 2: 24 {side} tokens, the model knows 23"):
        score(built(), [PAIRS[0], pair])
    longest = "tout " * 23
    assert len(score(built(), [(longest, longest)])[0].token_log_probabilities) == 24

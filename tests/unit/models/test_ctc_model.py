"""The model of slots: its settings, its shapes, and that nothing beside a sentence changes it."""

import pytest
import torch
from pydantic import ValidationError

from headway.data.tokenizer import Tokenizer, TokenizerConfig
from headway.engine import Engine
from headway.errors import ConfigError
from headway.models.catalog import CATALOG
from headway.models.ctc import Ctc, CtcConfig
from headway.proof import prove
from headway.scoring import score_tokens
from headway.search import DecodingConfig, Request, Symbols
from headway.sequences import Sequences
from headway.translator import Translator
from paths import collapsed

TEXTS = [
    f"{who} {does} {what} ."
    for who in ("le chat", "un chien")
    for does in ("voit", "garde")
    for what in ("tout", "la pomme")
]
ENCODERS = ["transformer", "recurrent", "convolutional"]
SYMBOLS = Symbols(1, 2, (0,))
SOURCES = [(3, 4, 5, 6), (7,), (8, 3, 3), (4, 9, 5, 6, 7, 3, 8, 4, 6)]


def model_of(vocabulary=12, strength=2.0, **settings):
    torch.manual_seed(2)
    shape = {"dim": 16, "heads": 2, "hidden": 32, "encoder_layers": 2, "decoder_layers": 1, "longest": 16}
    model = Ctc(CtcConfig(**{**shape, **settings}), vocabulary, vocabulary).eval()
    with torch.no_grad():
        model.output.blank_bias.zero_()  # so that something is written
        for name, weight in model.named_parameters():
            if weight.ndim > 1 and "embedding" not in name:
                weight.mul_(strength)
    return model


def ended(sources):
    return Sequences.pad([[*source, 2] for source in sources], 0)


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("layers", [0, 2])
def test_every_source_token_makes_its_slots_and_padding_changes_none(encoder, layers):
    model = model_of(encoder=encoder, decoder_layers=layers, upsample=3, strength=1.0)
    together = model.slots(ended(SOURCES))
    for place, source in enumerate(SOURCES):
        alone = model.slots(ended([source])).states[0]
        assert len(alone) == 3 * (len(source) + 1)
        torch.testing.assert_close(together.states[place, : len(alone)], alone, atol=1e-5, rtol=1e-5)


def test_packed_sentences_have_the_slots_of_padded_ones():
    model = model_of(upsample=2)
    padded = model.slots(ended(SOURCES))
    packed = model.slots(Sequences.pack([[*source, 2] for source in SOURCES]))
    torch.testing.assert_close(packed.states, padded.states[padded.source.present], atol=1e-5, rtol=1e-5)
    assert packed.source.lengths.tolist() == padded.source.lengths.tolist()


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("beam", [1, 4])
def test_an_output_never_depends_on_the_rest_of_its_batch(encoder, beam):
    engine = Engine(model_of(encoder=encoder), SYMBOLS)
    config = DecodingConfig(beam=beam, nbest=beam)
    together = engine.decode([Request(source) for source in SOURCES], config)
    for source, found in zip(SOURCES, together, strict=True):
        (alone,) = engine.decode([Request(source)], config)
        assert [each.tokens for each in alone] == [each.tokens for each in found]
        assert [each.score for each in alone] == pytest.approx([each.score for each in found], abs=1e-4)


def test_sentences_are_searched_some_at_a_time_with_the_same_outputs(monkeypatch):
    engine, config = Engine(model_of(), SYMBOLS), DecodingConfig(beam=3, nbest=3)
    requests = [Request(source) for source in SOURCES]
    wanted = engine.decode(requests, config)
    monkeypatch.setattr("headway.search.ctc.TOGETHER", {"cpu": 1000})
    found = engine.decode(requests, config)
    assert [[each.tokens for each in own] for own in found] == [[each.tokens for each in own] for own in wanted]


def test_greedy_writes_the_likeliest_label_of_every_slot_collapsed():
    model = model_of(longest=64)
    found = Engine(model, SYMBOLS).decode([Request(source) for source in SOURCES], DecodingConfig(beam=1))
    for source, (best,) in zip(SOURCES, found, strict=True):
        logits = model.output(model.slots(ended([source])).states)[0]
        logits[:, :3] = -torch.inf
        assert best.tokens == collapsed(logits.argmax(-1).tolist(), model.blank)
        assert best.finished
        assert len(best.token_log_probabilities) == len(best.tokens) + 1
        assert sum(best.token_log_probabilities) == pytest.approx(best.log_probability)


def test_an_output_beyond_its_limit_is_cut_and_said_to_be():
    config = DecodingConfig(beam=1, limit_ratio=0.0, limit_extra=1)
    (best,) = Engine(model_of(), SYMBOLS).decode([Request(SOURCES[3])], config)[0]
    assert not best.finished
    assert len(best.tokens) == len(best.token_log_probabilities) == 1
    wide = config.model_copy(update={"beam": 4, "nbest": 4})
    (found,) = Engine(model_of(), SYMBOLS).decode([Request(SOURCES[3])], wide)
    assert all(each.finished and len(each.tokens) <= 1 for each in found)


def test_the_best_outputs_come_best_first_and_none_twice():
    (found,) = Engine(model_of(), SYMBOLS).decode([Request(SOURCES[0])], DecodingConfig(beam=8, nbest=5))
    assert len({each.tokens for each in found}) == len(found) == 5
    assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)


def test_the_blank_has_a_row_of_its_own_beside_a_shared_table():
    model = model_of()
    assert model.output.weight is model.source_embedding.weight is model.target_embedding.weight
    assert model.output(torch.zeros(1, 16)).shape == (1, 13)
    torch.testing.assert_close(model.output.wide(torch.ones(2, 16)), model.output(torch.ones(2, 16)))
    assert "output.blank" in dict(model.named_parameters())
    two = model_of(tie="two-way")
    assert two.output.weight is not two.source_embedding.weight


@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_model_has_at_least_the_parameters_that_were_told(encoder):
    config = CtcConfig(encoder=encoder)
    with torch.device("meta"):
        model = CATALOG["ctc"][1](config, 1000, 1000)
    count = sum(weight.numel() for weight in model.parameters())
    assert 0.9 * count < config.fewest_parameters(1000) <= count
    assert 1e6 < count < 6e6


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"dim": 20, "heads": 3}, "not divisible by heads"),
        ({"dim": 15, "heads": 3}, "odd number of features"),
        ({"upsample": 0}, "greater than or equal to 1"),
        ({"upsample": 16, "longest": 65536, "dim": 512}, "position table"),
        ({"encoder": "recurrent", "positions": "rotary"}, "inside of attention"),
        ({"kernel": 4}, "no middle"),
    ],
)
def test_a_shape_that_does_not_fit_is_refused(settings, told):
    with pytest.raises(ValidationError, match=told):
        CtcConfig(**settings)


@pytest.fixture
def translator():
    tokenizer = Tokenizer.train(TEXTS, TokenizerConfig(vocabulary=300))
    return Translator(model_of(tokenizer.size, longest=24), tokenizer, tokenizer, DecodingConfig(beam=3, nbest=3))


def test_a_lively_model_is_proved(translator):
    proof = prove(translator, sentences=12)
    assert proof.passed
    assert proof.findings["batch"].passed
    assert proof.findings["padding"].passed
    assert proof.findings["rescoring"].passed is None


def test_reading_an_output_gives_it_the_probability_that_writing_it_gave(translator):
    sources = translator.tokenize(TEXTS[:4])
    answers = translator.search([translator.request(source) for source in sources])
    pairs = [(source, each.tokens) for source, answer in zip(sources, answers, strict=True) for each in answer]
    scored = score_tokens(translator, pairs)
    written = [each for answer in answers for each in answer]
    assert sum(len(each.tokens) for each in written) > 20
    for read, wrote in zip(scored, written, strict=True):
        assert read.log_probability == pytest.approx(wrote.log_probability, abs=1e-4)
        assert read.score == pytest.approx(wrote.score, abs=1e-4)


def test_what_slots_cannot_do_is_refused():
    engine = Engine(model_of(), SYMBOLS)
    with pytest.raises(ConfigError, match="shortest_extra: a ctc model writes all tokens at once"):
        engine.decode([Request((3,))], DecodingConfig(shortest_extra=2))
    with pytest.raises(ConfigError, match="sample"):
        engine.decode([Request((3,))], DecodingConfig(sample=True))

"""CTranslate2 computes what our own engine computes, and leaves to it what it cannot."""

import random
import sys
from dataclasses import replace

import pytest
import torch

from headway.data.batches import Batch
from headway.data.tokenizer import Tokenizer, TokenizerConfig
from headway.engine import Engine
from headway.errors import ConfigError, Interrupted
from headway.models.transformer import Transformer, TransformerConfig
from headway.objectives import LabelSmoothedLikelihood
from headway.search import DecodingConfig, Request, Scoring
from headway.sequences import Sequences
from headway.translator import Translator

pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed")

from headway.interop.ctranslate2 import CTranslate2Backend, backend_for, unsupported
from headway.interop.specification import export

DIGITS = Tokenizer.train(["0123456789"], TokenizerConfig(kind="characters"))
LETTERS = Tokenizer.train(["abcdefghijklmnopq"], TokenizerConfig(kind="characters"))
SMALL = {"dim": 32, "heads": 4, "hidden": 48, "encoder_layers": 2, "decoder_layers": 2, "longest": 48, "dropout": 0.0}


def drawn(chance, count):
    return ["".join(chance.choices("0123456789", k=chance.randint(1, 9))) for _ in range(count)]


def learnt(model, steps):
    """A model that has begun to learn to write digits backwards: far from sure, so that beams have work."""
    chance, objective = random.Random(1), LabelSmoothedLikelihood(0.1)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 1e-2, total_steps=steps, pct_start=0.2)
    for _ in range(steps):
        sources = drawn(chance, 24)
        read, write = (DIGITS.encode(texts) for texts in (sources, [text[::-1] for text in sources]))
        batch = Batch(
            Sequences.pad([[*ids, DIGITS.end] for ids in read], DIGITS.padding),
            Sequences.pad([[DIGITS.start, *ids] for ids in write], DIGITS.padding),
            Sequences.pad([[*ids, DIGITS.end] for ids in write], DIGITS.padding).tokens,
            sum(len(ids) + 1 for ids in write),
        )
        loss = objective(model, batch)
        (loss.total / loss.units).backward()
        optimiser.step()
        optimiser.zero_grad()
        schedule.step()
    return model.eval()


@pytest.fixture(scope="module")
def translator():
    torch.manual_seed(5)
    model = learnt(Transformer(TransformerConfig(**SMALL, norm="pre"), DIGITS.size, DIGITS.size), 60)
    return Translator(model, DIGITS, DIGITS, DecodingConfig(longest=20))


@pytest.fixture(scope="module")
def backend(translator):
    return CTranslate2Backend.of(translator, workers=1)


@pytest.fixture(scope="module")
def requests():
    return [Request(tuple(ids)) for ids in DIGITS.encode(drawn(random.Random(2), 150))]


@pytest.fixture
def alone(monkeypatch):
    """From now on our own engine must not be used."""

    def refused(*_, **__):
        raise AssertionError("our own engine was used")

    return lambda: monkeypatch.setattr(Engine, "search", refused)


def forced(model, tokenizers, source, tokens):
    """The log-probabilities that our model gives to tokens and the end symbol."""
    read, write = tokenizers
    given = Sequences.pad([[*source, read.end]], read.padding), Sequences.pad([[write.start, *tokens]], write.padding)
    with torch.inference_mode():
        logs = model.output(model(*given)).log_softmax(-1)[0]
    return [float(logs[place, token]) for place, token in enumerate([*tokens, write.end])]


KINDS = [
    ("sinusoidal", "post", "relu"), ("sinusoidal", "pre", "gelu"), ("learned", "post", "gated"),
    ("learned", "pre", "relu"), ("rotary", "post", "gelu"), ("rotary", "pre", "gated"),
    ("relative", "post", "relu"), ("relative", "pre", "gated"),
]  # fmt: skip
VARIANTS = [{"positions": positions, "norm": norm, "feedforward": kind} for positions, norm, kind in KINDS]
VARIANTS += [{"tie": tie, "joint": joint} for tie in ("two-way", "none") for joint in (True, False)]


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_every_kind_of_model_has_the_same_probabilities_and_greedy_outputs(variant, alone):
    options = dict(variant)
    target = DIGITS if options.pop("joint", True) else LETTERS
    torch.manual_seed(7)
    model = Transformer(TransformerConfig(**SMALL, **options), DIGITS.size, target.size).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.2 * torch.randn_like(weight))  # no bias is zero, no scale is one
        model.output.bias[[target.padding, target.start]] = -30.0
    translator = Translator(model, DIGITS, target, DecodingConfig(beam=1, limit_ratio=0.0, limit_extra=30))
    backend = CTranslate2Backend.of(translator, workers=1)
    chance = random.Random(3)
    sources = [tuple(ids) for ids in DIGITS.encode(["3", "0123456789" * 3, *drawn(chance, 6)])]
    for source in sources:
        tokens = [chance.randrange(4, target.size) for _ in range(chance.randint(0, 40))]
        found = backend._forced(Request(source), tokens)
        assert found == pytest.approx(forced(model, (DIGITS, target), source, tokens), abs=1e-4)
    asked = [Request(source) for source in sources]
    own = translator.search(asked)
    alone()
    assert [each[0].tokens for each in backend.search(asked, translator.decoding)] == [each[0].tokens for each in own]


def test_greedy_outputs_are_those_of_our_own_engine(translator, backend, requests, alone):
    config = DecodingConfig(beam=1, longest=20)
    own = translator.search(requests, config)
    alone()
    found = backend.search(requests, config)
    assert [each[0].tokens for each in found] == [each[0].tokens for each in own]
    assert [each[0].score for each in found] == pytest.approx([each[0].score for each in own], abs=1e-3)
    assert len({each[0].tokens for each in own}) > 0.7 * len(requests)  # the model looks at its source


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0])
def test_a_beam_finds_nearly_the_same_and_scores_it_as_we_do(penalty, translator, backend, requests, alone):
    config = DecodingConfig(beam=4, nbest=3, length_penalty=penalty, longest=20)
    own = translator.search(requests, config)
    alone()
    found = backend.search(requests, config)
    same = sum(mine[0].tokens == other[0].tokens for mine, other in zip(found, own, strict=True))
    assert same >= (0.9 if penalty else 1) * len(requests)
    for request, answers in zip(requests[:25], found, strict=False):
        assert 0 < len(answers) <= 3
        assert [each.score for each in answers] == sorted((each.score for each in answers), reverse=True)
        for each in answers:
            parts = forced(translator.model, (DIGITS, DIGITS), request.source, each.tokens)
            assert each.finished
            assert each.log_probability == pytest.approx(sum(parts), abs=1e-3)
            assert each.score == pytest.approx(sum(parts) / Scoring(penalty).penalty(len(parts)), abs=1e-3)
            assert each.token_log_probabilities == pytest.approx(parts, abs=1e-3)


def test_a_hypothesis_can_be_changed_like_any_other(backend, requests):
    (found,) = backend.search(requests[:1], DecodingConfig(beam=1, longest=20))[0]
    changed = replace(found, score=1.0)
    assert (changed.score, changed.tokens) == (1.0, found.tokens)
    assert changed.token_log_probabilities == found.token_log_probabilities


@pytest.mark.parametrize(("ratio", "extra"), [(0.0, 0), (0.0, 2), (0.5, 1), (1.0, 0)])
@pytest.mark.parametrize("beam", [1, 4])
def test_every_output_is_cut_at_its_own_limit(ratio, extra, beam, translator, backend, requests, alone):
    config = DecodingConfig(beam=beam, limit_ratio=ratio, limit_extra=extra, longest=20)
    own = translator.search(requests, config)
    if beam == 1:
        alone()  # with a beam, what binds at a limit is ours to decide
    found = backend.search(requests, config)
    assert not all(each[0].finished for each in own) or ratio == 1
    for request, mine, (other, *_) in zip(requests, found, own, strict=True):
        assert len(mine[0].tokens) <= request.limit(config)
        if beam == 1:
            assert (mine[0].tokens, mine[0].finished) == (other.tokens, other.finished)
            assert mine[0].log_probability == pytest.approx(other.log_probability, abs=1e-3)
            assert mine[0].score == pytest.approx(other.score, abs=1e-3)
    same = sum(mine[0].tokens == other[0].tokens for mine, other in zip(found, own, strict=True))
    assert same >= 0.9 * len(requests)


def test_an_output_begins_as_asked_beside_those_that_are_free(translator, backend, requests, alone):
    config = DecodingConfig(beam=1, longest=20)
    begun = tuple(DIGITS.encode(["77"])[0])
    asked = [replace(each, prefix=begun if place % 3 else ()) for place, each in enumerate(requests[:60])]
    own = translator.search(asked, config)
    alone()
    for request, (found,), (other,) in zip(asked, backend.search(asked, config), own, strict=True):
        assert found.tokens == other.tokens
        assert found.tokens[: len(request.prefix)] == request.prefix
        assert found.log_probability == pytest.approx(other.log_probability, abs=1e-3)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"sample": True, "nbest": 2, "seed": 4}, "sampling"),
        ({"coverage_penalty": 0.5}, "coverage_penalty"),
        ({"repetition": 1.5}, "repetition"),
        ({"no_repeat": 1}, "no_repeat"),
        ({"groups": 2}, "groups"),
        ({"shortest_extra": 3}, "shortest length"),
        ({"sample": True, "mbr": 3}, "sampling"),
    ],
)
def test_what_it_cannot_do_our_own_engine_does_and_says_so_once(options, told, translator, requests):
    lines = []
    backend = CTranslate2Backend.of(translator, workers=1, tell=lines.append)
    config = DecodingConfig(longest=20, **options)
    assert replace(translator, backend=backend).search(requests[:8], config) == translator.search(requests[:8], config)
    backend.search(requests[:8], config)
    (line,) = lines
    assert told in line
    assert "own engine" in line


def test_only_the_sentences_that_ask_for_more_go_to_our_own_engine(translator, backend, requests):
    config = DecodingConfig(beam=2, longest=20)
    five = tuple(DIGITS.encode(["5"])[0])
    asked = [replace(requests[0], required=(five,)), requests[1], Request(()), replace(requests[2], banned=("1",))]
    assert [unsupported(each, config) is None for each in asked] == [False, True, True, False]
    found = replace(translator, backend=backend).search(asked, config)
    assert five[0] in found[0][0].tokens
    assert found[1][0].tokens == translator.search([requests[1]], config)[0][0].tokens
    assert found[2] == []
    assert "1" not in DIGITS.decode(found[3][0].tokens)


def test_no_output_holds_a_forbidden_token(requests):
    torch.manual_seed(5)
    model = Transformer(TransformerConfig(**SMALL), DIGITS.size, DIGITS.size).eval()
    with torch.no_grad():
        model.output.bias[DIGITS.start] = 9.0
    translator = Translator(model, DIGITS, DIGITS, DecodingConfig(beam=2, longest=6))
    backend = CTranslate2Backend.of(translator, workers=1)
    assert backend.search(requests[:9], translator.decoding) == translator.search(requests[:9])


def test_int8_is_smaller_and_nearly_the_same(translator, requests, tmp_path, alone):
    before = {name: weight.clone() for name, weight in translator.model.state_dict().items()}
    export(translator, tmp_path / "whole")
    export(translator, tmp_path / "eighth", int8=True)
    assert all(torch.equal(weight, before[name]) for name, weight in translator.model.state_dict().items())
    sizes = [(tmp_path / name / "model.bin").stat().st_size for name in ("eighth", "whole")]
    assert sizes[0] < 0.45 * sizes[1]
    own = translator.search(requests[:30], DecodingConfig(beam=1, longest=20))
    backend = CTranslate2Backend.of(translator, int8=True, workers=1)
    alone()
    found = backend.search(requests[:30], DecodingConfig(beam=1, longest=20))
    assert sum(mine[0].tokens == other[0].tokens for mine, other in zip(found, own, strict=True)) >= 20
    apart = [
        abs(mine - other)
        for request, (best,) in zip(requests, own, strict=False)
        for mine, other in zip(backend._forced(request, best.tokens), best.token_log_probabilities, strict=False)
    ]
    assert 1e-4 < sum(apart) / len(apart) < 0.15


def test_a_search_can_be_stopped_between_batches(backend, requests):
    calls = []

    def check():
        calls.append(1)
        if len(calls) == 2:
            raise Interrupted("enough", 2)

    with pytest.raises(Interrupted):
        backend.search(requests * 4, DecodingConfig(beam=1, longest=20), check=check)


@pytest.mark.parametrize(
    ("options", "told"), [({"positions": "alibi"}, "alibi"), ({"feedforward": "convolutional"}, "convolutional")]
)
def test_a_model_it_cannot_compute_stays_with_our_own_engine(options, told, translator):
    model = Transformer(TransformerConfig(**SMALL, **options), DIGITS.size, DIGITS.size).eval()
    lines = []
    assert backend_for(replace(translator, model=model), "ctranslate2", tell=lines.append) is None
    (line,) = lines
    assert told in line
    with pytest.raises(ConfigError, match=told):
        CTranslate2Backend.of(replace(translator, model=model))


def test_several_models_stay_with_our_own_engine(translator):
    engine = Engine(translator.model, translator.symbols, others=(translator.model,))
    lines = []
    assert backend_for(replace(translator, backend=engine), "ctranslate2", tell=lines.append) is None
    assert "several models" in lines[0]


def test_the_engine_is_chosen_by_name(translator):
    assert backend_for(translator, "headway") is None
    assert isinstance(backend_for(translator, "ctranslate2", int8=True), CTranslate2Backend)
    with pytest.raises(ConfigError, match="--int8: is for --engine ctranslate2"):
        backend_for(translator, "headway", int8=True)


def test_without_the_package_one_line_says_how_to_install_it(translator, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(ConfigError, match=r"pip install 'headway\[ctranslate2\]'"):
        backend_for(translator, "ctranslate2")

from dataclasses import replace

import pytest
import torch

import headway.engine.captured
from headway.engine import Engine
from headway.engine.captured import Captured, Room, captured
from headway.engine.engine import batches
from headway.engine.readiness import ready
from headway.errors import ConfigError, HeadwayError
from headway.models.transformer import Transformer, TransformerConfig
from headway.search import DecodingConfig, Request, Symbols
from headway.sequences import Sequences

SYMBOLS = Symbols(1, 2, (0, 1))
KINDS = ["sinusoidal", "learned", "rotary", "relative", "alibi"]


def build(**settings):
    torch.manual_seed(3)
    config = TransformerConfig(dim=16, heads=2, hidden=32, encoder_layers=2, decoder_layers=2, **settings)
    model = Transformer(config, 300, 300).eval()
    model.output.bias.data[2] += 1.5
    return model


def requests(count=9):
    numbers = torch.Generator().manual_seed(5)
    lengths = torch.randint(1, 20, (count,), generator=numbers).tolist()
    return [Request(tuple(torch.randint(3, 300, (n,), generator=numbers).tolist())) for n in lengths]


def same(found, expected):
    for one, two in zip(found, expected, strict=True):
        assert [(each.tokens, each.finished) for each in one] == [(each.tokens, each.finished) for each in two]
        for ours, theirs in zip(one, two, strict=True):
            assert ours.score == pytest.approx(theirs.score, abs=1e-4)


@pytest.mark.parametrize("positions", KINDS)
@pytest.mark.parametrize(
    "settings",
    [
        {"beam": 4, "nbest": 3},
        {"beam": 1},
        {"beam": 5, "nbest": 2, "length_penalty": 0.0, "shortest_ratio": 0.5},
        {"beam": 3, "limit_ratio": 0.0, "limit_extra": 40},
    ],
)
def test_a_search_in_fixed_room_finds_what_the_growing_one_finds(positions, settings):
    model, config = build(positions=positions), DecodingConfig(**settings)
    with torch.inference_mode():
        fixed = Captured(model, SYMBOLS, Room.fitting(requests(), config, 512))
        first = fixed.run(requests(), config)
        again = fixed.run(requests()[::-1], config)
    expected = Engine(model, SYMBOLS).search(requests(), config)
    same(first, expected)
    same(again[::-1], expected)


def test_room_made_once_serves_requests_that_fit_it():
    model, config = build(), DecodingConfig(beam=2, longest=12)
    with torch.inference_mode():
        found = [captured(model, SYMBOLS, requests(count), config) for count in (9, 3, 9)]
    same(found[0], found[2])
    same(found[1], Engine(model, SYMBOLS).search(requests(3), config))


def test_numbers_that_are_none_are_told_by_both_searches():
    model = build()
    model.output.weight.data.fill_(torch.nan)
    with pytest.raises(HeadwayError, match="not a number"):
        Engine(model, SYMBOLS).search(requests(), DecodingConfig())
    with pytest.raises(HeadwayError, match="not a number"), torch.inference_mode():
        captured(model, SYMBOLS, requests(), DecodingConfig())


def test_an_empty_source_gets_no_output_and_order_is_kept():
    model, config = build(), DecodingConfig(beam=2, longest=12)
    mixed = [Request(()), *requests(), Request(())]
    found = Engine(model, SYMBOLS).search(mixed, config)
    assert found[0] == found[-1] == []
    same(found[1:-1], [Engine(model, SYMBOLS).search([each], config)[0] for each in requests()])


def test_batches_hold_sources_of_like_length_and_bounded_size():
    asked = [Request((3,) * length) for length in (9, 1, 0, 5, 2, 9, 9)]
    found = list(batches(asked, 20, 8))
    assert sorted(index for batch in found for index in batch) == [0, 1, 3, 4, 5, 6]
    assert found == [[1, 4, 3], [0, 5], [6]]
    assert list(batches(asked, 20, 2)) == [[1, 4], [3, 0], [5, 6]]


def test_a_check_is_made_before_every_batch_and_may_stop():
    calls = []

    def check():
        calls.append(len(calls))
        if len(calls) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Engine(build(), SYMBOLS).search([Request((3,) * 400) for _ in range(40)], DecodingConfig(beam=1), check=check)
    assert len(calls) == 2


def test_samples_of_a_real_model_never_depend_on_the_batch():
    config = DecodingConfig(sample=True, nbest=6, temperature=1.5, longest=12)
    asked = [replace(each, seed=number) for number, each in enumerate(requests(20))]
    together = Engine(build(), SYMBOLS).search(asked, config)
    alone = [Engine(build(), SYMBOLS).search([each], config)[0] for each in asked]
    for one, two in zip(together, alone, strict=True):
        assert [each.tokens for each in one] == [each.tokens for each in two]


@pytest.mark.parametrize("tie", ["three-way", "none"])
def test_a_model_made_ready_gives_the_same_and_keeps_its_weights(tie):
    plain, laid = build(tie=tie), ready(build(tie=tie))
    same(
        Engine(laid, SYMBOLS).search(requests(), DecodingConfig()),
        Engine(plain, SYMBOLS).search(requests(), DecodingConfig()),
    )
    for (name, weight), (other, theirs) in zip(laid.named_parameters(), plain.named_parameters(), strict=True):
        assert name == other
        assert torch.equal(weight, theirs)
    assert not laid.decoder.layers[0].feedforward.inner.weight.is_contiguous()


def test_half_precision_is_refused_on_a_cpu():
    with pytest.raises(ConfigError, match="for GPUs"):
        ready(build(), "bf16")


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("feedforward", ["relu", "gelu", "gated"])
@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_a_step_in_straight_lines_is_a_step(norm, feedforward, positions):
    plain = build(norm=norm, feedforward=feedforward, positions=positions)
    lean = ready(build(norm=norm, feedforward=feedforward, positions=positions))
    assert lean.lean is not None
    tokens, parents = torch.tensor([[4, 5], [6, 7]]), torch.tensor([[0, 0], [0, 0]])
    with torch.inference_mode():
        states = []
        for model in (plain, lean):
            source = Sequences.pad([[3, 4, 2], [5, 2]], 0)
            state = model.start(model.encode(source))
            first, state = model.step(torch.tensor([[1], [1]]), None, state)
            second, state = model.step(tokens, parents, state)
            third, _ = model.step(tokens + 9, torch.tensor([[1, 0], [1, 1]]), state)
            states.append((first, second, third))
    for one, two in zip(*states, strict=True):
        torch.testing.assert_close(one, two)


def test_a_step_in_straight_lines_sees_weights_that_change():
    model = ready(build(tie="none"))
    before = Engine(model, SYMBOLS).search(requests(), DecodingConfig())
    with torch.no_grad():
        for layer in model.decoder.layers:
            layer.feedforward.outer.weight.mul_(-3.0)
    plain = build(tie="none")
    plain.load_state_dict(model.state_dict())
    after = Engine(model, SYMBOLS).search(requests(), DecodingConfig())
    same(after, Engine(plain, SYMBOLS).search(requests(), DecodingConfig()))
    assert [each[0].score for each in before] != [each[0].score for each in after]


@pytest.mark.parametrize("positions", ["relative", "alibi"])
def test_positions_added_to_attention_scores_go_the_long_way(positions):
    assert ready(build(positions=positions)).lean is None


def test_more_than_the_model_can_write_is_refused():
    with pytest.raises(ConfigError, match="shorten the phrases"):
        Engine(build(longest=8), SYMBOLS).search([Request((3, 4), required=((5,) * 12,))], DecodingConfig())


def test_the_weights_alone_say_how_exactly_is_computed(monkeypatch):
    seen, encode = [], Transformer.encode

    def watched(self, source, **options):
        seen.append(torch.is_autocast_enabled("cpu"))
        return encode(self, source, **options)

    monkeypatch.setattr(Transformer, "encode", watched)
    with torch.autocast("cpu"):
        Engine(build(), SYMBOLS).search(requests(2), DecodingConfig())
    assert seen == [False]


@torch.inference_mode()
def test_searches_are_kept_as_long_as_their_room_is_not_too_much_together(monkeypatch):
    model, config = build(), DecodingConfig(beam=2, limit_ratio=0.0, limit_extra=4)
    asked = [[Request((3, 4) * count)] for count in (2, 20, 40)]
    sizes = [Captured(model, SYMBOLS, Room.fitting(each, config, 512)).bytes for each in asked]
    monkeypatch.setattr(headway.engine.captured, "BYTES_KEPT", sum(sizes[1:]))
    for each in (*asked, asked[1]):
        captured(model, SYMBOLS, each, config)
    kept = headway.engine.captured._SEARCHES[model]
    assert [each.bytes for each in kept.values()] == [sizes[2], sizes[1]]
    monkeypatch.setattr(headway.engine.captured, "KEPT", 1)
    captured(model, SYMBOLS, asked[0], config)
    assert [each.bytes for each in kept.values()] == [sizes[0]]

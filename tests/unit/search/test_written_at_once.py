"""Fertilities and mask-predict: what is chosen, what is written, and that no sentence hangs on another."""

import itertools
import math
import random

import numpy as np
import pytest
import torch

import headway.engine.engine
import headway.search.fertility
import headway.search.masked
from headway.engine import Engine
from headway.engine.readiness import ready
from headway.errors import ConfigError
from headway.models.fertility import FertilityConfig, FertilityTransformer
from headway.models.maskpredict import MaskPredict, MaskPredictConfig
from headway.search import DecodingConfig, Request, Symbols, graphs
from headway.search.drafts import guessed, highest, ranked
from headway.search.fertility import decided, fertilities, write_as_decided, write_unasked
from headway.search.masked import likeliest_lengths
from headway.search.parallel import check
from headway.sequences import Sequences

PADDING, START, END, VOCABULARY = 0, 1, 2, 30
SYMBOLS = Symbols(START, END, (PADDING, START))
SIZES = {"dim": 16, "heads": 2, "hidden": 32, "encoder_layers": 2, "decoder_layers": 2, "longest": 24}


def lively(kind):
    """A model that was never trained but writes something else for every source."""
    torch.manual_seed(3)
    config, module = (
        (FertilityConfig, FertilityTransformer) if kind == "fertility" else (MaskPredictConfig, MaskPredict)
    )
    model = module(config(**SIZES), VOCABULARY, VOCABULARY).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim > 1 and "embedding" not in name and "output" not in name:
                weight.mul_(3.0)
            if name in ("fertility.weight", "length.weight"):
                weight.mul_(20.0)
    return model


def requests(count=12):
    chance = random.Random(1)
    drawn = [tuple(chance.randrange(3, VOCABULARY) for _ in range(chance.randint(1, 9))) for _ in range(count)]
    return [Request(source, seed=place) for place, source in enumerate(drawn)]


WAYS = [
    ("fertility", {"fertilities": "argmax"}),
    ("fertility", {"fertilities": "average"}),
    ("fertility", {"fertilities": "noisy", "beam": 6, "nbest": 6}),
    ("mask-predict", {"beam": 1, "iterations": 1}),
    ("mask-predict", {"beam": 3, "nbest": 3, "iterations": 5}),
]


@pytest.mark.parametrize(("kind", "settings"), WAYS)
@pytest.mark.parametrize("straight", [True, False])
def test_a_sentence_gets_the_same_answer_alone_and_in_a_batch(kind, settings, straight):
    model = ready(lively(kind)) if straight else lively(kind)
    engine, config = Engine(model, SYMBOLS), DecodingConfig(longest=20, **settings)
    asked = requests()
    together = engine.decode(asked, config)
    for request, answer in zip(asked, together, strict=True):
        (alone,) = engine.decode([request], config)
        assert [each.tokens for each in alone] == [each.tokens for each in answer]
        assert [each.score for each in alone] == pytest.approx([each.score for each in answer], rel=1e-4)
    assert len({answer[0].tokens for answer in together}) > 6


@pytest.mark.parametrize(("kind", "settings"), WAYS)
def test_room_for_other_sentences_changes_no_answer(kind, settings, monkeypatch):
    engine, config = Engine(ready(lively(kind)), SYMBOLS), DecodingConfig(longest=20, **settings)
    expected = engine.decode(requests(5), config)
    rooms = []

    def roomy(rows, padding, device, most):
        rooms.append(graphs.in_room(Sequences.pad(rows, padding), padding, most))
        return rooms[-1].to(device)

    for module in (headway.engine.engine, headway.search.masked):
        monkeypatch.setattr(module, "placed", roomy)
    found = engine.decode(requests(5), config)
    assert rooms[0].tokens.shape == (8, 16)
    assert len(rooms) == (1 if kind == "fertility" else 2)
    for mine, right in zip(found, expected, strict=True):
        assert [each.tokens for each in mine] == [each.tokens for each in right]
        assert [each.score for each in mine] == pytest.approx([each.score for each in right], rel=1e-4)


@pytest.mark.parametrize("settings", [{}, {"limit_ratio": 0.5, "limit_extra": 1}])
@pytest.mark.parametrize("choice", ["argmax", "average"])
def test_fertilities_decided_where_the_model_is_write_what_those_of_the_host_write(choice, settings):
    model, config = ready(lively("fertility")), DecodingConfig(fertilities=choice, longest=20, **settings)
    asked = requests(13)
    source = Sequences.pad([[*each.source, END] for each in asked], END)
    roomy = graphs.in_room(source, END, 24)
    with torch.inference_mode():
        expected = write_as_decided(model, source, asked, config, SYMBOLS)
        found = write_unasked(model, roomy, asked, config, SYMBOLS)
    for mine, right in zip(found, expected, strict=True):
        assert [each.tokens for each in mine] == [each.tokens for each in right]
        assert mine[0].token_log_probabilities == pytest.approx(right[0].token_log_probabilities, rel=1e-4)


def test_an_output_far_longer_than_its_source_is_given_the_room_it_needs(monkeypatch):
    model, asked = ready(lively("fertility")), [Request((4, 5, 6))]
    with torch.no_grad():
        model.fertility.bias[4] += 1000.0  # every token becomes four
    source, config = Sequences.pad([[4, 5, 6, END]], END), DecodingConfig(longest=20)
    rooms, plain = [], headway.search.fertility.replayed
    monkeypatch.setattr(
        headway.search.fertility,
        "replayed",
        lambda *given, **fixed: rooms.append(fixed["room"]) or plain(*given, **fixed),
    )
    with torch.inference_mode():
        ((found,),) = write_unasked(model, source, asked, config, SYMBOLS)
        ((expected,),) = write_as_decided(model, source, asked, config, SYMBOLS)
    assert len(found.tokens) == 16 > rooms[0]
    assert found.tokens == expected.tokens
    assert rooms == [9, 24]


def test_decisions_are_those_of_the_host_at_every_limit():
    chance = np.random.default_rng(1)
    levels = chance.normal(size=(40, 6, 4)).astype(np.float32) * 2
    levels[7, :, 0] = 9.0  # nothing of this one is copied
    levels = torch.from_numpy(levels).log_softmax(-1)
    for choice, limit in itertools.product(("argmax", "average"), (1, 3, 50)):
        config = DecodingConfig(fertilities=choice, limit_ratio=0.0, limit_extra=limit)
        found = decided(levels, torch.full((40,), limit), average=choice == "average")
        wanted = [fertilities(each.numpy(), config, Request((4,)))[0].tolist() for each in levels]
        assert found.tolist() == wanted
    assert found[7].sum() == 1


def test_a_function_is_captured_once_for_every_shape_and_kept_while_others_are_fewer(monkeypatch):
    made = []

    def as_graph(work):
        made.append(work)
        return work

    monkeypatch.setattr(graphs, "replays", lambda tokens: True)
    monkeypatch.setattr(graphs, "as_graph", as_graph)
    monkeypatch.setattr(graphs, "KEPT", 2)
    model = lively("fertility")

    def times(model, tokens, factors, *, plus):
        return (tokens * factors + plus,)

    def asked(size, factor, plus=1):
        (found,) = graphs.replayed(times, model, torch.full((size,), 3), torch.tensor([factor]), plus=plus)
        return found.tolist()

    assert asked(2, 5) == [16, 16]
    assert asked(2, 7) == [22, 22]
    assert len(made) == 1
    assert asked(2, 7, plus=2) == [23, 23]
    assert asked(2, 5) == [16, 16]
    assert len(made) == 2
    assert asked(3, 5) == [16] * 3
    assert asked(2, 7, plus=2) == [23, 23]  # the one used longest ago was forgotten
    assert len(made) == 4
    model.output.weight.data = model.output.weight.data.clone()
    assert asked(2, 7, plus=2) == [23, 23]  # the weights are elsewhere
    assert len(made) == 5


def test_few_sentences_have_room_and_many_none():
    rows, gpu = [[5] * 9] * 3, torch.device("meta")
    assert graphs.in_room(Sequences.pad(rows, 0), 0, 64).tokens.shape == (4, 16)
    assert graphs.placed(rows, 0, gpu, 64).tokens.shape == (3, 9)


def test_rooms_are_few_and_never_longer_than_a_model_can_read():
    assert [graphs.rounded(length, 512) for length in (1, 16, 17, 100, 129, 300)] == [16, 16, 32, 112, 160, 320]
    assert graphs.rounded(99, 100) == 100
    assert graphs.rounded(101, 100) == 101


@pytest.mark.parametrize(("kind", "settings"), WAYS)
def test_answers_are_whole_distinct_allowed_and_best_first(kind, settings):
    config = DecodingConfig(limit_ratio=1.0, limit_extra=1, longest=8, **settings)
    asked = requests()
    for request, answer in zip(asked, Engine(ready(lively(kind)), SYMBOLS).search(asked, config), strict=True):
        assert 1 <= len(answer) <= config.nbest
        assert len({each.tokens for each in answer}) == len(answer)
        assert [each.score for each in answer] == sorted((each.score for each in answer), reverse=True)
        for each in answer:
            assert 1 <= len(each.tokens) <= config.limit(len(request.source))
            assert not {PADDING, START, END} & set(each.tokens)
            assert each.finished
            assert len(each.token_log_probabilities) == len(each.tokens) + 1
            assert each.log_probability == pytest.approx(sum(each.token_log_probabilities))
            assert each.score == pytest.approx(each.log_probability / ((6 + len(each.tokens)) / 6) ** 0.6)


@torch.inference_mode()
def test_the_likeliest_fertilities_are_written_by_as_one_would_by_hand():
    model = lively("fertility")
    (request,) = requests(1)
    source = [*request.source, END]
    (answer,) = Engine(model, SYMBOLS).search([request], DecodingConfig())
    encoded = model.encode(Sequences.pad([source], 0))
    levels = model.fertilities(encoded)[0]
    copies = [token for token, row in zip(source, levels, strict=True) for _ in range(int(row.argmax()))]
    chances = model.output(model.decode(Sequences.pad([copies], 0), encoded).states[0]).log_softmax(-1)
    chances[:, [PADDING, START, END]] = -math.inf
    assert list(answer[0].tokens) == chances.argmax(-1).tolist()
    told = [*chances.amax(-1).tolist(), levels.amax(-1).sum().item()]
    assert list(answer[0].token_log_probabilities) == pytest.approx(told, rel=1e-4)


def levels_of(rows):
    with np.errstate(divide="ignore"):
        return np.log(np.array(rows))


def test_fertilities_are_the_likeliest_or_the_rounded_average():
    levels = levels_of([[0.4, 0.3, 0.3], [0.0, 1.0, 0.0], [0.2, 0.0, 0.8]])
    request = Request((4, 5))
    (likeliest,) = fertilities(levels, DecodingConfig(), request)
    assert likeliest.tolist() == [0, 1, 2]
    (average,) = fertilities(levels, DecodingConfig(fertilities="average"), request)
    assert average.tolist() == [1, 1, 2]


def test_noisy_fertilities_are_drawn_as_often_as_they_are_likely_and_belong_to_their_sentence():
    levels = levels_of([[0.2, 0.5, 0.3], [0.0, 1.0, 0.0]])
    config, counts = DecodingConfig(fertilities="noisy", beam=2), np.zeros(3)
    for seed in range(3000):
        first, *drawn = fertilities(levels, config, Request((4,), seed=seed))
        assert first.tolist() == [1, 1]
        counts[drawn[0][0] if drawn else 1] += 1  # a draw of the likeliest is not written twice
    assert np.abs(counts / 3000 - [0.2, 0.5, 0.3]).max() < 0.03
    wide = DecodingConfig(fertilities="noisy", beam=8)
    again = [[row.tolist() for row in fertilities(levels, wide, Request((4,), seed=7))] for _ in range(2)]
    assert again[0] == again[1]
    assert len(again[0]) == 3  # as many as there are
    cold = DecodingConfig(fertilities="noisy", beam=64, temperature=0.05)
    assert len(fertilities(levels, cold, Request((4,), seed=7))) == 1


def test_an_output_has_a_token_at_least_and_no_more_than_its_limit():
    none = levels_of([[0.9, 0.1, 0.0], [0.8, 0.2, 0.0], [1.0, 0.0, 0.0]])
    assert fertilities(none, DecodingConfig(), Request((4, 5)))[0].tolist() == [0, 1, 0]
    many = levels_of([[0.0, 0.0, 1.0]] * 3)
    short = DecodingConfig(limit_ratio=1.0, limit_extra=1)
    assert fertilities(many, short, Request((4, 5)))[0].tolist() == [2, 1, 0]


def test_lengths_are_the_likeliest_that_the_settings_allow():
    levels = levels_of([0.1, 0.3, 0.25, 0.35, 0.0])  # two below the source to two above
    three, request = DecodingConfig(beam=3), Request((4, 5, 6))
    assert [length for length, _ in likeliest_lengths(levels, three, request)] == [4, 2, 3]
    assert likeliest_lengths(levels, DecodingConfig(beam=1), request) == [(4, pytest.approx(math.log(0.35)))]
    limited = DecodingConfig(beam=3, limit_ratio=1.0, limit_extra=0)
    assert [length for length, _ in likeliest_lengths(levels, limited, request)] == [2, 3, 1]
    long = DecodingConfig(beam=3, shortest_ratio=1.5)
    assert [length for length, _ in likeliest_lengths(levels, long, request)] == [4, 5]
    assert likeliest_lengths(levels, DecodingConfig(shortest_extra=9), request) == [(9, 0.0)]
    assert all(length >= 1 for length, _ in likeliest_lengths(levels, DecodingConfig(beam=5), Request((4,))))


@torch.inference_mode()
@pytest.mark.parametrize("rounds", [1, 2, 4, 7])
def test_mask_predict_hides_the_least_sure_tokens_as_the_paper_says(rounds):
    model = lively("mask-predict")
    (request,) = requests(1)
    (answer,) = Engine(model, SYMBOLS).search([request], DecodingConfig(beam=1, iterations=rounds))
    encoded = model.encode(Sequences.pad([[*request.source, END]], 0))
    size = len(answer[0].tokens)
    tokens, chances, hidden = [END] * size, [0.0] * size, set(range(size))
    for time in range(rounds):
        if time:
            count = size * (rounds - time) // rounds
            hidden = set(sorted(range(size), key=lambda place: chances[place])[:count])
        covered = torch.tensor([[place in hidden for place in range(size)]])
        states = model.decode(Sequences.pad([tokens], 0), covered, encoded).states[0]
        levels = model.output(states).log_softmax(-1)
        levels[:, [PADDING, START, END]] = -math.inf
        for place in hidden:
            tokens[place], chances[place] = int(levels[place].argmax()), float(levels[place].max())
    assert list(answer[0].tokens) == tokens
    assert list(answer[0].token_log_probabilities[:-1]) == pytest.approx(chances, rel=1e-4)


@torch.inference_mode()
def test_tokens_are_guessed_in_pieces_as_in_one(monkeypatch):
    model = lively("fertility")
    states, wanted = torch.randn(3, 5, 16), torch.rand(3, 5) < 0.6
    whole = guessed(model, states, None, SYMBOLS)
    monkeypatch.setattr("headway.search.drafts.LOGITS", {"cpu": 4 * VOCABULARY})
    for one, other, some in zip(
        whole, guessed(model, states, None, SYMBOLS), guessed(model, states, wanted, SYMBOLS), strict=True
    ):
        assert torch.allclose(one, other)
        assert torch.allclose(one[wanted], some[wanted])
    values = torch.tensor([[1.0, 3.0, 3.0], [2.0, 0.0, 1.0]])
    assert highest(values).tolist() == values.argmax(-1).tolist() == [1, 0]


def test_of_two_ways_to_one_output_the_better_counts():
    drafts = [((4, 5), (-1.0, -1.0), -2.0), ((4, 5), (-1.0, -1.0), -0.5), ((6,), (-4.0,), -0.1)]
    found = ranked(drafts, DecodingConfig(nbest=4))
    assert [(each.tokens, each.log_probability) for each in found] == [((4, 5), -2.5), ((6,), -4.1)]


@pytest.mark.parametrize("kind", ["fertility", "mask-predict"])
def test_what_needs_one_token_after_the_other_is_refused(kind):
    engine, source = Engine(lively(kind), SYMBOLS), (4, 5)
    for request in (Request(source, prefix=(4,)), Request(source, required=((4,),)), Request(source, banned=("a",))):
        with pytest.raises(ConfigError, match="writes all tokens at once"):
            engine.search([request], DecodingConfig())
    for settings in ({"sample": True}, {"no_repeat": 2}, {"repetition": 1.5}, {"groups": 2}, {"coverage_penalty": 0.2}):
        with pytest.raises(ConfigError, match="writes all tokens at once; leave out"):
            engine.search([Request(source)], DecodingConfig(**settings))


def test_fertilities_and_slots_alone_say_how_long_an_output_is():
    settings = DecodingConfig(shortest_extra=3, no_repeat=2)
    for kind in ("fertility", "ctc"):
        with pytest.raises(ConfigError, match=f"a {kind} model .* leave out no_repeat, shortest_extra"):
            check(kind, settings)
    check("mask-predict", DecodingConfig(shortest_extra=3))
    with pytest.raises(ConfigError, match="shortest"):
        Engine(lively("fertility"), SYMBOLS).search([Request((4, 5))], DecodingConfig(shortest_extra=3))

"""A Transformer whose positions see a window of their own sequence."""

from dataclasses import replace

import pytest
import torch
from pydantic import ValidationError

import writers
from headway.engine import Engine
from headway.engine.captured import Captured, Room
from headway.engine.readiness import ready
from headway.interop.specification import refusal
from headway.models.transformer import Transformer, TransformerConfig
from headway.nn.recomputing import recomputing
from headway.search import DecodingConfig, Request, Symbols
from headway.sequences import Sequences

POSITIONS = ["sinusoidal", "learned", "rotary", "relative", "alibi"]
SIZES = {"dim": 8, "heads": 2, "hidden": 12, "encoder_layers": 2, "decoder_layers": 2, "longest": 128}
windows = pytest.mark.parametrize("window", [1, 2, 3, 6])


def build(window, dtype=torch.float64, **options):
    torch.manual_seed(1)
    model = Transformer(TransformerConfig(**{**SIZES, "window": window, **options}), 12, 12).to(dtype).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model


def tokens(length, seed=0):
    return torch.randint(3, 12, (length,), generator=torch.Generator().manual_seed(seed + length)).tolist()


def reach(states, vectors):
    """Which vectors each state depends on."""
    direction = torch.randn(states.shape[-1], dtype=states.dtype)
    rows = [torch.autograd.grad(state @ direction, vectors, retain_graph=True)[0] for state in states]
    return torch.stack(rows).squeeze(1).abs().amax(-1) > 0


def embedded(model):
    """The embedded source and target of the next pass, as they go by."""
    seen = []
    model.dropout.register_forward_hook(lambda module, inputs, output: seen.append(output))
    return seen


@windows
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("length", [20, 80], ids=["masked", "in blocks"])
def test_a_layer_sees_half_the_window_on_either_side_in_the_encoder_and_the_last_ones_in_the_decoder(
    window, layers, length
):
    model = build(window, encoder_layers=layers, decoder_layers=layers, norm="pre")
    seen = embedded(model)
    encoded = model.encode(Sequences.pad([tokens(length)], 0))
    apart = torch.arange(length) - torch.arange(length)[:, None]
    assert torch.equal(reach(encoded.states[0], seen[0]), apart.abs() <= layers * (window // 2))
    detached = replace(encoded, states=encoded.states.detach())
    decoded = model.decode(Sequences.pad([tokens(length)], 0), detached).states[0]
    assert torch.equal(reach(decoded, seen[1]), (apart <= 0) & (apart >= -layers * (window - 1)))


@windows
def test_every_target_position_reads_the_whole_source(window):
    model = build(window)
    encoded = model.encode(Sequences.pad([tokens(70)], 0), need_weights=True)
    states = encoded.states.detach().requires_grad_()
    decoded = model.decode(Sequences.pad([tokens(5)], 0), replace(encoded, states=states)).states[0]
    assert reach(decoded, states).all()


@windows
@pytest.mark.parametrize("packed", [False, True])
def test_weights_are_zero_outside_of_the_window(window, packed):
    model = build(window)
    source, target = (Sequences.pack(rows) if packed else Sequences.pad(rows, 0) for rows in ([tokens(9)], [tokens(7)]))
    encoded = model.encode(source, need_weights=True)
    decoded = model.decode(target, encoded, need_weights=True)
    apart = torch.arange(9) - torch.arange(9)[:, None]
    for weights in encoded.weights:
        assert torch.equal((weights > 0).all(1)[0], apart.abs() <= window // 2)
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    for weights in decoded.self_weights:
        assert torch.equal((weights > 0).all(1)[0], ((apart <= 0) & (apart > -window))[:7, :7])
    for weights in decoded.cross_weights:
        assert (weights > 0).all()


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("length", [12, 100], ids=["masked", "in blocks"])
def test_packed_sentences_have_the_states_and_gradients_of_padded_ones(positions, length):
    model = build(5, positions=positions)
    rows = [tokens(length), tokens(3), tokens(length - 1, 2)], [tokens(4), tokens(length), tokens(9)]
    target = Sequences.pad(rows[1], 0)
    whole = model(Sequences.pad(rows[0], 0), target)[target.present]
    weights = [weight for name, weight in model.named_parameters() if not name.startswith("output.bias")]
    wanted = torch.autograd.grad(whole.sin().sum(), weights, retain_graph=True)
    packed = model(*map(Sequences.pack, rows))
    torch.testing.assert_close(packed, whole)
    for mine, other in zip(torch.autograd.grad(packed.sin().sum(), weights), wanted, strict=True):
        torch.testing.assert_close(mine, other)


@windows
@pytest.mark.parametrize("positions", POSITIONS)
@torch.inference_mode()
def test_steps_see_what_one_pass_sees_and_remember_no_more(window, positions):
    model, length = build(window, positions=positions), 100
    target = Sequences.pad([tokens(length), tokens(length, 1)], 0)
    encoded = model.encode(Sequences.pad([tokens(4), tokens(9)], 0))
    whole = model.output(model.decode(target, encoded).states).float().log_softmax(-1)
    state = model.start(encoded)
    for time in range(length):
        scores, state = model.step(target.tokens[:, time : time + 1], None, state)
        torch.testing.assert_close(scores[:, 0], whole[:, time])
        assert state.past[0].held().key.shape[1] == min(time + 1, window)
    assert state.past[0].room.key.shape[1] <= 64  # the room at first, which a window of six never fills


@pytest.mark.parametrize("window", [1, 2, 3])
@pytest.mark.parametrize("positions", ["sinusoidal", "relative"])
def test_a_state_is_a_value_and_rows_go_on_from_their_parents(window, positions):
    writers.check_a_state_is_a_value(build(window, torch.float32, positions=positions))


def test_the_memory_of_a_long_output_stays_as_large_as_the_window():
    model = build(4, torch.float32)
    with torch.inference_mode():
        state = model.start(model.encode(Sequences.pad([tokens(4)], 0)))
        _, state = model.step(torch.tensor([[1]]), None, state)
        for time in range(70):
            parents = torch.tensor([[0, 0, 0]]) if time == 0 else torch.tensor([[2, 0, 0]])
            _, state = model.step(torch.tensor([[4, 5, 6]]), parents, state)
    assert state.past[0].held().key.shape[1] == len(state.lineage.positions) == state.lineage.added.shape[-1] == 12
    assert state.past[0].room.key.shape[1] <= 64  # which took 211 positions
    assert state.lineage.positions.tolist() == [place for place in range(67, 71) for _ in range(3)]


@windows
@pytest.mark.parametrize("settings", [{"beam": 4, "nbest": 3}, {"beam": 1}])
@pytest.mark.parametrize("positions", ["sinusoidal", "alibi"])
def test_searches_in_growing_and_fixed_room_and_in_straight_lines_find_the_same(window, settings, positions):
    config, symbols = DecodingConfig(**settings, limit_ratio=0.0, limit_extra=30), Symbols(1, 2, (0, 1))
    asked = [Request(tuple(tokens(length))) for length in (3, 12, 7)]
    model, straight = (build(window, torch.float32, positions=positions, norm="pre") for _ in range(2))
    for each in (model, straight):
        each.output.bias.data[2] -= 6.0
    with torch.inference_mode():
        fixed = Captured(model, symbols, Room.fitting(asked, config, model.config.longest)).run(asked, config)
    growing = Engine(model, symbols).search(asked, config)
    lean = Engine(ready(straight), symbols).search(asked, config)
    assert any(len(found[0].tokens) > 10 for found in growing)
    for found in (fixed, lean):
        assert [[each.tokens for each in one] for one in found] == [[each.tokens for each in one] for one in growing]
        for mine, other in zip(found, growing, strict=True):
            assert mine[0].score == pytest.approx(other[0].score, abs=1e-4)


@pytest.mark.parametrize(
    "options", [{"positions": "rotary", "norm": "pre"}, {"positions": "relative", "feedforward": "convolutional"}]
)
def test_such_a_model_is_proved(options):
    config = TransformerConfig(**{**SIZES, "dim": 16, "longest": 32, "window": 3, **options})
    assert writers.proved(Transformer, config) == {"folder"} | ({"layout"} if not config.packable else set())


def test_a_window_as_long_as_the_sentences_changes_nothing():
    everything, restricted = build(None), build(128)
    rows = Sequences.pad([tokens(60), tokens(9)], 0), Sequences.pad([tokens(50), tokens(60)], 0)
    torch.testing.assert_close(restricted(*rows)[rows[1].present], everything(*rows)[rows[1].present])


def test_what_a_window_means_for_the_rest_of_the_package():
    assert TransformerConfig().reads_all
    assert not TransformerConfig(window=4).reads_all
    assert TransformerConfig(window=4).packable
    assert refusal(TransformerConfig()) is None
    assert "window" in str(refusal(TransformerConfig(window=4)))


@pytest.mark.parametrize("window", [0, -3, 65537, 2.5, "wide"])
def test_a_window_that_is_none_is_refused(window):
    with pytest.raises(ValidationError, match="window"):
        TransformerConfig(window=window)


def test_layers_computed_again_have_the_same_gradients_with_dropout():
    found = []
    for again in (False, True):
        model = build(5, attention_dropout=0.2, dropout=0.1).train()
        torch.manual_seed(3)
        with recomputing(again):
            loss = model(Sequences.pad([tokens(100)], 0), Sequences.pad([tokens(90)], 0)).sin().sum()
        loss.backward()
        found.append([loss, *(weight.grad for weight in model.parameters() if weight.grad is not None)])
    for kept, computed in zip(*found, strict=True):
        torch.testing.assert_close(computed, kept)

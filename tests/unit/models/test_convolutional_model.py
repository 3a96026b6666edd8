"""Convolutional models: every state and weight by plain loops, steps, settings, and a run from end to end."""

import math

import pytest
import torch

import writers
from headway.config import validated
from headway.errors import ConfigError
from headway.models.convolutional import EMBEDDED, Convolutional, ConvolutionalConfig, DecoderLayer

SMALL = {"dim": 8, "encoder_layers": 2, "decoder_layers": 2, "longest": 16, "dropout": 0.0}


def build(**changes):
    return writers.built(Convolutional, ConvolutionalConfig(**{**SMALL, **changes}))


def gated(layer, inputs, before, after):
    """v([A B]) of every position, from lists of vectors with zeros beyond the edges."""
    weight, bias = layer.convolution.window.weight, layer.convolution.window.bias
    dim, nothing = len(inputs[0]), torch.zeros_like(inputs[0])
    around = [nothing] * before + inputs + [nothing] * after
    found = []
    for place in range(len(inputs)):
        total = bias.clone()
        for offset in range(before + after + 1):
            total = total + weight[:, offset * dim : (offset + 1) * dim] @ around[place + offset]
        found.append(total[:dim] * torch.sigmoid(total[dim:]))
    return found


def understood(model, source, target):
    """The paper's equations (1) and (2) for one pair, a vector at a time: the states, and each layer's weights."""
    half, kernel = math.sqrt(0.5), model.config.kernel

    def embedded(embedding, table, tokens):
        looked_up = embedding(torch.tensor(tokens))
        return [(looked_up[place] + table[place]) * EMBEDDED for place in range(len(tokens))]

    e = embedded(model.source_embedding, model.source_positions.table, source)
    g = embedded(model.target_embedding, model.target_positions.table, target)
    z = e
    for layer in model.encoder:
        new = gated(layer.gated, z, kernel // 2, kernel // 2)
        z = [(one + other) * half for one, other in zip(new, z, strict=True)]
    h, weights = g, []
    for layer in model.decoder:
        new, rows, after = gated(layer.gated, h, kernel - 1, 0), [], []
        for place, state in enumerate(new):
            summary = (layer.query.weight @ state + layer.query.bias + g[place]) * half
            powers = [math.exp(float(summary @ key)) for key in z]
            rows.append([power / sum(powers) for power in powers])
            context = sum(share * (key + own) * half for share, key, own in zip(rows[-1], z, e, strict=True))
            after.append(((state + context * math.sqrt(len(source))) * half + h[place]) * half)
        h = after
        weights.append(rows)
    return torch.stack(h), torch.tensor(weights)


@pytest.mark.parametrize("kernel", [3, 5])
@torch.no_grad()
def test_states_and_attention_weights_are_those_of_the_equations(kernel):
    model = build(kernel=kernel)
    encoded = model.encode(writers.padded(writers.SOURCES), need_weights=True)
    decoded = model.decode(writers.padded(writers.TARGETS), encoded, need_weights=True)
    assert (len(encoded.weights), len(decoded.self_weights), len(decoded.cross_weights)) == (0, 0, 2)
    for row, (source, target) in enumerate(zip(writers.SOURCES, writers.TARGETS, strict=True)):
        states, weights = understood(model, source, target)
        torch.testing.assert_close(decoded.states[row, : len(target)], states, rtol=1e-4, atol=1e-5)
        for layer, found in enumerate(decoded.cross_weights):
            assert found.shape == (3, 1, 5, 6)
            torch.testing.assert_close(
                found[row, 0, : len(target), : len(source)], weights[layer], rtol=1e-4, atol=1e-5
            )
            assert (found[row, 0, : len(target), len(source) :] == 0).all()


@pytest.mark.parametrize("changes", [{}, {"kernel": 5}, {"positions": "sinusoidal"}, {"tie": "none"}], ids=str)
def test_steps_give_what_one_pass_gives_and_their_state_is_a_value(changes):
    model = build(**changes)
    writers.check_steps_give_what_one_pass_gives(model)
    writers.check_a_state_is_a_value(model)


def test_padding_changes_no_state_and_a_pass_leaves_no_trace():
    writers.check_padding_changes_nothing(build())
    writers.check_a_pass_leaves_no_trace(build(dropout=0.1))


def test_a_state_sees_as_far_as_its_convolutions_reach():
    """Two layers of kernel 3 reach two tokens to either side in the encoder, four to the left in the decoder."""
    model = build(longest=32)
    source = writers.padded([[4] * 12])
    before = model.encode(source).states[0]
    source.tokens[0, 6] = 5
    changed = (model.encode(source).states[0] - before).abs().amax(-1) > 0
    assert changed.nonzero().flatten().tolist() == [4, 5, 6, 7, 8]
    target = writers.padded([[4] * 12])
    encoded = model.encode(source)
    before = model.decode(target, encoded).states[0]
    target.tokens[0, 3] = 5
    changed = (model.decode(target, encoded).states[0] - before).abs().amax(-1) > 0
    assert changed.nonzero().flatten().tolist() == [3, 4, 5, 6, 7]


@torch.no_grad()
def test_what_was_read_of_the_source_is_the_sum_of_the_last_layers_weights():
    model = build()
    encoded = model.encode(writers.padded(writers.SOURCES))
    target = [[1, 4, 6], [1, 7, 7], [1, 8, 3]]
    weights = model.decode(writers.padded(target), encoded, need_weights=True).cross_weights[-1].sum(2)[:, 0]
    _, state = writers.stepped(model, model.start(encoded, coverage=True), list(zip(*target, strict=True)))
    torch.testing.assert_close(state.coverage[:, 0], weights, rtol=1e-4, atol=1e-5)
    expected = [
        sum(math.log(min(1.0, float(each))) for each in weights[row, : len(source)])
        for row, source in enumerate(writers.SOURCES)
    ]
    torch.testing.assert_close(model.unread(state)[:, 0], torch.tensor(expected), rtol=1e-4, atol=1e-4)
    kept = model.keep(state, torch.tensor([1]))
    torch.testing.assert_close(model.unread(kept), model.unread(state)[1:2])


def test_a_proof_of_a_convolutional_model_finds_nothing_wrong():
    config = ConvolutionalConfig(dim=16, encoder_layers=2, decoder_layers=2, longest=32)
    assert writers.proved(Convolutional, config) == {"folder", "layout"}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"kernel": 4}, "kernel 4 has no middle; use an odd one"),
        ({"kernel": 1}, "kernel: should be greater than or equal to 3"),
        ({"dim": 7}, "dim 7 is odd; use an even one"),
        ({"dim": 16384, "longest": 65536}, "a position table of 65536 x 16384 is over 1 GiB; lower longest"),
        ({"encoder_layers": 0}, "encoder_layers: should be greater than 0"),
        ({"positions": "rotary"}, "positions"),
        ({"heads": 4}, "heads"),
    ],
)
def test_sizes_that_cannot_work_are_refused_in_one_line(wrong, said):
    with pytest.raises(ConfigError) as refusal:
        validated(ConvolutionalConfig, wrong, "recipe")
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_the_fewest_parameters_are_nearly_all():
    config = ConvolutionalConfig()
    with torch.device("meta"):
        count = sum(weight.numel() for weight in Convolutional(config, 4000, 4000).parameters())
    assert 0.98 * count < config.fewest_parameters(4000) <= count
    assert 2e6 < count < 5e6


def test_a_new_model_begins_with_even_attention_and_small_logits():
    torch.manual_seed(1)
    model = Convolutional(ConvolutionalConfig(), 50, 50).eval()
    tokens = writers.padded(torch.randint(4, 50, (4, 10)).tolist())
    decoded = model.decode(tokens, model.encode(tokens), need_weights=True)
    assert model.output(decoded.states).std() < 1.0
    assert decoded.cross_weights[0].max() < 0.5


RUN = {"model.architecture": "convolutional", "model.dim": 16, "model.encoder_layers": 1, "model.decoder_layers": 1}


def test_a_run_trains_translates_and_shows_its_attention(headway, corpus, tmp_path, tiny):
    keep = {name: value for name, value in tiny.items() if not name.startswith("model.")}
    sets = [part for name, value in (keep | RUN).items() for part in ("--set", f"{name}={value}")]
    files = ["--source", corpus[0], "--target", corpus[1], "--device", "cpu"]
    dry = headway("train", *files, "--dry-run", *sets, "--set", "model.dim=32")
    assert "masks: no position sees a later one" in dry.err and "sane" in dry.err
    assert headway("train", *files, "--out", tmp_path / "run", *sets).code == 0
    options = ["--beam", 3, "--nbest", 2, "--device", "cpu"]
    lines = headway("translate", tmp_path / "run", *options, stdin=b"le chat\nun chien mange\n").lines
    assert len(lines) == 4
    page = tmp_path / "page.html"
    assert headway("attention", tmp_path / "run", "le chat voit", "--out", page, "--device", "cpu").code == 0
    assert "cross" in page.read_text(encoding="utf-8")


def test_what_asks_the_source_begins_small_and_without_an_offset():
    torch.manual_seed(1)
    layer = DecoderLayer(ConvolutionalConfig(dim=256, kernel=3))
    assert layer.query.weight.std().item() == pytest.approx(256**-0.5, rel=0.05)
    assert not layer.query.bias.any()


def test_a_layer_gives_weights_only_where_they_are_asked_for():
    model, x = build(), torch.randn(3, 5, 8)
    source = model.start(model.encode(writers.padded(writers.SOURCES))).source
    layer = model.decoder[0]
    assert layer(x, x, source).weights is None
    assert layer(x, x, source, need_weights=True).weights.shape == (3, 1, 5, 6)

"""ByteNet: every state by plain loops, unfolding, steps, settings, and a run from end to end."""

import pytest
import torch

import writers
from headway.config import validated
from headway.errors import ConfigError
from headway.models.bytenet import ByteNet, ByteNetConfig

SMALL = {"dim": 8, "encoder_layers": 3, "decoder_layers": 3, "dilations": 2, "longest": 32, "dropout": 0.0}


def build(**changes):
    return writers.built(ByteNet, ByteNetConfig(**{**SMALL, **changes}))


def through(block, states, offsets):
    """One residual block over a list of vectors: a position sees those `offsets` away from it, zeros beyond."""
    nothing = torch.zeros(len(states[0]) // 2)
    narrow = [block.norm_narrow(block.narrow(block.norm_wide(state[None]).relu())).relu()[0] for state in states]
    found, half = [], len(nothing)
    for place, state in enumerate(states):
        total = block.convolution.window.bias.clone()
        for number, offset in enumerate(offsets):
            seen = narrow[place + offset] if 0 <= place + offset < len(states) else nothing
            total = total + block.convolution.window.weight[:, number * half : (number + 1) * half] @ seen
        found.append(state + block.widen(block.norm_seen(total[None]).relu())[0])
    return found


def understood(model, source, target):
    """The states of one pair, a vector at a time."""
    config, reach = model.config, range(model.config.kernel)
    nothing = torch.zeros(config.dim)
    x = [*model.source_embedding(torch.tensor(source))]
    x += [nothing] * (config.columns(len(source)) - len(source))
    for layer, block in enumerate(model.encoder):
        x = through(block, x, [(number - config.kernel // 2) * config.dilation(layer) for number in reach])
    columns = [model.column(model.encoder_norm(state[None]))[0] for state in x]
    columns += [nothing] * max(0, len(target) - len(columns))
    embedded = model.target_embedding(torch.tensor(target))
    y = [embedded[place] + columns[place] for place in range(len(target))]
    for layer, block in enumerate(model.decoder):
        y = through(block, y, [(number - config.kernel + 1) * config.dilation(layer) for number in reach])
    return torch.stack([model.decoder_norm(state[None])[0] for state in y])


@pytest.mark.parametrize("kernel", [3, 5])
@torch.no_grad()
def test_states_are_those_of_plain_loops_also_beyond_the_last_column(kernel):
    model = build(kernel=kernel, unfold_extra=0)
    targets = [[1, 4, 6, 5, 9], [1, 7, 7, 8, 9, 4, 5, 6, 3, 4], [1]]
    decoded = model.decode(writers.padded(targets), model.encode(writers.padded(writers.SOURCES)), need_weights=True)
    assert (decoded.self_weights, decoded.cross_weights) == ((), ())
    for row, (source, target) in enumerate(zip(writers.SOURCES, targets, strict=True)):
        expected = understood(model, source, target)
        torch.testing.assert_close(decoded.states[row, : len(target)], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("changes", [{}, {"kernel": 5, "dilations": 3}, {"unfold_extra": 0}, {"tie": "none"}], ids=str)
def test_steps_give_what_one_pass_gives_and_their_state_is_a_value(changes):
    model = build(**changes)
    writers.check_steps_give_what_one_pass_gives(model)
    writers.check_a_state_is_a_value(model)


def test_padding_changes_no_state_and_a_pass_leaves_no_trace():
    writers.check_padding_changes_nothing(build())
    writers.check_a_pass_leaves_no_trace(build(dropout=0.1))


def test_a_source_is_unfolded_to_more_columns_than_it_has_tokens():
    model = build(unfold=1.5, unfold_extra=2)
    columns = model.encode(writers.padded(writers.SOURCES)).columns
    assert columns.shape == (3, 11, 8)
    assert [int((row.abs().amax(-1) > 0).sum()) for row in columns] == [11, 7, 8]  # ⌈1.5 · 6, 3, 4⌉ + 2


def test_sets_of_layers_look_further_and_further():
    """Dilations 1, 2, 4 and again 1: with kernel 3 that is 8 tokens to either side."""
    model = build(dilations=3, encoder_layers=4, unfold_extra=0)
    assert [layer.convolution.dilation for layer in model.encoder] == [1, 2, 4, 1]
    source = writers.padded([[4] * 20])
    before = model.encode(source).states[0]
    source.tokens[0, 10] = 5
    changed = (model.encode(source).states[0] - before).abs().amax(-1) > 0
    assert changed.nonzero().flatten().tolist() == list(range(2, 19))


def test_what_was_read_of_the_source_cannot_be_asked_without_attention():
    model = build()
    with pytest.raises(ConfigError, match="coverage_penalty: a bytenet model has no attention to the source"):
        model.start(model.encode(writers.padded(writers.SOURCES)), coverage=True)


def test_a_proof_of_a_bytenet_finds_nothing_wrong():
    config = ByteNetConfig(dim=16, encoder_layers=3, decoder_layers=3, dilations=3, longest=32)
    assert writers.proved(ByteNet, config) == {"folder", "layout"}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"kernel": 2}, "kernel: should be greater than or equal to 3"),
        ({"kernel": 4}, "kernel 4 has no middle; use an odd one"),
        ({"dim": 7}, "dim 7 is odd"),
        ({"dilations": 0}, "dilations: should be greater than 0"),
        ({"dilations": 17}, "dilations: should be less than or equal to 16"),
        ({"unfold": 0.5}, "unfold: should be greater than or equal to 1"),
        ({"dilation": 3}, "did you mean dilations?"),
    ],
)
def test_sizes_that_cannot_work_are_refused_in_one_line(wrong, said):
    with pytest.raises(ConfigError) as refusal:
        validated(ByteNetConfig, wrong, "recipe")
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_the_fewest_parameters_are_nearly_all():
    config = ByteNetConfig()
    with torch.device("meta"):
        count = sum(weight.numel() for weight in ByteNet(config, 4000, 4000).parameters())
    assert 0.98 * count < config.fewest_parameters(4000) <= count
    assert 2e6 < count < 5e6


RUN = {"model.architecture": "bytenet", "model.dim": 16, "model.encoder_layers": 2, "model.decoder_layers": 2}


def test_a_run_trains_and_translates_and_has_no_attention_to_show(headway, corpus, tmp_path, tiny):
    keep = {name: value for name, value in tiny.items() if not name.startswith("model.")}
    sets = [part for name, value in (keep | RUN).items() for part in ("--set", f"{name}={value}")]
    files = ["--source", corpus[0], "--target", corpus[1], "--device", "cpu"]
    dry = headway("train", *files, "--dry-run", *sets, "--set", "model.dim=32")
    assert "masks: no position sees a later one" in dry.err and "sane" in dry.err
    assert headway("train", *files, "--out", tmp_path / "run", *sets).code == 0
    options = ["--beam", 3, "--nbest", 2, "--device", "cpu"]
    lines = headway("translate", tmp_path / "run", *options, stdin=b"le chat\nun chien mange\n").lines
    assert len(lines) == 4
    refused = headway("attention", tmp_path / "run", "le chat voit", "--out", tmp_path / "page.html")
    assert "attention" in refused.complaint

import pytest
import torch

from headway.models.maskpredict import MaskPredict, MaskPredictConfig
from headway.sequences import Sequences

SIZES = {"dim": 8, "heads": 2, "hidden": 16, "encoder_layers": 2, "decoder_layers": 2, "longest": 12}
ROWS, TARGETS = [[4, 5, 6, 7, 2], [8, 2], [3, 9, 2]], [[4, 4, 5, 7], [8], [3, 9, 9, 9, 9, 2]]


def build(**more):
    torch.manual_seed(1)
    model = MaskPredict(MaskPredictConfig(**SIZES, **more), 11, 11).double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    return model


@pytest.fixture
def hidden():
    return torch.tensor([[1, 0, 1, 0, 0, 0], [1, 0, 0, 0, 0, 0], [0, 1, 1, 0, 0, 1]], dtype=torch.bool)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_in_straight_lines_states_are_those_of_the_stacks(norm, hidden):
    model = build(norm=norm)
    source, target = Sequences.pad(ROWS, 0), Sequences.pad(TARGETS, 0)
    encoded = model.encode(source)
    decoded, lengths = model.decode(target, hidden, encoded).states, model.lengths(encoded)
    model.straighten()
    with torch.inference_mode():
        straight = model.encode(source)
        assert torch.allclose(straight.states[source.present], encoded.states[source.present])
        assert torch.allclose(model.lengths(straight), lengths)
        found = model.decode(target, hidden, straight, model.remember(straight)).states
        assert torch.allclose(found[target.present], decoded[target.present])
        assert len(model.decode(target, hidden, straight, need_weights=True).self_weights) == 2


@pytest.mark.parametrize("straight", [True, False])
def test_neighbours_and_padding_never_change_a_sentence(straight, hidden):
    model = build()
    if straight:
        model.straighten()
    with torch.inference_mode():
        encoded = model.encode(Sequences.pad(ROWS, 0))
        states, lengths = model.decode(Sequences.pad(TARGETS, 0), hidden, encoded).states, model.lengths(encoded)
        for row, (source, target) in enumerate(zip(ROWS, TARGETS, strict=True)):
            alone = model.encode(Sequences.pad([source], 0))
            assert torch.allclose(model.lengths(alone)[0], lengths[row])
            own = model.decode(Sequences.pad([target], 0), hidden[row : row + 1, : len(target)], alone).states[0]
            assert torch.allclose(own, states[row, : len(target)])


def test_hidden_tokens_are_not_seen_and_all_others_are(hidden):
    model = build()
    encoded, target = model.encode(Sequences.pad(ROWS, 0)), Sequences.pad(TARGETS, 0)
    states = model.decode(target, hidden, encoded).states
    for row, place in target.present.nonzero().tolist():
        tokens = target.tokens.clone()
        tokens[row, place] = 10
        found = model.decode(Sequences(tokens, target.lengths, target.longest, target.full), hidden, encoded).states
        moved = (found != states).any(-1)
        assert moved[row, : len(TARGETS[row])].all() == (not hidden[row, place])
        assert moved.any() == (not hidden[row, place])


def test_the_length_hangs_on_the_whole_source():
    model = build()
    for place in range(3):
        changed = [[4, 5, 6, 2]]
        changed[0][place] = 9
        before, after = (model.lengths(model.encode(Sequences.pad(rows, 0))) for rows in ([[4, 5, 6, 2]], changed))
        assert not torch.equal(before, after)


def test_an_untrained_model_thinks_targets_as_long_as_sources():
    model = MaskPredict(MaskPredictConfig(**SIZES, length_reach=5), 11, 11).eval()
    assert model.lengths(model.encode(Sequences.pad(ROWS, 0))).argmax(-1).tolist() == [5, 5, 5]


def test_states_of_a_target_of_known_length_come_from_hidden_tokens_alone():
    model = build()
    source, target = Sequences.pad(ROWS, 0), Sequences.pad(TARGETS, 0)
    other = Sequences(target.tokens * 0 + 3, target.lengths, target.longest, target.full)
    assert torch.equal(model(source, target), model(source, other))

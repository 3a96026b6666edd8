import math

import pytest
import torch
from pydantic import ValidationError

from headway.models.fertility import FertilityConfig, FertilityTransformer, copied
from headway.nn.attention import Visible
from headway.nn.layers import LayerShape
from headway.nn.positional import PositionalAttention
from headway.nn.positions import sinusoids
from headway.sequences import Sequences

SIZES = {"dim": 8, "heads": 2, "hidden": 16, "encoder_layers": 2, "decoder_layers": 2, "longest": 12}
ROWS, COPIES = [[4, 5, 6, 7, 2], [8, 2], [3, 9, 2]], [[4, 4, 5, 7], [8], [3, 9, 9, 9, 9, 2]]


def build(**more):
    torch.manual_seed(1)
    model = FertilityTransformer(FertilityConfig(**SIZES, **more), 11, 11).double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    return model


@pytest.mark.parametrize("layers", ["relu", "gelu", "gated"])
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("see_itself", [True, False])
def test_in_straight_lines_states_are_those_of_the_stacks(layers, norm, see_itself):
    model = build(feedforward=layers, norm=norm, see_itself=see_itself)
    source, copies = Sequences.pad(ROWS, 0), Sequences.pad(COPIES, 0)
    encoded = model.encode(source)
    decoded = model.decode(copies, encoded).states
    fertilities = model.fertilities(encoded)
    model.straighten()
    with torch.inference_mode():
        straight = model.encode(source)
        assert torch.allclose(straight.states[source.present], encoded.states[source.present], atol=1e-9)
        assert torch.allclose(model.fertilities(straight), fertilities)
        found = model.decode(copies, straight).states
        assert torch.allclose(found[copies.present], decoded[copies.present], atol=1e-6)
        assert len(model.decode(copies, straight, need_weights=True).cross_weights) == 2


@pytest.mark.parametrize("straight", [True, False])
@pytest.mark.parametrize("see_itself", [True, False])
def test_neighbours_and_padding_never_change_a_sentence(straight, see_itself):
    model = build(see_itself=see_itself)
    if straight:
        model.straighten()
    with torch.inference_mode():
        encoded = model.encode(Sequences.pad(ROWS, 0))
        states, chances = model.decode(Sequences.pad(COPIES, 0), encoded).states, model.fertilities(encoded)
        for row, (source, copies) in enumerate(zip(ROWS, COPIES, strict=True)):
            alone = model.encode(Sequences.pad([source], 0))
            assert torch.allclose(model.fertilities(alone)[0], chances[row, : len(source)], atol=1e-6)
            assert chances[row, len(source) :, 0].eq(0).all()
            own = model.decode(Sequences.pad([copies], 0), alone).states[0]
            assert torch.allclose(own, states[row, : len(copies)], atol=1e-6)


def test_positional_attention_mixes_states_by_where_they_stand():
    torch.manual_seed(2)
    dim, heads, time = 8, 2, 5
    attention = PositionalAttention(dim, heads).double()
    torch.nn.init.normal_(attention.inputs.bias)
    x, order = torch.randn(2, time, dim, dtype=torch.float64), sinusoids(time, dim).double()
    lengths = [5, 3]
    keys = torch.arange(time) < torch.tensor(lengths)[:, None]
    found = attention.mix(x, order, Visible(keys=keys), need_weights=True)
    weight, bias = attention.inputs.weight.detach(), attention.inputs.bias.detach()
    query, key = (order @ weight[part : part + dim].T + bias[part : part + dim] for part in (0, dim))
    value = x @ weight[2 * dim :].T + bias[2 * dim :]
    width = dim // heads
    for sentence, length in enumerate(lengths):
        for place in range(time):
            mixed = torch.zeros(dim, dtype=torch.float64)
            for head in range(heads):
                cut = slice(head * width, (head + 1) * width)
                scores = [
                    math.exp(float(query[place, cut] @ key[other, cut]) / math.sqrt(width)) for other in range(length)
                ]
                for other, score in enumerate(scores):
                    share = score / sum(scores)
                    assert found.weights[sentence, head, place, other].item() == pytest.approx(share)
                    mixed[cut] += share * value[sentence, other, cut]
            assert torch.allclose(attention.output(mixed), found.output[sentence, place])


def test_no_position_attends_to_itself_unless_it_is_alone():
    model = build()
    decoded = model.decode(Sequences.pad(COPIES, 0), model.encode(Sequences.pad(ROWS, 0)), need_weights=True)
    for weights in decoded.self_weights:
        for row, copies in enumerate(COPIES):
            own = weights[row, :, range(len(copies)), range(len(copies))]
            assert own.eq(1.0 if len(copies) == 1 else 0.0).all()
            assert torch.allclose(weights[row, :, : len(copies), : len(copies)].sum(-1), torch.ones(1).double())


def test_source_tokens_are_copied_as_often_as_their_fertility_says():
    source = torch.tensor([[4, 5, 6, 2], [7, 8, 2, 0]])
    fertilities = torch.tensor([[0, 3, 1, 0], [2, 0, 0, 0]])
    found = copied(source, fertilities, 4)
    assert found[0].tolist() == [5, 5, 5, 6]
    assert found[1, :2].tolist() == [7, 7]


def test_states_of_a_target_of_known_length_come_from_tokens_copied_evenly():
    model = build()
    source, target = Sequences.pad([[4, 5, 6, 2]], 0), Sequences.pad([[1] * 8], 0)
    even = Sequences.pad([[4, 4, 5, 5, 6, 6, 2, 2]], 0)
    assert torch.equal(model(source, target), model.decode(even, model.encode(source)).states)


def test_an_untrained_model_makes_one_token_of_one():
    model = FertilityTransformer(FertilityConfig(**SIZES), 11, 11).eval()
    assert model.fertilities(model.encode(Sequences.pad(ROWS[:1], 0))).argmax(-1).tolist() == [[1] * 5]


@pytest.mark.parametrize(
    ("settings", "told"),
    [({"dim": 9, "heads": 3}, "odd"), ({"heads": 3}, "not divisible"), ({"tie": "none"}, "three-way"),
     ({"positions": "rotary"}, "positions"), ({"longest": 65536, "dim": 8192}, "over 1 GiB")],
)  # fmt: skip
def test_what_cannot_be_is_refused(settings, told):
    with pytest.raises(ValidationError, match=told):
        FertilityConfig(**settings)


def test_a_preset_gives_the_sizes_of_the_transformer():
    config = FertilityConfig(preset="tiny", heads=2)
    assert (config.dim, config.hidden, config.encoder_layers, config.heads) == (128, 256, 4, 2)
    assert isinstance(config.shape, LayerShape)
    model = FertilityTransformer(config, 100, 100)
    assert sum(weight.numel() for weight in model.parameters()) > config.fewest_parameters(100) > 4 * 12 * 128**2

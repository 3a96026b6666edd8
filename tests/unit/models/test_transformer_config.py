"""Sizes: what is refused, what is shared, and the numbers of the paper."""

import pytest
import torch

from headway.config import validated
from headway.errors import ConfigError
from headway.models.layered import PRESETS
from headway.models.transformer import Transformer, TransformerConfig
from headway.sequences import Sequences

SMALL = {"dim": 8, "heads": 2, "hidden": 12, "encoder_layers": 1, "decoder_layers": 1, "longest": 16}


def size(config, source, target):
    with torch.device("meta"):
        model = Transformer(config, source, target)
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"dim": 10, "heads": 4}, "dim 10 is not divisible by heads 4"),
        ({"dim": 7, "heads": 7}, "odd number of features"),
        ({"dim": 6, "heads": 2, "positions": "rotary"}, "odd number of features"),
        ({"dim": 0}, "dim: should be greater than 0"),
        ({"dim": -8}, "dim: should be greater than 0"),
        ({"heads": 0}, "heads: should be greater than 0"),
        ({"hidden": 0}, "hidden: should be greater than 0"),
        ({"encoder_layers": 0}, "encoder_layers: should be greater than 0"),
        ({"decoder_layers": -1}, "decoder_layers: should be greater than 0"),
        ({"longest": 1}, "longest: should be greater than 1"),
        ({"dim": 16386}, "dim: should be less than or equal to 16384"),
        ({"dropout": 1.5}, "dropout: should be less than 1"),
        ({"dropout": 1.0}, "dropout: should be less than 1"),
        ({"dropout": -0.1}, "dropout: should be greater than or equal to 0"),
        ({"attention_dropout": 1.5}, "attention_dropout: should be less than 1"),
        ({"dim": 16384, "longest": 67_108_864}, "longest: should be less than or equal to 65536"),
        ({"dim": 16384, "longest": 65536}, "a position table of 65536 x 16384 is over 1 GiB; lower longest"),
        ({"positions": "absolute"}, "positions"),
        ({"preset": "huge"}, "preset"),
        ({"preset": ["base"]}, "preset"),
        ({"dim": 8.5}, "dim"),
        ({"head": 4}, "did you mean heads?"),
    ],
)
def test_sizes_that_cannot_work_are_refused_in_one_line(wrong, said):
    with pytest.raises(ConfigError) as refusal:
        validated(TransformerConfig, wrong, "recipe")
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_dropout_that_is_not_a_number_is_refused():
    with pytest.raises(ConfigError, match="dropout"):
        validated(TransformerConfig, {"dropout": float("nan")}, "recipe")


def test_three_way_tying_of_two_vocabularies_is_refused():
    with pytest.raises(ValueError, match="one vocabulary"):
        Transformer(TransformerConfig(**SMALL, tie="three-way"), 5, 6)


def test_tied_matrices_are_one_parameter_and_untied_ones_are_not():
    vocabulary, dim = 10, SMALL["dim"]
    sizes = {
        tie: size(TransformerConfig(**SMALL, tie=tie), vocabulary, vocabulary)
        for tie in ("three-way", "two-way", "none")
    }
    assert sizes["two-way"] - sizes["three-way"] == vocabulary * dim
    assert sizes["none"] - sizes["two-way"] == vocabulary * dim
    layers = 4 * (dim * dim + dim) * 3 + 2 * (2 * dim * 12 + 12 + dim) + 5 * 2 * dim
    assert sizes["three-way"] == layers + vocabulary * dim + vocabulary


@pytest.mark.parametrize(("tie", "matrices"), [("three-way", 1), ("two-way", 2), ("none", 3)])
def test_an_update_of_one_tied_matrix_is_seen_wherever_it_is_used(tie, matrices):
    model = Transformer(TransformerConfig(**SMALL, tie=tie), 10, 10)
    places = [model.source_embedding.weight, model.target_embedding.weight, model.output.weight]
    assert len({place.data_ptr() for place in places}) == matrices
    with torch.no_grad():
        places[1].fill_(3.0)
    shared = [bool((place == 3.0).all()) for place in places]
    assert shared == [tie == "three-way", True, tie != "none"]


def test_two_way_tying_takes_two_vocabularies():
    model = Transformer(TransformerConfig(**SMALL, tie="two-way"), 5, 9)
    assert (model.source_embedding.weight.shape[0], model.output.weight.shape[0]) == (5, 9)


@pytest.mark.parametrize(("preset", "parameters"), [("base", 63_119_496), ("big", 214_282_376)])
def test_the_presets_have_the_sizes_of_the_paper(preset, parameters):
    """Table 3: 65 and 213 million, with a joint vocabulary of about 37,000."""
    config = TransformerConfig(preset=preset)
    assert size(config, 37_000, 37_000) == parameters
    assert parameters == pytest.approx({"base": 65e6, "big": 213e6}[preset], rel=0.03)


@pytest.mark.parametrize("preset", list(PRESETS))
def test_what_is_set_beside_a_preset_wins(preset):
    config = validated(TransformerConfig, {"preset": preset, "heads": 2}, "recipe")
    assert config.heads == 2
    assert config.hidden == PRESETS[preset]["hidden"]


def test_a_deep_encoder_may_stand_beside_a_shallow_decoder():
    config = TransformerConfig(**{**SMALL, "encoder_layers": 6})
    model = Transformer(config, 10, 10)
    assert (len(model.encoder.layers), len(model.decoder.layers)) == (6, 1)
    shallow = size(TransformerConfig(**SMALL), 10, 10)
    per_layer = 4 * (8 * 8 + 8) + 2 * 8 * 12 + 12 + 8 + 4 * 8
    assert size(config, 10, 10) - shallow == 5 * per_layer


def test_a_model_starts_with_logits_of_about_unit_size():
    torch.manual_seed(1)
    model = Transformer(TransformerConfig(dim=32, heads=4, hidden=64, longest=16, norm="pre"), 50, 50).eval()
    tokens = Sequences.pad(torch.randint(4, 50, (8, 10)).tolist(), 0)
    assert 0.3 < model.output(model(tokens, tokens)).std().item() < 3.0

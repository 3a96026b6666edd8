import tomllib
from pathlib import Path

import pytest
import torch

from headway.config import validated, write_toml
from headway.data.config import DataConfig
from headway.errors import ConfigError
from headway.models.transformer import TransformerConfig
from headway.recipe import Recipe, choose, differences, preset_for

CPU = torch.device("cpu")
DATA = {"data": {"source": "a", "target": "b"}}


def chosen(pairs=29_000, **groups):
    return choose(validated(Recipe, DATA | groups, "test"), pairs, CPU)


def test_the_preset_grows_with_the_data_and_the_machine():
    gpu = torch.device("cuda")
    assert [preset_for(pairs, CPU) for pairs in (10_000, 300_000, 50_000_000)] == ["tiny", "small", "small"]
    assert [preset_for(pairs, gpu) for pairs in (10_000, 300_000, 3_000_000, 50_000_000)] == [
        "tiny", "small", "base", "big",
    ]  # fmt: skip


def test_a_setting_that_is_no_size_leaves_the_choice_of_the_preset():
    plain, rotary = chosen(), chosen(model={"positions": "rotary"})
    assert plain.model.preset == rotary.model.preset == "tiny"
    assert differences(plain, rotary) == ["model.positions"]


def test_a_given_size_or_preset_is_kept():
    assert chosen(model={"preset": "base"}).model.dim == 512
    assert chosen(model={"dim": 64, "heads": 2}).model.dim == 64
    assert chosen(model={"dim": 64, "heads": 2}).model.preset is None


def test_a_bounded_run_has_no_other_end():
    assert chosen().training.epochs == 200
    assert chosen(training={"time": "30m"}).training.epochs is None
    assert chosen(training={"steps": 10}).training.epochs is None
    assert chosen(training={"steps": 10, "epochs": 3}).training.epochs == 3


def test_decoding_that_the_model_cannot_do_is_told_before_it_is_trained():
    with pytest.raises(ConfigError, match=r"decoding\.no_repeat: a fertility model writes all tokens at once"):
        chosen(model={"architecture": "fertility"}, decoding={"no_repeat": 3})
    assert chosen(model={"architecture": "mask-predict"}, decoding={"shortest_extra": 3}).decoding.shortest_extra == 3
    assert chosen(decoding={"no_repeat": 3}).decoding.no_repeat == 3


def test_separate_vocabularies_are_not_tied_three_ways():
    assert chosen(tokenizer={"joint": False}).model.tie == "two-way"


def test_a_chosen_recipe_survives_toml_and_needs_no_further_choice():
    recipe = chosen(training={"steps": 100})
    again = validated(Recipe, tomllib.loads(write_toml(recipe)), "test")
    assert differences(recipe, again) == []
    assert choose(again, 0, CPU) == again


def test_a_commented_recipe_sets_only_what_was_set():
    text = write_toml(Recipe(data=DataConfig(source=Path("x.tsv")), model=TransformerConfig(norm="pre")), comments=True)
    assert tomllib.loads(text) == {
        "data": {"source": "x.tsv", "cleaning": {}}, "tokenizer": {}, "model": {"norm": "pre"}, "training": {},
        "decoding": {},
    }  # fmt: skip
    assert "# dim = 256" in text and "# Attention heads." in text

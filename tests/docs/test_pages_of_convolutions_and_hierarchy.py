"""The pages of convolutional models, ByteNet and hierarchical attention."""

import tomllib

import pytest
import torch
from pages import ROOT, blocks

from headway.models.catalog import CATALOG
from headway.models.hierarchical import MARKS
from headway.models.model import ModelConfig
from headway.recipe import Recipe

NAMES = ["convolutional", "bytenet", "hierarchical"]


def page(name):
    return ROOT / "docs" / "models" / f"{name}.md"


@pytest.mark.parametrize("name", NAMES)
def test_the_recipe_of_a_page_is_one_of_its_model_and_has_every_setting_of_its_own(name):
    (block,) = blocks(page(name), "toml")
    tree = tomllib.loads(block)
    recipe = Recipe.model_validate(tree, strict=False)
    assert isinstance(recipe.model, CATALOG[name][0])
    own = CATALOG[name][0].model_fields.keys() - ModelConfig.model_fields.keys()
    assert own <= tree["model"].keys()


@pytest.mark.parametrize(("name", "million"), [("convolutional", "4.2"), ("bytenet", "3.4"), ("hierarchical", "2.4")])
def test_the_weights_of_the_defaults_are_as_many_as_the_page_says(name, million):
    config, architecture = CATALOG[name]
    with torch.device("meta"):
        model = architecture(config(), 4000, 4000)
    count = sum(weight.numel() for weight in model.parameters())
    assert f"{count / 1e6:.1f}" == million
    assert f"{million} million weights" in page(name).read_text(encoding="utf-8")


def test_the_page_names_every_mark_that_ends_a_sentence():
    assert f"`{' '.join(MARKS[:-1])}`, a line end" in page("hierarchical").read_text(encoding="utf-8")

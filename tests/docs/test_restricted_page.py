"""The page on restricted self-attention shows a recipe that is one."""

import tomllib

from pages import ROOT, blocks

from headway.config import validated
from headway.models.transformer import TransformerConfig
from headway.recipe import Recipe


def test_the_recipe_for_restricted_attention_parses_and_asks_for_a_window():
    (shown,) = blocks(ROOT / "docs" / "models" / "restricted.md", "toml")
    model = validated(Recipe, tomllib.loads(shown), "page").model
    assert isinstance(model, TransformerConfig)
    assert model.window == 64

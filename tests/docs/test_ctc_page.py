"""The page of the model of slots."""

import tomllib

from pages import ROOT, blocks

from headway.models.ctc import CtcConfig
from headway.recipe import Recipe

PAGE = ROOT / "docs" / "models" / "ctc.md"


def test_the_recipes_of_the_page_are_recipes():
    recipes = [Recipe.model_validate(tomllib.loads(block), strict=False) for block in blocks(PAGE, "toml")]
    assert recipes
    assert all(isinstance(recipe.model, CtcConfig) for recipe in recipes)


def test_the_page_names_every_setting_of_its_own():
    text = PAGE.read_text(encoding="utf-8")
    for name in ("encoder", "upsample", "encoder_layers", "decoder_layers", "cell", "kernel"):
        assert name in CtcConfig.model_fields
        assert name in text

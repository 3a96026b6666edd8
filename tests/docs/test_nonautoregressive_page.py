"""The page of the models that write all tokens at once."""

import tomllib

from pages import ROOT, blocks

from headway.models.fertility import FertilityConfig
from headway.models.maskpredict import MaskPredictConfig
from headway.recipe import Recipe

PAGE = ROOT / "docs" / "models" / "nonautoregressive.md"


def test_the_recipes_of_the_page_are_recipes_of_both_models():
    recipes = [Recipe.model_validate(tomllib.loads(block), strict=False) for block in blocks(PAGE, "toml")]
    assert [type(recipe.model) for recipe in recipes] == [FertilityConfig, MaskPredictConfig]


def test_the_page_names_every_setting_of_its_own():
    text = PAGE.read_text(encoding="utf-8")
    for config, names in (
        (FertilityConfig, ("largest_fertility", "see_itself")),
        (MaskPredictConfig, ("length_reach",)),
    ):
        for name in names:
            assert name in config.model_fields
            assert name in text

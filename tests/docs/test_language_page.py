"""The page on language models: its recipe, its commands and its table."""

import re
import shlex
import tomllib

import pytest
from pages import ROOT, blocks

from headway.cli import app
from headway.config import validated
from headway.models.language import PRESETS, LanguageConfig
from headway.recipe import Recipe

PAGE = ROOT / "docs" / "models" / "language.md"


def test_the_recipe_of_the_page_is_a_recipe_and_its_commands_are_commands():
    (recipe,) = blocks(PAGE, "toml")
    found = validated(Recipe, tomllib.loads(recipe), "page")
    assert isinstance(found.model, LanguageConfig) and found.model.layers == PRESETS["small"]["layers"]
    commands = re.findall(r"^headway (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(commands) == 4
    for command in commands:
        app.parse_args(shlex.split(re.split(r" [<>] ", command)[0]), exit_on_error=False, print_error=False)


@pytest.mark.parametrize("preset", PRESETS)
def test_the_table_of_presets_of_language_models_is_true(preset):
    config = LanguageConfig(preset=preset)
    sizes = f"{config.dim:,} | {config.heads} | {config.hidden:,} | {config.layers} | {config.dropout}"
    assert f"| {preset} | {sizes} |" in PAGE.read_text(encoding="utf-8")

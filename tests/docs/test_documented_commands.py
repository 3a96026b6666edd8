import re
from contextlib import suppress

import pytest
from cyclopts import CycloptsError, MissingArgumentError
from pages import PAGES, RECIPES, ROOT, blocks, commands, name, spans

from headway.cli import app
from headway.config import read_toml, validated
from headway.models.catalog import CATALOG
from headway.recipe import Recipe

SHOWN = [(name(page), words) for page in PAGES for block in blocks(page, "sh") for words in commands(block)]
SHOWN += [
    (name(recipe), words)
    for recipe in RECIPES
    for words in commands(re.sub(r"^# *", "", recipe.read_text(encoding="utf-8"), flags=re.MULTILINE))
]
MENTIONED = [(name(page), words) for page in PAGES for span in spans(page) for words in commands(span)]


def parsed(words):
    app.parse_args(words, exit_on_error=False, print_error=False)


def test_there_are_commands_to_check():
    assert len(SHOWN) > 20
    assert {where for where, _ in SHOWN} >= {"README.md", "docs/training.md", "recipes/multi30k-en-de/recipe.toml"}
    assert {words[0] for _, words in MENTIONED} == {"demo", "check", "init", "train", "translate", "evaluate",
                                                   "attention", "embed", "positions", "info", "plan", "distill",
                                                   "backtranslate", "run", "score", "prove", "export",
                                                   "shortlist", "bench", "sample", "reproduce",
                                                   "completion"}  # fmt: skip


@pytest.mark.parametrize(("where", "words"), SHOWN, ids=str)
def test_every_command_shown_in_a_block_parses_whole(where, words):
    parsed(words)


@pytest.mark.parametrize(("where", "words"), MENTIONED, ids=str)
def test_every_command_mentioned_in_the_text_exists_with_its_options(where, words):
    with suppress(MissingArgumentError):  # only named, not shown
        parsed(words)


@pytest.mark.parametrize("words", [["nonsense"], ["train", "--nonsense", "1"], ["translate"]], ids=str)
def test_a_wrong_command_would_be_noticed(words):
    with pytest.raises(CycloptsError):
        parsed(words)


def options_of(command: str) -> set[str]:
    return {long for argument in app[command].assemble_argument_collection() for long in argument.names}


def test_every_option_in_backticks_belongs_to_some_command():
    known = {option for command in {words[0] for _, words in MENTIONED} for option in options_of(command)}
    for page in PAGES:
        for span in spans(page):
            if span.startswith("--"):
                assert span.split()[0] in known, f"{name(page)}: {span}"


def settings(model=Recipe, prefix=""):
    for key, field in model.model_fields.items():
        yield f"{prefix}{key}"
        kinds = [config for config, _ in CATALOG.values()] if model is Recipe and key == "model" else []
        for kind in (field.annotation, *getattr(field.annotation, "__args__", ()), *kinds):
            if hasattr(kind, "model_fields"):
                yield from settings(kind, f"{prefix}{key}.")


def test_every_setting_named_in_the_documentation_exists():
    known = set(settings())
    named = r"(?:data|tokenizer|model|training|decoding)(?:\.[a-z_0-9]+)+"
    found = [
        (name(page), setting)
        for page in PAGES
        for setting in re.findall(rf"(?:`|--set )({named})(?=[`= ])", page.read_text(encoding="utf-8"))
    ]
    assert len(found) > 50
    files = {"model.safetensors", "tokenizer.json", "tokenizer.model"}
    assert [(where, setting) for where, setting in found if setting not in known | files] == []


@pytest.mark.parametrize("recipe", RECIPES, ids=name)
def test_every_recipe_validates(recipe):
    assert validated(Recipe, read_toml(recipe), name(recipe)).data.training()


def test_every_target_of_make_that_is_named_exists():
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for page in PAGES:
        text = "\n".join([*blocks(page, "sh"), *spans(page)])
        assert set(re.findall(r"^(?:\w+=\S+ )?make (\w+)", text, re.MULTILINE)) <= targets, name(page)

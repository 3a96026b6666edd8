import contextlib
import importlib.util
import io
import re

import pytest
import torch
from pages import PAGES, ROOT, blocks, name, spans

from headway.data.config import DataConfig
from headway.models.layered import PRESETS
from headway.models.transformer import Transformer, TransformerConfig
from headway.recipe import Recipe


def test_the_python_example_of_the_readme_runs(model_folder, tmp_path, monkeypatch):
    (example,) = blocks(ROOT / "README.md", "python")
    assert '"runs/first"' in example
    monkeypatch.chdir(tmp_path)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(example.replace('"runs/first"', repr(str(model_folder))), "README.md", "exec"), {})
    assert len(said.getvalue().splitlines()) > 6
    assert (tmp_path / "attention.html").read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.fixture(scope="module")
def reference():
    found = importlib.util.spec_from_file_location("reference", ROOT / "docs" / "reference.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_the_configuration_page_is_the_generated_one(reference):
    assert (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8") == reference.page()


def test_the_configuration_page_has_every_setting_of_a_recipe(reference):
    page = reference.page()
    assert {group.partition(".")[0] for group in reference.GROUPS} == set(Recipe.model_fields)
    assert reference.GROUPS["data.cleaning"] is DataConfig.model_fields["cleaning"].annotation
    for group in reference.GROUPS.values():
        for setting in group.model_fields.keys() - {"cleaning"}:
            assert f"| `{setting}` |" in page


@pytest.mark.parametrize("preset", PRESETS)
def test_the_table_of_presets_is_true(preset):
    config, counts = TransformerConfig(preset=preset), []
    for vocabulary in (10_000, 37_000):
        with torch.device("meta"):
            model = Transformer(config, vocabulary, vocabulary)
        counts.append(f"{sum(weight.numel() for weight in model.parameters()):,}")
    sizes = [f"{config.dim:,}", str(config.heads), f"{config.hidden:,}"]
    layers = f"{config.encoder_layers} + {config.decoder_layers}"
    row = " | ".join([preset, *sizes, layers, str(config.dropout), *counts])
    assert f"| {row} |" in (ROOT / "docs" / "models.md").read_text(encoding="utf-8")


def test_every_source_file_named_in_the_documentation_exists():
    found = 0
    for page in PAGES:
        for span in spans(page):
            if re.fullmatch(r"[a-z_0-9/]+/[a-z_0-9]+\.(py|toml)", span):
                found += 1
                assert (ROOT / span).is_file() or (ROOT / "src" / "headway" / span).is_file(), f"{name(page)}: {span}"
    assert found > 30

import tomllib
from pathlib import Path

from headway.config import write_toml
from headway.data.config import DataConfig
from headway.models.transformer import TransformerConfig
from headway.recipe import Recipe


def test_a_commented_recipe_sets_only_what_was_set():
    text = write_toml(Recipe(data=DataConfig(source=Path("x.tsv")), model=TransformerConfig(norm="pre")), comments=True)
    assert tomllib.loads(text) == {
        "data": {"source": "x.tsv", "cleaning": {}}, "tokenizer": {}, "model": {"norm": "pre"}, "training": {},
        "decoding": {},
    }  # fmt: skip
    assert "# dim = 256" in text and "# Attention heads." in text

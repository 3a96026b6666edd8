"""Prints the reference of all settings, docs/configuration.md, from the settings themselves.

python docs/reference.py > docs/configuration.md
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

from headway.config import Settings
from headway.data.cleaning import CleaningConfig
from headway.data.config import CorpusConfig, DataConfig
from headway.data.tokenizer import TokenizerConfig
from headway.models.catalog import CATALOG
from headway.models.transformer import TransformerConfig
from headway.search import DecodingConfig
from headway.start import StartConfig
from headway.training.config import TrainingConfig

HEAD = """# All settings

This page is made by `docs/reference.py` from the settings in the code; a test compares the two. Do not edit it.

A recipe is a TOML file with the groups below. Every setting can also be given on the command line:
`--set training.steps=1000` (the value is read as TOML, or taken as text). An unknown key or a wrong type is refused,
with its place and the nearest name. "unset" means that the setting is left out; what happens then stands beside it.
How choices are made for what is unset: [training.md](training.md)."""

GROUPS: dict[str, type[Settings]] = {
    "data": DataConfig,
    "data.corpora": CorpusConfig,
    "data.cleaning": CleaningConfig,
    "tokenizer": TokenizerConfig,
    "model": TransformerConfig,
    "start": StartConfig,
    "training": TrainingConfig,
    "decoding": DecodingConfig,
}
"""Every group of a recipe; a test holds the list to the recipe."""

SEVERAL = ("data.corpora",)
"""Groups of which there may be more than one."""

WORDS = {"integer": "integer", "number": "number", "boolean": "true or false", "string": "text"}
LIMITS = {"exclusiveMinimum": "above", "minimum": "from", "exclusiveMaximum": "below", "maximum": "up to"}


def page() -> str:
    """The whole page; after the Transformer's settings stand those of the other architectures."""
    parts = [HEAD]
    for name, settings in GROUPS.items():
        parts.append(_group(f"[[{name}]]" if name in SEVERAL else f"[{name}]", settings))
        if name == "model":
            others = ((other, config) for other, (config, _) in CATALOG.items() if config is not settings)
            parts += [_group(f'[model] architecture = "{other}"', config) for other, config in others]
    return "\n\n".join(parts) + "\n"


def _group(title: str, settings: type[Settings]) -> str:
    schema = settings.model_json_schema()
    required = schema.get("required", [])
    rows = [
        f"| `{key}` | {_kind(field)} | {_default(field, key in required)} | {_one_line(field['description'])} |"
        for key, field in schema["properties"].items()
        if "$ref" not in field  # a group of its own
    ]
    head = "| setting | value | default | meaning |\n| --- | --- | --- | --- |"
    return "\n".join([f"## `{title}`\n\n{_one_line(schema['description'])}\n", head, *rows])


def _kind(field: dict[str, Any]) -> str:
    """What may be written there."""
    choices = [choice for choice in field.get("anyOf", [field]) if choice.get("type") != "null"]
    return " or ".join(_choice(choice) for choice in choices).replace("|", "\\|")


def _choice(schema: dict[str, Any]) -> str:
    if "const" in schema or "enum" in schema:
        return " or ".join(f"`{json.dumps(value)}`" for value in schema.get("enum", [schema.get("const")]))
    if "$ref" in schema:
        return "group"
    if schema["type"] == "array":
        items = [_choice(item) for item in schema.get("prefixItems", [])] or [_choice(schema["items"]), "..."]
        return f"[{', '.join(items)}]"
    word = "path" if schema.get("format") == "path" else WORDS[schema["type"]]
    return " ".join([word, *_limits(schema)])


def _limits(schema: dict[str, Any]) -> Iterator[str]:
    for key, word in LIMITS.items():
        if key in schema:
            yield f"{word} {_number(schema[key])}"


def _number(value: float) -> str:
    """A limit as people read it: the largest are powers of two."""
    if isinstance(value, int) and value > 1 << 30 and value & (value - 1) == 0:
        return f"2^{value.bit_length() - 1}"
    return f"{value:,}"


def _default(field: dict[str, Any], required: bool) -> str:
    if required:
        return "must be given"
    value = field.get("default")
    return "unset" if value is None else f"`{json.dumps(value)}`"


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(page())

"""`headway bench`."""

import json
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from headway.cli.recipes import overrides, read_recipe
from headway.errors import ConfigError

MOST_TOKENS = 1 << 20
"""Of a vocabulary of random sentences; more take minutes to spell."""


def command(
    what: Literal["train"],
    recipe: Path | None = None,
    /,
    *,
    preset: str | None = None,
    data: Path | None = None,
    batch_tokens: int | None = None,
    vocabulary: int | None = None,
    seconds: float = 10.0,
    device: str | None = None,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative="")] = None,
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Measure how fast this machine trains: target tokens a second, share of the peak, memory. Nothing is kept.

    Parameters
    ----------
    what
        train: updates as 'headway train' takes them, on random sentences or on the data of a recipe.
    recipe
        A TOML recipe whose model and training are measured.
    preset
        A size of model by name: tiny, small, base or big; base on a GPU and tiny on a CPU by default.
    data
        Train on the data of the recipe, whose relative paths start here, in place of random sentences.
    batch_tokens
        Cells of a batch on its larger side; chosen for the device by default.
    vocabulary
        Known tokens of the random sentences; 37,000 for base and big by default, else 10,000.
    seconds
        The time that is measured; a warm-up goes before it.
    device
        cpu, cuda or cuda:N; the best there is by default.
    set_
        Any setting of a recipe, as in --set model.dropout=0.1; may be repeated.
    json_
        Print one JSON object.
    """
    del what  # there is one kind so far
    if not 0.0 < seconds <= 3600.0:
        raise ConfigError(f"--seconds {seconds:g}: give more than 0, and at most 3600")
    if vocabulary is not None and not 8 <= vocabulary <= MOST_TOKENS:
        raise ConfigError(f"--vocabulary {vocabulary}: give 8 tokens or more, and at most {MOST_TOKENS}")
    if data is not None and recipe is None:
        raise ConfigError("--data: there is no recipe to say what to train on; name one before it")
    given = {"model__preset": preset, "data__folder": data}
    changes = overrides([] if batch_tokens is None else [f"training.batch_tokens={batch_tokens}"], **given)
    if data is not None and vocabulary is not None:
        changes.append(f"tokenizer.vocabulary={vocabulary}")
    changes += set_ or []
    from headway.assemble import choose_device
    from headway.cli.terminal import Terminal, ended_cleanly
    from headway.config import override, read_toml, validated
    from headway.models.catalog import architecture_of
    from headway.recipe import Recipe
    from headway.throughput import measure_training

    tree = override({} if recipe is None else read_toml(recipe), changes)
    if data is not None:
        group = tree["data"]
        if isinstance(group, dict) and not {"source", "corpora"} & group.keys():
            raise ConfigError(f"--data: {recipe} names no source; add data.source to it, or leave out --data")
        read_recipe(recipe, changes)  # which says what is wrong with it
    else:
        if architecture_of(tree.get("model", {})) == "language":
            raise ConfigError("bench: random sentences have a source, which a language model does not read; use --data")
        validated(Recipe, {**tree, "data": {"source": "random"}}, str(recipe or "options"))
    with ended_cleanly(), Terminal() as screen:
        found = measure_training(
            tree,
            device=choose_device(device),
            screen=screen,
            seconds=seconds,
            vocabulary=vocabulary,
            real=data is not None,
        )
    print(json.dumps(found.to_json(), ensure_ascii=False) if json_ else "\n".join(found.lines()))

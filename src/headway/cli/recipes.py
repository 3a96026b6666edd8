"""A recipe from a file and options, and the device to use it on: what several commands share."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.disk import leads_to_folder
from headway.errors import ConfigError

if TYPE_CHECKING:
    import torch

    from headway.recipe import Recipe


MOST_PROCESSES = 1024
"""Processes of one machine."""


def overrides(settings: list[str] | None, **options: object) -> list[str]:
    """Options as settings, named with `__` for the dot, and after them those of --set, which win."""
    folder = options.get("data__folder")
    if isinstance(folder, Path) and not leads_to_folder(folder):
        raise ConfigError(f"--data {folder}: no such folder; give the one where relative paths start")
    given = [f"{name.replace('__', '.')}={_quoted(value)}" for name, value in options.items() if value is not None]
    return given + (settings or [])


def read_recipe(path: Path | None, changes: list[str], resumed: Path | None = None) -> "Recipe":
    """The recipe of the file, of the run to be resumed, or of the options alone, with the changes on top."""
    from headway.config import override, read_toml, validated
    from headway.recipe import Recipe

    tree: dict[str, Any] = {}
    if path is not None:
        tree = read_toml(path)
    elif resumed is not None:
        from headway.beginning import stored_recipe

        tree = stored_recipe(resumed).model_dump(mode="json", exclude_none=True)
        tree["training"].pop("epochs", None)  # those of the run count again, unless another end takes their place
    tree = override(tree, changes)
    group = tree.get("data", {})
    if isinstance(group, dict) and not {"source", "corpora", "text"} & group.keys():
        told = "nothing to learn from: give --source and --target, --text for a language model"
        raise ConfigError(f"{told}, or a recipe ('headway init' writes one)")
    model = tree.get("model")
    if isinstance(group, dict) and "text" in group and isinstance(model, dict):  # of one text, a language model
        tree["model"] = {"architecture": "language", **model}
    return validated(Recipe, tree, str(path or "options"))


def choose_devices(name: str | None, processes: int) -> "torch.device":
    """The device for training in so many processes; on GPUs each takes one of its own."""
    import torch

    from headway.assemble import choose_device

    if not 1 <= processes <= MOST_PROCESSES:
        raise ConfigError(f"--processes {processes}: give 1 or more, and at most {MOST_PROCESSES}")
    device = choose_device(name)
    if device.type == "cuda" and processes > torch.cuda.device_count():
        count = torch.cuda.device_count()
        raise ConfigError(f"--processes {processes}: PyTorch sees {count} GPUs here, and each process takes one")
    return device


def _quoted(value: object) -> str:
    return json.dumps(str(value), ensure_ascii=False)

"""`headway init`."""

from pathlib import Path

from headway.cli.options import Flag, Time
from headway.cli.recipes import choose_devices, overrides, read_recipe
from headway.disk import check_output, write_output
from headway.errors import ConfigError

HEAD = """# A Headway recipe: headway train FILE --out runs/NAME
# Every setting stands here with its meaning and its default. Take the '#' away from what you want to set;
# sizes, norm, dropout and many training settings are chosen for your data and your machine unless you set them.

"""
CHOSEN = """# A Headway recipe: headway train FILE --out runs/NAME
# {summary}
# Every setting stands here with its meaning. Remove those to be chosen again for other data or another machine.

"""


def command(
    path: Path = Path("recipe.toml"),
    /,
    *,
    source: Path | None = None,
    target: Path | None = None,
    text: Path | None = None,
    time: Time = None,
    device: str | None = None,
    overwrite: Flag = False,
) -> None:
    """Write a recipe to start from, every setting with its meaning and its default.

    With --source and --target, or --text, it holds what 'headway train' would choose for that data on this machine.

    Parameters
    ----------
    path
        The file to write.
    source
        Text to learn from, a sentence a line, which may be .gz; or both sides in one .tsv, .jsonl or .parquet.
    target
        Its translation, line by line.
    text
        Instead of both, text to learn a language model from: each line a text of its own.
    time
        The wall-clock budget to choose for, such as 90s, 30m or 2h.
    device
        The device to choose for: cpu, cuda or cuda:N; the best there is by default.
    overwrite
        Replace the file if it is there already.
    """
    check_output(path, overwrite=overwrite, option="PATH")
    if (time or device) and not (source or text):
        raise ConfigError("--time and --device choose for data; give --source and --target, or --text, as well")
    changes = overrides(None, data__source=source, data__target=target, data__text=text, training__time=time)
    written = _chosen(changes, device) if changes else _defaults()
    write_output(path, written.encode(), overwrite=overwrite, option="PATH")
    print(path)


def _defaults() -> str:
    from headway.config import write_toml
    from headway.data.config import DataConfig
    from headway.models.transformer import TransformerConfig
    from headway.recipe import Recipe

    data = DataConfig(source=Path("train.source"), target=Path("train.target"))
    return HEAD + write_toml(Recipe(data=data, model=TransformerConfig()), comments=True)


def _chosen(changes: list[str], device: str | None) -> str:
    from headway.choices import choose, conditions
    from headway.cli.terminal import Terminal
    from headway.config import write_toml
    from headway.data.preparation import divide

    recipe, where = read_recipe(None, changes), choose_devices(device, 1)
    with Terminal() as screen:
        found = choose(recipe, *conditions(recipe, divide(recipe.data, screen.working), where))
        for line in (found.summary, *found.warnings):
            screen.say(line)
    return CHOSEN.format(summary=found.summary) + write_toml(found.recipe, comments=True)

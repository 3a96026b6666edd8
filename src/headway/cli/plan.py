"""`headway plan`."""

import json
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headway.cli.options import Time
from headway.cli.recipes import choose_devices, overrides, read_recipe


def command(
    recipe: Path | None = None,
    /,
    *,
    source: Path | None = None,
    target: Path | None = None,
    text: Path | None = None,
    data: Path | None = None,
    time: Time = None,
    device: str | None = None,
    from_: Annotated[Path | None, Parameter(name="--from")] = None,
    processes: int = 1,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative="")] = None,
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Say what training will take of this machine, before an hour is spent: memory, speed, and when it ends.

    It trains for a few seconds on a sample of the corpus; nothing is written.

    Parameters
    ----------
    recipe
        A TOML recipe; not needed with --source and --target, or --text.
    source
        Text to learn from, a sentence a line, which may be .gz; or both sides in one .tsv, .jsonl or .parquet.
        A glob in quotes, as in 'train-*.en', means shards.
    target
        Its translation, line by line.
    text
        Instead of both, text to learn a language model from: each line a text of its own.
    data
        Where the relative paths of the recipe start.
    time
        A wall-clock budget such as 90s, 30m or 2h: the answer is how many updates fit.
    device
        cpu, cuda or cuda:N; the best there is by default.
    from_
        A model or run folder to go on from.
    processes
        Processes that will train together on this machine.
    set_
        Any setting of the recipe, as in --set training.learning_rate=3e-4; may be repeated.
    json_
        Print one JSON object.
    """
    sides = {"data__source": source, "data__target": target, "data__text": text}
    changes = overrides(set_, **sides, data__folder=data, training__time=time, start__model=from_)
    from headway.cli.terminal import Terminal
    from headway.forecast import forecast

    chosen, where = read_recipe(recipe, changes), choose_devices(device, processes)
    with Terminal() as screen:
        found = forecast(chosen, device=where, screen=screen, processes=processes)
    print(json.dumps(found.to_json(), ensure_ascii=False) if json_ else "\n".join(found.lines()))

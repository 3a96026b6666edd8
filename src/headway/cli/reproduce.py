"""`headway reproduce`."""

import json
import tempfile
import time
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from headway.errors import ConfigError

Name = Literal["layers", "bottleneck", "extrapolation", "heads", "ladder"]


def command(
    name: Name,
    /,
    *,
    out: Path = Path("runs/reproduce"),
    seeds: int | None = None,
    effort: float = 1.0,
    device: str | None = None,
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Measure a claim of the papers on this machine: a table, a plot, and the papers' own figures beside ours.

    Parameters
    ----------
    name
        layers: time, memory and path length of four kinds of layer; bottleneck: quality by sentence length with and
        without attention; extrapolation: positions beyond the training length; heads: the variations of the
        Transformer's table 3; ladder: from averaging to the Transformer, an idea at a time.
    out
        The folder for the page and the numbers, which stand in a folder of their own there.
    seeds
        How many times every model is trained; 3 by default, 2 for heads.
    effort
        How many times as long as the small setting models are trained.
    device
        cpu, cuda or cuda:N; the best there is by default.
    json_
        Print the numbers as one JSON object.
    """
    if seeds is not None and not 1 <= seeds <= 100:
        raise ConfigError(f"--seeds {seeds}: give 1 or more, and at most 100")
    if not 0.01 <= effort <= 1000.0:
        raise ConfigError(f"--effort {effort:g}: give at least 0.01, and at most 1000")

    from headway.assemble import choose_device
    from headway.cli.terminal import Terminal, ended_cleanly
    from headway.reproduce import EXPERIMENTS, SEEDS
    from headway.reproduce.experiment import Scale
    from headway.reproduce.report import writable

    chosen, out = choose_device(device), writable(out, name)
    with ended_cleanly(), tempfile.TemporaryDirectory(prefix="headway-") as folder, Terminal() as screen:
        began = time.monotonic()
        scale = Scale(Path(folder), chosen, tuple(range(1, (seeds or SEEDS.get(name, 3)) + 1)), effort)
        report = EXPERIMENTS[name](scale, screen.say)
        page = report.save(out)
        screen.say(f"measured in {time.monotonic() - began:.0f} s")
    print(json.dumps(report.to_json(), ensure_ascii=False) if json_ else report.text())
    if not json_:
        print(f"page: {page}")

"""`headway prove`."""

import json
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from headway.errors import ConfigError, DataError, HeadwayError

if TYPE_CHECKING:
    from headway.proof import Proof


MOST_SENTENCES = 100_000


def command(
    model: Path,
    /,
    *,
    text: Path | None = None,
    sentences: int = 32,
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
    device: str | None = None,
) -> None:
    """Check that a model computes what it should: the same answers in every batch, with and without a cache.

    Exit code 1 if a check fails.

    Parameters
    ----------
    model
        A model folder, or a run folder whose best model is meant.
    text
        Sentences to check it with, one a line; made from its vocabulary by default.
    sentences
        How many of them are used.
    json_
        Print one JSON object.
    device
        cpu, cuda or cuda:N; the best there is by default.
    """
    if not 1 <= sentences <= MOST_SENTENCES:
        raise ConfigError(f"--sentences {sentences}: give at least 1, and at most {MOST_SENTENCES}")
    from headway.assemble import choose_device
    from headway.cli.terminal import Terminal
    from headway.data.text import read_lines
    from headway.proof import prove

    texts: list[str] = []
    if text is not None:
        texts = list(islice((line for line in read_lines(text) if line.strip()), sentences))
        if not texts:
            raise DataError(f"{text}: every line is blank; give sentences, or leave --text out")
    with Terminal() as screen:

        def progress(name: str, done: int, total: int) -> None:
            screen.working(f"checking {name}", done, total)

        found = prove(model, texts, sentences=sentences, device=choose_device(device), progress=progress)
    if json_:
        print(json.dumps(found.to_json(), ensure_ascii=False))
    else:
        show(found)
    if not found.passed:
        raise HeadwayError(found.complaint())


def show(proof: "Proof") -> None:
    """Print the table: in colour on a terminal, in plain columns anywhere else."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    if not console.is_terminal:
        print("\n".join(proof.lines()))
        return
    table = Table("", "check", "found", "compared", header_style="dim", box=None)
    colours = {"pass": "green", "FAIL": "bold red"}
    for verdict, *cells in proof.rows():
        table.add_row(Text(verdict, colours.get(verdict, "yellow")), *map(Text, cells))
    console.print(table)

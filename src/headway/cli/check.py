"""`headway check`."""

import json
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def command(
    *,
    source: Path,
    target: Path | None = None,
    test_source: Path | None = None,
    test_target: Path | None = None,
    columns: tuple[int, int] = (1, 2),
    fields: tuple[str, str] = ("source", "target"),
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Look a corpus over before an hour is spent: lengths, duplicates, empty lines, odd characters, overlap.

    Parameters
    ----------
    source
        Text to learn from, a sentence a line, which may be .gz; or both sides in one .tsv, .jsonl or .parquet.
        A glob in quotes, as in 'train-*.en': shards.
    target
        Its translation, line by line, in as many shards.
    test_source
        Text you will test on, to be compared with the corpus.
    test_target
        Its translation.
    columns
        Source and target column of a .tsv, from 1.
    fields
        Source and target field of a .jsonl, or column of a .parquet.
    json_
        Print one JSON object.
    """
    from headway.cli.terminal import Terminal
    from headway.data.pairs import Files
    from headway.data.report import survey

    test = None if test_source is None else Files(test_source, test_target, columns, fields, again=True)
    files = Files(source, target, columns, fields, again=True)
    with Terminal() as screen:
        report = survey(files, test, progress=lambda line: screen.working("reading", line, None))
    print(json.dumps(report.to_json(), ensure_ascii=False) if json_ else "\n".join(report.lines()))

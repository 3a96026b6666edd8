"""`headway check`."""

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from headway.data.text import Invalid
from headway.errors import ConfigError, DataError, UserError

if TYPE_CHECKING:
    from headway.data.config import DataConfig


def command(
    *,
    source: Path,
    target: Path | None = None,
    test_source: Path | None = None,
    test_target: Path | None = None,
    columns: tuple[int, int] = (1, 2),
    fields: tuple[str, str] = ("source", "target"),
    invalid: Invalid = "refuse",
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Look a corpus over before an hour is spent: lengths, duplicates, empty lines, odd characters, overlap.

    Exit code 2 if 'headway train' would refuse it.

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
    invalid
        Pairs that are not UTF-8, counted either way: training refuses them, unless its data.invalid is skip as well.
    json_
        Print one JSON object.
    """
    if test_target is not None and test_source is None:
        raise ConfigError("--test-source: missing; --test-target translates it")
    from headway.cli.terminal import Terminal
    from headway.config import validated
    from headway.data.config import DataConfig
    from headway.data.report import survey

    given = {"source": source, "target": target, "test_source": test_source, "test_target": test_target}
    paths = {name: path for name, path in given.items() if path is not None}
    data = validated(DataConfig, {**paths, "columns": columns, "fields": fields, "invalid": invalid}, "options")
    (files,) = data.training()
    with Terminal() as screen:
        report = survey(files, data.test(), progress=lambda line: screen.working("reading", line, None))
        refusal = _refusal(data)
    print(json.dumps(report.to_json(), ensure_ascii=False) if json_ else "\n".join(report.lines()))
    if refusal is not None:
        raise refusal


def _refusal(data: "DataConfig") -> UserError | None:
    """What training would say of the corpus, if it refused it."""
    from headway.data.preparation import divide, overlap

    try:
        split = divide(data, lambda *_: None)
        overlap(data, split)
    except UserError as error:
        return error
    if any(True for _ in split.training(data, Counter())):
        return None
    return DataError(f"{data.training()[0].name}: no pair left to train on: all have the source of a validation pair")

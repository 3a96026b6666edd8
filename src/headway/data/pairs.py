"""Sentence pairs from parallel files, tab-separated files and JSON lines."""

import json
import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from headway.data.text import Invalid, read_lines
from headway.errors import DataError

NOT_UTF8 = "not UTF-8"
"""The name under which skipped lines are counted."""

TABLE_SUFFIXES = (".tsv", ".tab")
JSON_SUFFIXES = (".jsonl", ".ndjson")

Sides = tuple[str, str] | None
"""Source and target, or None where one of them is not UTF-8."""


@dataclass(frozen=True)
class Files:
    """Where a corpus stands: two parallel files, or one named .tsv, .tab, .jsonl or .ndjson; any may be .gz too."""

    source: Path
    target: Path | None = None
    columns: tuple[int, int] = (1, 2)
    """Source and target column of a tab-separated file, counted from 1."""
    fields: tuple[str, str] = ("source", "target")
    """Source and target field of JSON lines."""

    def __post_init__(self) -> None:
        if min(self.columns) < 1:
            raise DataError(f"{self.source}: there is no column {min(self.columns)}; columns count from 1")

    @property
    def paths(self) -> tuple[Path, ...]:
        """Every file of the corpus."""
        return (self.source,) if self.target is None else (self.source, self.target)

    @property
    def one_file(self) -> bool:
        """Whether the name of `source` says that it holds both sides."""
        return _suffix(self.source) in TABLE_SUFFIXES + JSON_SUFFIXES


class Pair(NamedTuple):
    """A sentence pair and the line it stands on, from 1."""

    source: str
    target: str
    line: int


def read_pairs(files: Files, *, invalid: Invalid = "refuse", counts: Counter[str] | None = None) -> Iterator[Pair]:
    """Read a corpus pair by pair; an empty one, or one that changes meanwhile, is a `DataError`.

    With `invalid="skip"` a pair of which one side is not UTF-8 is left out and counted under "not UTF-8" in `counts`.
    """
    before = [_state(path) for path in files.paths]
    number = 0
    try:
        for number, sides in enumerate(_sides(files, invalid), start=1):
            if sides is not None:
                yield Pair(*sides, number)
            elif counts is not None:
                counts[NOT_UTF8] += 1
    except DataError:
        _refuse_changes(files, before)  # the likelier cause of whatever else is wrong
        raise
    _refuse_changes(files, before)
    if not number:
        raise DataError(f"{' and '.join(map(str, files.paths))}: no lines; give a corpus with at least one pair")


def read_sources(files: Files, *, invalid: Invalid = "refuse") -> Iterator[str]:
    """The source side alone, whether or not the other is there."""
    if files.target is not None or files.one_file:
        return (pair.source for pair in read_pairs(files, invalid=invalid))
    return (line for line in read_lines(files.source, invalid=invalid) if line is not None)


def _state(path: Path) -> tuple[int, int, int] | None:
    try:
        state = path.stat()
    except (OSError, ValueError):
        return None  # opening it says why
    return (state.st_ino, state.st_size, state.st_mtime_ns) if stat.S_ISREG(state.st_mode) else None


def _refuse_changes(files: Files, before: list[tuple[int, int, int] | None]) -> None:
    for path, state in zip(files.paths, before, strict=True):
        if _state(path) != state:
            raise DataError(f"{path}: changed while it was read; start again when nothing writes to it") from None


def _sides(files: Files, invalid: Invalid) -> Iterator[Sides]:
    if files.target is not None:
        return _parallel(files.source, files.target, invalid)
    suffix = _suffix(files.source)
    if suffix in TABLE_SUFFIXES:
        return _table(files.source, files.columns, invalid)
    if suffix in JSON_SUFFIXES:
        return _json(files.source, files.fields, invalid)
    known = ", ".join(TABLE_SUFFIXES + JSON_SUFFIXES)
    raise DataError(f"{files.source}: a corpus in one file must end in {known}; rename it, or give the target file too")


def _suffix(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    return next((suffix for suffix in reversed(suffixes) if suffix != ".gz"), "")


def _parallel(source: Path, target: Path, invalid: Invalid) -> Iterator[Sides]:
    sources, targets = read_lines(source, invalid=invalid), read_lines(target, invalid=invalid)
    ended = object()
    for number, (left, right) in enumerate(zip_longest(sources, targets, fillvalue=ended)):
        if left is ended or right is ended:
            here, there = number, number + 1 + sum(1 for _ in (targets if left is ended else sources))
            counts = (here, there) if left is ended else (there, here)
            told = f"{source} has {counts[0]} lines and {target} has {counts[1]}"
            raise DataError(f"{told}; line n of one must translate line n of the other")
        yield (left, right) if isinstance(left, str) and isinstance(right, str) else None


def _table(path: Path, columns: tuple[int, int], invalid: Invalid) -> Iterator[Sides]:
    left, right = columns
    needed = max(2, *columns)
    for number, line in enumerate(read_lines(path, invalid=invalid), start=1):
        if line is None:
            yield None
            continue
        cells = line.split("\t")
        if len(cells) < needed:
            problem = f"{len(cells)} column(s) where {needed} are needed"
            raise DataError(f"{path}: line {number} has {problem}; separate source and target by one tab")
        yield cells[left - 1], cells[right - 1]


def _json(path: Path, fields: tuple[str, str], invalid: Invalid) -> Iterator[Sides]:
    for number, line in enumerate(read_lines(path, invalid=invalid), start=1):
        if line is None:
            yield None
            continue
        where = f"{path}: line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = error.msg if isinstance(error, json.JSONDecodeError) else "too deep or too large"
            raise DataError(f"{where} is not JSON ({reason}); write one object on each line") from None
        if not isinstance(record, dict):
            raise DataError(f"{where} is not a JSON object; write one object on each line")
        yield _field(record, fields[0], where), _field(record, fields[1], where)


def _field(record: dict[str, object], name: str, where: str) -> str:
    if name not in record:
        raise DataError(f"{where} has no field {name!r}; it has {', '.join(map(repr, record)) or 'none'}")
    text = record[name]
    if not isinstance(text, str):
        raise DataError(f"{where}: field {name!r} is not text; put the sentence in quotes")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise DataError(f"{where}: field {name!r} holds half a surrogate pair; write the character itself") from None
    return text

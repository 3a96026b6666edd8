"""Sentence pairs from parallel files, tab-separated files, JSON lines and Parquet."""

import glob
import json
import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from headway.data.links import Sides, linked
from headway.data.parquet import read_parquet
from headway.data.text import Invalid, read_lines, refuse_streams
from headway.errors import DataError

NOT_UTF8 = "not UTF-8"
"""The name under which skipped lines are counted."""

TABLE_SUFFIXES = (".tsv", ".tab")
JSON_SUFFIXES = (".jsonl", ".ndjson")
PARQUET_SUFFIX = ".parquet"
ONE_FILE = (*TABLE_SUFFIXES, *JSON_SUFFIXES, PARQUET_SUFFIX)
"""What a file that holds both sides may end in."""

Shards = Path | tuple[Path, ...]
"""A path or several; each may be a glob such as `train-*.en.gz`."""


class Shard(NamedTuple):
    """One file, or two parallel ones."""

    source: Path
    target: Path | None


@dataclass(frozen=True)
class Files:
    """Where a corpus stands: parallel files, or such as hold both sides; any but .parquet may be .gz too.

    Each side may come in shards: those of a glob are read in the order of their names, several paths as they stand.
    """

    source: Shards
    target: Shards | None = None
    columns: tuple[int, int] = (1, 2)
    """Source and target column of a tab-separated file, counted from 1."""
    fields: tuple[str, str] = ("source", "target")
    """Source and target field of JSON lines, or column of a Parquet file."""
    tags: tuple[str, ...] = ()
    """Words put before every source, as tokens of their own."""
    alignment: Path | None = None
    """Word alignments, a line for every pair."""
    alone: bool = False
    """There is one side only: every line is a target, and its source is empty."""
    again: bool = False
    """They are read more than once: none may be a pipe."""

    def __post_init__(self) -> None:
        if min(self.columns) < 1:
            raise DataError(f"{self.name}: there is no column {min(self.columns)}; columns count from 1")

    @property
    def name(self) -> str:
        """The corpus in a few words."""
        first, *others = _listed(self.source)
        return f"{first} and {len(others)} more" if others else str(first)

    @cached_property
    def shards(self) -> tuple[Shard, ...]:
        """The corpus file by file, as it was when first asked for."""
        sources = _found(self.source)
        targets = [] if self.target is None else _found(self.target)
        if self.again:
            refuse_streams(*sources, *targets, self.alignment)
        if self.target is None:
            return tuple(Shard(source, None) for source in sources)
        if len(sources) != len(targets):
            told = f"{len(sources)} source files and {len(targets)} target files"
            raise DataError(f"{self.name}: {told}; give equally many, the n-th translating the n-th")
        return tuple(map(Shard, sources, targets))

    @property
    def paths(self) -> tuple[Path, ...]:
        """Every file of the corpus."""
        texts = tuple(path for shard in self.shards for path in shard if path is not None)
        return texts if self.alignment is None else (*texts, self.alignment)

    @property
    def one_file(self) -> bool:
        """Whether the names on the source side say that they hold both."""
        return _suffix(self.shards[0].source) in ONE_FILE


class Pair(NamedTuple):
    """A sentence pair, and where it comes from."""

    source: str
    target: str
    line: int = 0
    """From 1; the lines of several shards are counted on."""
    corpus: int = 0
    tags: tuple[str, ...] = ()
    """Words put before the source, as tokens of their own."""
    links: str = ""
    """Which words translate which, as the alignment file has it."""


def read_pairs(
    files: Files,
    *,
    invalid: Invalid = "refuse",
    counts: Counter[str] | None = None,
    starts: list[int] | None = None,
    corpus: int = 0,
) -> Iterator[Pair]:
    """Read a corpus pair by pair; an empty one, or one that changes meanwhile, is a `DataError`.

    With `invalid="skip"` a pair of which one side is not UTF-8 is left out and counted under "not UTF-8" in `counts`.
    To `starts` is added, for every shard, how many lines come before it.
    """
    before = [_state(path) for path in files.paths]
    number = 0
    try:
        for number, (sides, links) in enumerate(linked(_all_sides(files, invalid, starts), files.alignment), start=1):
            if sides is not None:
                yield Pair(*sides, number, corpus, files.tags, links)
            elif counts is not None:
                counts[NOT_UTF8] += 1
    except DataError:
        _refuse_changes(files, before)  # the likelier cause of whatever else is wrong
        raise
    _refuse_changes(files, before)
    if not number:
        raise DataError(f"{_told(files)}: no lines; give a corpus with at least one pair")


def read_sources(files: Files, *, invalid: Invalid = "refuse") -> Iterator[str]:
    """The source side alone, whether or not the other is there."""
    if files.target is not None or files.one_file:
        return (pair.source for pair in read_pairs(files, invalid=invalid))
    lines = (line for shard in files.shards for line in read_lines(shard.source, invalid=invalid))
    return (line for line in lines if line is not None)


def _listed(paths: Shards) -> tuple[Path, ...]:
    return (paths,) if isinstance(paths, Path) else paths


def _found(paths: Shards) -> list[Path]:
    """The files of one side; a name that is there is a file, whatever it looks like."""
    found: list[Path] = []
    for path in _listed(paths):
        if not glob.has_magic(str(path)) or path.exists():
            found.append(path)
            continue
        matching = sorted(map(Path, glob.glob(str(path))))  # noqa: PTH207  # a pattern may be absolute
        if not matching:
            raise DataError(f"{path}: no file has such a name; check the pattern")
        found += matching
    return found


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


def _all_sides(files: Files, invalid: Invalid, starts: list[int] | None) -> Iterator[Sides]:
    number = 0
    for shard in files.shards:
        if starts is not None:
            starts.append(number)
        for sides in _sides(shard, files, invalid):
            number += 1
            yield sides


def _sides(shard: Shard, files: Files, invalid: Invalid) -> Iterator[Sides]:
    source, suffix = shard.source, _suffix(shard.source)
    if files.alone:
        return _alone(source, files, invalid)
    if shard.target is not None:
        for path in (source, shard.target):
            if _suffix(path) == PARQUET_SUFFIX:
                raise DataError(f"{path}: Parquet holds both sides; name their columns by fields, and one file only")
        return _parallel(source, shard.target, invalid)
    if suffix in TABLE_SUFFIXES:
        return _table(source, files.columns, invalid)
    if suffix in JSON_SUFFIXES:
        return _json(source, files.fields, invalid)
    if suffix == PARQUET_SUFFIX:
        return read_parquet(source, files.fields, invalid=invalid)
    known = ", ".join(ONE_FILE)
    raise DataError(f"{source}: a corpus in one file must end in {known}; rename it, or give the target file too")


def _alone(path: Path, files: Files, invalid: Invalid) -> Iterator[Sides]:
    """Every line, or the target column or field of every row, with nothing for a source."""
    column, field = files.columns[1], files.fields[1]
    suffix = _suffix(path)
    both: Iterator[Sides]
    if suffix in TABLE_SUFFIXES:
        both = _table(path, (column, column), invalid)
    elif suffix in JSON_SUFFIXES:
        both = _json(path, (field, field), invalid)
    elif suffix == PARQUET_SUFFIX:
        both = read_parquet(path, (field, field), invalid=invalid)
    else:
        both = (None if line is None else ("", line) for line in read_lines(path, invalid=invalid))
    return (None if sides is None else ("", sides[1]) for sides in both)


def _told(files: Files) -> str:
    shards = files.shards
    return files.name if len(shards) > 1 else " and ".join(str(path) for path in shards[0] if path is not None)


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

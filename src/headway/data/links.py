"""Word alignments as text: the Pharaoh format, one line a pair, such as `0-0 1-2`."""

import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from headway.data.text import read_lines
from headway.errors import DataError

Sides = tuple[str, str] | None
"""Source and target, or None where one of them is not UTF-8."""

_LINK = re.compile(r"[0-9]{1,9}-[0-9]{1,9}")


def linked(pairs: Iterator[Sides], path: Path | None) -> Iterator[tuple[Sides, str]]:
    """Every pair with its line of the alignment file, checked; without a file with an empty line."""
    if path is None:
        yield from ((sides, "") for sides in pairs)
        return
    ended, lines = object(), read_lines(path)
    for number, (sides, line) in enumerate(zip_longest(pairs, lines, fillvalue=ended)):
        if sides is ended or line is ended:
            more = number + 1 + sum(1 for _ in (lines if sides is ended else pairs))
            counts = (more, number) if sides is ended else (number, more)
            raise DataError(f"{path} has {counts[0]} lines for {counts[1]} pairs; give one line for every pair")
        assert isinstance(line, str)  # other lines are refused
        if isinstance(sides, tuple):
            _check(line, sides, f"{path}: line {number + 1}")
            yield sides, line
        else:
            yield None, line


def parsed(line: str) -> list[tuple[int, int]]:
    """The links of a checked line: numbers of a source and a target word, from 0."""
    return [(int(source), int(target)) for source, target in (link.split("-") for link in line.split())]


def _check(line: str, sides: tuple[str, str], where: str) -> None:
    for link in line.split():
        if not _LINK.fullmatch(link):
            raise DataError(f"{where}: {link[:40]!r} is no link; write source-target, as in 0-0 1-2")
    links = parsed(line)
    for place, side in enumerate(("source", "target")):
        highest, words = max((link[place] for link in links), default=-1), len(sides[place].split())
        if highest >= words:
            raise DataError(f"{where}: links {side} word {highest} of {words}; words count from 0")

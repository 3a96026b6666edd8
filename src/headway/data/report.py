"""What stands in a corpus, and what in it may spoil a training: the content of `headway check`."""

import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.data.pairs import NOT_UTF8, Files, read_pairs, read_sources
from headway.data.text import hashed

OUTLYING = 3.0
"""A side this many times longer or shorter than its partner leads one to expect is an outlier."""
FORGIVEN = 10
"""Characters added to both lengths first, so that "Yes." and "Oui, oui." are no outlier."""

SYMBOLS = re.compile(r"</?(?:s|pad|unk|bos|eos|mask)>|▁", re.IGNORECASE)
"""What tokenizers use as control symbols; in a text these are ordinary characters."""

DAMAGED = "replacement characters (U+FFFD)"
KINDS = {
    "Cc": "control characters",
    "Cf": "invisible formatting characters",
    "Cn": "unassigned characters",
    "Co": "private-use characters",
    "Zl": "line separators",
    "Zp": "line separators",
}
KINDS_OF_ONE = {"\0": "NUL characters", "\ufffd": DAMAGED, "\ufeff": "byte order marks inside the text"}


@dataclass(frozen=True)
class Lengths:
    """How long the lines of one side are."""

    mean: float
    median: float
    percentile_95: float
    longest: int
    longest_line: int


@dataclass(frozen=True)
class Odd:
    """In how many lines a kind of odd character stands, and the first of them."""

    kind: str
    lines: int
    first_line: int


@dataclass(frozen=True)
class Side:
    """What stands on one side of the corpus."""

    words: Lengths
    characters: Lengths
    empty: int
    blank: int
    """Lines of white space only, empty ones not counted."""
    repeated: int
    """Lines that came before."""
    odd: tuple[Odd, ...]
    not_composed: int
    """Lines that are not in Unicode's form NFC."""
    symbols: int
    """Lines with the likes of `<s>` in their text."""


@dataclass(frozen=True)
class Outlier:
    """A pair whose lengths do not go together."""

    line: int
    source_characters: int
    target_characters: int


@dataclass(frozen=True)
class Overlap:
    """How much of a test set stands in the corpus too."""

    tested: int
    sources: int
    pairs: int


@dataclass(frozen=True)
class Report:
    """The state of a corpus; its text is only looked at, never changed."""

    pairs: int
    source: Side
    target: Side
    repeated: int
    """Pairs that came before, source and target alike."""
    copied: int
    """Pairs whose target is their source."""
    outliers: int
    worst: tuple[Outlier, ...]
    not_utf8: int
    overlap: Overlap | None
    shards: dict[str, int]
    """How many lines come before each source file: line numbers run on from one to the next."""

    def to_json(self) -> dict[str, Any]:
        """Everything as plain JSON values, the warnings included."""
        return {**asdict(self), "warnings": self.warnings()}

    def lines(self) -> list[str]:
        """The report for people."""
        told = [f"pairs: {self.pairs:,}"]
        for name, side in (("source", self.source), ("target", self.target)):
            told += [f"{name}: {line}" for line in _side_lines(side, self.place)]
        told.append(f"repeated pairs: {self.repeated:,}; target is a copy of the source: {self.copied:,}")
        told.append(f"length outliers: {self.outliers:,}" + "".join(f"; {self._outlier(pair)}" for pair in self.worst))
        if self.overlap:
            test = self.overlap
            told.append(f"test set: {test.sources:,} of {test.tested:,} sources and {test.pairs:,} pairs are here too")
        return told + [f"warning: {warning}" for warning in self.warnings()]

    def place(self, line: int) -> str:
        """A line by its number, or by its file and number there where there are several files."""
        if len(self.shards) == 1:
            return f"line {line}"
        name, before = [entry for entry in self.shards.items() if entry[1] < line][-1]
        return f"line {line - before} of {name}"

    def _outlier(self, pair: Outlier) -> str:
        return f"{self.place(pair.line)} ({pair.source_characters:,} to {pair.target_characters:,} characters)"

    def warnings(self) -> list[str]:
        """What to look at, the worst first; nothing where all is well."""
        return [warning for warning, applies in _warnings(self) if applies]


def _side_lines(side: Side, place: Callable[[int], str]) -> Iterator[str]:
    for unit, lengths in (("words", side.words), ("characters", side.characters)):
        spread = f"mean {lengths.mean:.1f}, median {lengths.median:g}, 95 % up to {lengths.percentile_95:g}"
        yield f"{unit}: {spread}, longest {lengths.longest:,} ({place(lengths.longest_line)})"
    yield f"empty: {side.empty:,}; white space only: {side.blank:,}; repeated: {side.repeated:,}"
    if side.not_composed or side.symbols:
        yield f"lines not in NFC: {side.not_composed:,}; lines with symbols like <s>: {side.symbols:,}"
    for odd in side.odd:
        yield f"{odd.kind}: {odd.lines:,} lines, first in {place(odd.first_line)}"


def _warnings(report: Report) -> Iterator[tuple[str, bool]]:
    total = max(report.pairs, 1)
    sides = (report.source, report.target)
    yield "no pair can be read as UTF-8; convert the files", report.pairs == 0
    if report.overlap:
        test = report.overlap
        told = f"{test.sources:,} of {test.tested:,} test sources stand in the corpus, {test.pairs:,} with their target"
        yield f"{told}; scores on them say little: take them out of the corpus", test.sources > 0
    told = f"{report.not_utf8:,} pairs are not UTF-8 and were skipped here"
    yield f"{told}; training refuses them unless told to skip", report.not_utf8 > 0
    empty = [side.empty + side.blank for side in sides]
    yield f"{empty[0]:,} source and {empty[1]:,} target lines are blank; cleaning leaves them out", any(empty)
    told = f"{report.copied:,} targets are copies of their source ({report.copied / total:.1%})"
    yield f"{told}; a model learns to copy from few of them", report.copied > total / 50
    for name, side in (("source", report.source), ("target", report.target)):
        for odd in side.odd:
            told = f"{odd.lines:,} {name} lines hold {odd.kind}, first {report.place(odd.first_line)}"
            yield told + ("; the text was damaged before it came here" if odd.kind == DAMAGED else ""), True
    told = f"{report.outliers:,} pairs are oddly unequal in length ({report.outliers / total:.1%})"
    worst = report.place(report.worst[0].line) if report.worst else ""
    yield f"{told}; are the files aligned? See {worst}", report.outliers > 0
    told = f"{report.repeated:,} pairs are repeated ({report.repeated / total:.1%})"
    yield f"{told}; they weigh double: cleaning can leave them out", report.repeated > total / 20
    composed = sum(side.not_composed for side in sides)
    yield (
        f"{composed:,} lines are not in NFC: equal letters may become unequal tokens; cleaning can compose",
        composed > 0,
    )
    symbols = sum(side.symbols for side in sides)
    yield f"{symbols:,} lines hold symbols like <s>; they are taken as ordinary text", symbols > 0


def survey(files: Files, test: Files | None = None, *, progress: Callable[[int], None] = lambda _: None) -> Report:
    """Read a corpus once and report on it, and on what it shares with a test set.

    Memory grows by about 100 bytes a pair, however long its text. `progress` is told the line now and then.
    """
    counts: Counter[str] = Counter()
    source, target = _Tally(), _Tally()
    lines, hashes = array("Q"), array("Q")
    copied, starts = 0, list[int]()
    for pair in read_pairs(files, invalid="skip", counts=counts, starts=starts):
        source.add(pair.source, pair.line)
        target.add(pair.target, pair.line)
        lines.append(pair.line)
        hashes.append(hashed(pair.source, pair.target))
        copied += pair.source == pair.target and bool(pair.source.strip())
        if pair.line % 10_000 == 0:
            progress(pair.line)
    outliers, worst = _outliers(_numbers(source.characters), _numbers(target.characters), _numbers(lines))
    return Report(
        pairs=len(lines),
        source=source.side(_numbers(lines)),
        target=target.side(_numbers(lines)),
        repeated=_repeated(hashes),
        copied=copied,
        outliers=outliers,
        worst=worst,
        not_utf8=counts[NOT_UTF8],
        overlap=_overlap(test, source.hashes, hashes) if test else None,
        shards={str(shard.source): start for shard, start in zip(files.shards, starts, strict=True)},
    )


class _Tally:
    """One side of a corpus, counted line by line."""

    def __init__(self) -> None:
        self.words, self.characters, self.hashes = array("I"), array("I"), array("Q")
        self.empty = self.blank = self.not_composed = self.symbols = 0
        self.odd: Counter[str] = Counter()
        self.first: dict[str, int] = {}

    def add(self, text: str, line: int) -> None:
        words = len(text.split())
        self.words.append(words)
        self.characters.append(len(text))
        self.hashes.append(hashed(text))
        self.empty += not text
        self.blank += bool(text) and not words
        self.not_composed += not unicodedata.is_normalized("NFC", text)
        self.symbols += ("<" in text or "▁" in text) and SYMBOLS.search(text) is not None
        if not text.isprintable() or "\ufffd" in text:  # quick, and true of nearly every line
            for kind in _kinds(text):
                self.odd[kind] += 1
                self.first.setdefault(kind, line)

    def side(self, lines: NDArray[Any]) -> Side:
        return Side(
            words=_lengths(_numbers(self.words), lines),
            characters=_lengths(_numbers(self.characters), lines),
            empty=self.empty,
            blank=self.blank,
            repeated=_repeated(self.hashes),
            odd=tuple(Odd(kind, count, self.first[kind]) for kind, count in self.odd.most_common()),
            not_composed=self.not_composed,
            symbols=self.symbols,
        )


def _kinds(text: str) -> set[str]:
    found = {KINDS_OF_ONE.get(character) or KINDS.get(unicodedata.category(character)) for character in set(text)}
    return {kind for kind in found if kind is not None}


def _numbers(values: "array[int]") -> NDArray[Any]:
    return np.frombuffer(values, dtype=f"u{values.itemsize}") if values else np.zeros(0, dtype=np.uint64)


def _lengths(lengths: NDArray[Any], lines: NDArray[Any]) -> Lengths:
    if not len(lengths):
        return Lengths(0.0, 0.0, 0.0, 0, 0)
    median, high = np.percentile(lengths, [50, 95])
    longest = int(lengths.argmax())
    return Lengths(float(lengths.mean()), float(median), float(high), int(lengths[longest]), int(lines[longest]))


def _repeated(hashes: "array[int]") -> int:
    return len(hashes) - len(np.unique(_numbers(hashes)))


def _outliers(source: NDArray[Any], target: NDArray[Any], lines: NDArray[Any]) -> tuple[int, tuple[Outlier, ...]]:
    """Count the pairs that stray from the corpus's median ratio of lengths, and show three; an empty side is none."""
    whole = (source > 0) & (target > 0)
    balance = np.median(target[whole] / source[whole]) if whole.any() else 1.0
    strays = np.abs(np.log((target + FORGIVEN) / (source * balance + FORGIVEN)))
    strays[~whole] = 0
    worst = [index for index in np.argsort(-strays, kind="stable")[:3] if strays[index] > np.log(OUTLYING)]
    shown = tuple(Outlier(int(lines[index]), int(source[index]), int(target[index])) for index in worst)
    return int((strays > np.log(OUTLYING)).sum()), shown


def _overlap(test: Files, sources: "array[int]", pairs: "array[int]") -> Overlap:
    test_sources, test_pairs = array("Q"), array("Q")
    test_sources.extend(hashed(source) for source in read_sources(test, invalid="skip"))
    if test.target is not None or test.one_file:
        test_pairs.extend(hashed(pair.source, pair.target) for pair in read_pairs(test, invalid="skip"))
    shared = [
        np.isin(_numbers(ours), _numbers(theirs)) for ours, theirs in ((test_sources, sources), (test_pairs, pairs))
    ]
    return Overlap(len(test_sources), int(shared[0].sum()), int(shared[1].sum()))

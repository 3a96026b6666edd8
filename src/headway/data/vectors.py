"""Word vectors trained elsewhere: word2vec text and binary, and GloVe text."""

import re
from collections.abc import Collection, Iterator
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headway.data.text import BYTE_ORDER_MARK, LONGEST_LINE, Reader, opened, refuse_streams
from headway.errors import DataError

WIDEST = 1 << 16
"""Values a vector may have: a damaged header must not make us read gigabytes as one vector."""

Vector = NDArray[np.float32]
Line = tuple[str, bytes]
"""Where it stands, and what stands there."""
Entry = tuple[str, bytes, bytes]
"""Where it stands, its word, and its values as they are written."""


def read_vectors(path: Path, wanted: Collection[str]) -> tuple[dict[str, Vector], int]:
    """Read the vectors of the `wanted` words, and the width of them all; of a word that stands twice the first counts.

    The content tells the format. Only wanted vectors are kept and must be finite numbers; the shape of the file is
    checked throughout.
    """
    names = {word.encode("utf-8"): word for word in wanted}
    vectors: dict[str, Vector] = {}
    refuse_streams(path)
    with opened(path) as stream:
        lines = _lines(stream, path)
        first = next(lines, (f"{path}: line 1", b""))[1].removeprefix(BYTE_ORDER_MARK)
        header = re.fullmatch(rb"(\d{1,18}) (\d{1,18})", first)
        width = int(header[2]) if header else first.count(b" ")
        if not 1 <= width <= WIDEST:
            known = "word2vec text, word2vec binary and GloVe text are known"
            raise DataError(f"{path}: line 1 tells of vectors of {width} values, not 1 to {WIDEST}; {known}")
        binary = header is not None and _is_binary(stream, width)
        if header is None:
            _parsed(first.partition(b" ")[2], f"{path}: line 1")  # a file of another kind is refused at once
            entries = _text(chain([(f"{path}: line 1", first)], lines), width)
        else:
            entries = _binary(stream, path, int(header[1]), width) if binary else _text(lines, width)
            entries = _counted(entries, path, int(header[1]))
        for where, word, values in entries:
            name = names.get(word)
            if name is not None and name not in vectors:
                vectors[name] = _finite(np.frombuffer(values, "<f4") if binary else _parsed(values, where), where)
    return vectors, width


def _lines(stream: Reader, path: Path) -> Iterator[Line]:
    """Lines without their ends and the space that some tools write before them; reads no further than asked for."""
    number = 0
    while line := stream.readline(LONGEST_LINE + 1):
        number += 1
        where = f"{path}: line {number}"
        if len(line) > LONGEST_LINE:
            raise DataError(f"{where} is longer than {LONGEST_LINE} bytes; give a file of word vectors")
        yield where, line.rstrip(b" \r\n")


def _is_binary(stream: Reader, width: int) -> bool:
    """Whether binary entries follow the header: in text a value and its space take two ASCII bytes or more."""
    values = stream.peek(1 << 12).partition(b" ")[2][: 2 * width - 1]
    return re.search(rb"[^\t\n\r -~]", values) is not None


def _text(lines: Iterator[Line], width: int) -> Iterator[Entry]:
    for where, line in lines:
        spaces = line.count(b" ")
        word, _, values = line.partition(b" ")
        pieces = line.split(b" ") if spaces > width else []
        if pieces:  # the word itself holds spaces, or there is a value too many
            word, values = b" ".join(pieces[:-width]), b" ".join(pieces[-width:])
        if spaces < width or (pieces and _is_number(pieces[-width - 1])):
            raise DataError(f"{where} has {spaces} values where {width} are expected; all vectors must be equally wide")
        yield where, word, values


def _is_number(text: bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _binary(stream: Reader, path: Path, count: int, width: int) -> Iterator[Entry]:
    for number in range(1, count + 1):
        where = f"{path}: entry {number}"
        word = _word(stream, where)
        values = stream.read(4 * width)
        if len(values) < 4 * width:
            raise DataError(f"{where} of {count} breaks off; copy the file again")
        yield where, word, values
    if stream.read(2) not in (b"", b"\n"):
        raise DataError(f"{path}: goes on after the {count} entries its header tells of; copy the file again")


def _word(stream: Reader, where: str) -> bytes:
    """The bytes up to the next space; the line end that some tools write after a vector is no part of them."""
    word = bytearray()
    while (byte := stream.read(1)) != b" ":
        if not byte or len(word) > LONGEST_LINE:
            raise DataError(f"{where} has no word and space before its values; copy the file again")
        word += byte
    return bytes(word.removeprefix(b"\n"))


def _counted(entries: Iterator[Entry], path: Path, count: int) -> Iterator[Entry]:
    found = 0
    for entry in entries:
        found += 1
        yield entry
    if found != count:
        raise DataError(f"{path}: has {found} entries, its header tells of {count}; copy the file again")


def _parsed(values: bytes, where: str) -> Vector:
    try:
        with np.errstate(over="ignore"):  # too large for 32 bits becomes infinite, and that is refused
            return np.array([float(value) for value in values.split(b" ")], dtype=np.float32)
    except ValueError:
        raise DataError(f"{where} holds something else than a word and numbers; give a file of word vectors") from None


def _finite(vector: Vector, where: str) -> Vector:
    if not np.isfinite(vector).all():
        raise DataError(f"{where} holds a value that is not finite; take the word out")
    return vector.astype(np.float32)  # a copy of our own, in the machine's byte order

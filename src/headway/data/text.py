"""Lines of text as they stand in a file, and the identity of that file."""

import codecs
import gzip
import hashlib
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase, BufferedReader
from pathlib import Path
from typing import Literal, overload

from headway.errors import DataError

LONGEST_LINE = 1 << 20
"""Bytes a line may have, its line end not counted; a longer one is refused and never held in memory."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
GZIP_MAGIC = b"\x1f\x8b"
_OTHERS = {
    "UTF-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE),  # whose mark may begin as that of UTF-16
    "UTF-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
}
"""Encodings that tell what they are at the beginning of a file."""

Invalid = Literal["refuse", "skip"]
"""What a line that is not UTF-8 gets: a `DataError`, or None in its place."""
Reader = BufferedReader | gzip.GzipFile
"""A file opened for reading, unpacked on the way if need be."""


@overload
def read_lines(path: Path, *, invalid: Literal["refuse"] = "refuse") -> Iterator[str]: ...
@overload
def read_lines(path: Path, *, invalid: Invalid) -> Iterator[str | None]: ...
def read_lines(path: Path, *, invalid: Invalid = "refuse") -> Iterator[str | None]:
    r"""Read a plain or gzip file line by line, in constant memory.

    Only `\n` ends a line and one `\r` before it goes; every other character stays, NUL and U+2028 included. A byte
    order mark at the start is dropped, a last line without line end counts, and `invalid` never changes their number.
    """
    with opened(path) as stream:
        yield from read_stream(stream, str(path), invalid=invalid)


@overload
def read_stream(stream: BufferedIOBase, name: str, *, invalid: Literal["refuse"] = "refuse") -> Iterator[str]: ...
@overload
def read_stream(stream: BufferedIOBase, name: str, *, invalid: Invalid) -> Iterator[str | None]: ...
def read_stream(stream: BufferedIOBase, name: str, *, invalid: Invalid = "refuse") -> Iterator[str | None]:
    """Read lines as `read_lines` does from an open binary stream, each as soon as it has come."""
    with explained(name):
        yield from _decoded(stream, name, invalid)


def _decoded(stream: BufferedIOBase, name: str, invalid: Invalid) -> Iterator[str | None]:
    number = offset = 0
    while piece := stream.readline(LONGEST_LINE + 6):  # a byte order mark, the line, "\r\n", and one byte too many
        number += 1
        start = len(BYTE_ORDER_MARK) if number == 1 and piece.startswith(BYTE_ORDER_MARK) else 0
        if start == len(piece):
            return  # a mark and nothing else is an empty file
        content = piece[start:].removesuffix(b"\n").removesuffix(b"\r")
        if len(content) > LONGEST_LINE:
            raise DataError(f"{name}: line {number} is longer than {LONGEST_LINE} bytes; split it or take it out")
        line: str | None = None
        try:
            line = content.decode("utf-8")
        except UnicodeDecodeError as error:
            if invalid == "refuse":
                place = f"byte {error.start + 1} of the line, offset {offset + start + error.start} in the text"
                remedy = _looks_like(piece) or "save the file as UTF-8, or ask for such lines to be skipped"
                raise DataError(f"{name}: line {number} is not UTF-8 at {place}; {remedy}") from None
        yield line
        offset += len(piece)


def _looks_like(piece: bytes) -> str:
    """What a user should do about lines in another encoding, where they show which it is."""
    marked = (name for name, marks in _OTHERS.items() if piece.startswith(marks))
    unmarked = (name for name, nuls in (("UTF-16BE", piece[::2]), ("UTF-16LE", piece[1::2])) if nuls and not any(nuls))
    name = next(marked, None) or next(unmarked, None)
    return f"it looks like {name[:6]}; convert it with iconv -f {name} -t UTF-8" if name else ""


@contextmanager
def opened(path: Path) -> Iterator[Reader]:
    """Open a file for reading its bytes, unpacked where it is gzip; whatever fails, then or later, is a `DataError`."""
    with explained(str(path)), path.open("rb") as file:
        if file.peek(2).startswith(GZIP_MAGIC):
            with gzip.GzipFile(fileobj=file, mode="rb") as unpacked:
                yield unpacked
        elif path.suffix.lower() == ".gz":
            raise DataError(f"{path}: not a gzip file although its name ends in .gz; rename or pack it")
        else:
            yield file


@contextmanager
def explained(name: str) -> Iterator[None]:
    """Turn what can go wrong with reading `name` into a `DataError` of one line."""
    if "\0" in name:
        raise DataError(f"{name!r}: a path cannot hold NUL; check the path")
    try:
        yield
    except EOFError:
        raise DataError(f"{name}: the gzip file breaks off; copy or pack it again") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{name}: the gzip file is damaged ({error}); copy or pack it again") from None
    except FileNotFoundError:
        raise DataError(f"{name}: no such file; check the path") from None
    except IsADirectoryError:
        raise DataError(f"{name}: is a folder; give a file") from None
    except OSError as error:
        raise DataError(f"{name}: cannot be read ({error.strerror or error}); check the path and its rights") from None


@dataclass(frozen=True)
class Fingerprint:
    """What a file was when it was looked at."""

    size: int
    modified_ns: int
    sha256: str


def refuse_streams(*paths: Path | None) -> None:
    """Refuse pipes and devices where files are read more than once; one that is not there is refused when read."""
    for path in paths:
        try:
            mode = stat.S_IFREG if path is None else path.stat().st_mode
        except (OSError, ValueError):
            continue
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise DataError(f"{path}: is a pipe or a device, which can be read only once; write its content to a file")


def fingerprint(path: Path) -> Fingerprint:
    """Take a file's fingerprint, of its bytes as stored (gzip is not unpacked)."""
    refuse_streams(path)
    with explained(str(path)):
        state = path.stat()
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256")
    return Fingerprint(state.st_size, state.st_mtime_ns, digest.hexdigest())


def changed(path: Path, before: Fingerprint) -> bool:
    """Whether the file holds something else than `before`; it is read only where size agrees and time does not."""
    with explained(str(path)):
        state = path.stat()
    if state.st_size != before.size:
        return True
    return state.st_mtime_ns != before.modified_ns and fingerprint(path).sha256 != before.sha256


def hashed(*texts: str) -> int:
    """A 64-bit hash of one or several texts, the same in every process."""
    joined = b"\xff".join(text.encode("utf-8") for text in texts)  # a byte that UTF-8 never holds
    return int.from_bytes(hashlib.blake2b(joined, digest_size=8).digest(), "little")

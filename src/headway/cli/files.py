"""Input and output of the commands that read and write lines."""

import fcntl
import gzip
import io
import json
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from io import BufferedIOBase
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

from headway.data.text import LONGEST_LINE, Invalid, read_lines, read_stream
from headway.disk import output
from headway.errors import ConfigError, DataError, HeadwayError


def lines_of(path: Path | None, invalid: Invalid = "refuse") -> Iterator[str | None]:
    """The lines of a file, or of standard input; None for one that is not UTF-8 and to be skipped."""
    if path is None:
        if sys.stdin is None:
            raise DataError("standard input: closed; redirect it from a file")
        return read_stream(_own_input(), "standard input", invalid=invalid)
    return read_lines(path, invalid=invalid)


def _own_input() -> BufferedIOBase:
    """Standard input by a stream that Python knows nothing of: at exit it would stop at one that a thread reads."""
    try:
        return open(sys.stdin.fileno(), "rb", closefd=False)
    except (OSError, ValueError):  # not a file of the system's
        return cast(BufferedIOBase, sys.stdin.buffer)


def dumped(record: dict[str, Any]) -> str:
    """The record on one line; as it reads where UTF-8 can hold it, else escaped."""
    text = json.dumps(record, ensure_ascii=False)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # half a surrogate pair in a field that is only passed on
        return json.dumps(record)
    return text


def refuse_halves(value: Any, name: str, where: str) -> None:
    """Refuse a field of JSON with a text, or a list of them, that UTF-8 cannot hold."""
    for each in value if isinstance(value, list) else [value]:
        try:
            str(each).encode("utf-8")
        except UnicodeEncodeError:
            raise DataError(f'{where}: "{name}" holds half a surrogate pair; write the character itself') from None


@contextmanager
def written(path: Path | None, *inputs: Path | None, overwrite: bool = False) -> Iterator[TextIO]:
    """A text stream to a file, never one of the inputs, or to standard output; None among the inputs is standard input.

    The file appears when everything is written, packed where its name ends in .gz; after an error there is none, or the
    one that was there before. One that is there already is refused, unless it may be overwritten.
    """
    if path is None:
        yield sys.stdout
        sys.stdout.flush()
        return
    refuse_inputs(path, inputs)
    packed = path.suffix.lower() == ".gz"
    with (
        output(path, overwrite=overwrite) as raw,
        gzip.GzipFile("", "wb", 6, raw, 0) if packed else nullcontext(raw) as binary,
        io.TextIOWrapper(cast(BinaryIO, binary), encoding="utf-8", newline="\n") as file,
    ):
        yield file


@contextmanager
def continued(path: Path, check: Callable[[int], None], *inputs: Path | None) -> Iterator[TextIO]:
    """A text stream to the end of a file that an earlier process may have begun.

    `check` is told how many whole lines stand there and may refuse them. A last line without its end must be how the
    next line to be written begins: only the rest of it is written, and nothing is ever taken away. What is flushed
    stays, whatever happens.
    """
    if path.suffix.lower() == ".gz":
        raise ConfigError(f"{path}: a gzip file cannot be appended to; leave out --append, or write a plain file")
    refuse_inputs(path, inputs)
    try:
        if path.exists() and not path.is_file():
            raise ConfigError(f"{path}: is not a file; choose another --output or leave out --append")
        file = path.open("a+b")
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConfigError(f"{path}: another process is writing it; wait for its end") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror}); choose another --output") from None
    try:
        with file:
            lines, begun = _whole_lines(file, path)
            check(lines)
            rest = _Rest(file, begun, path)
            yield cast(TextIO, rest)
            rest.finish()
    except OSError as error:
        raise HeadwayError(f"{path}: cannot be written ({error.strerror}); free space and go on") from None


class _Rest(io.TextIOBase):
    """Writes text of which an earlier process has written the beginning of the first line."""

    def __init__(self, file: BinaryIO, begun: bytes, path: Path) -> None:
        self.file, self.begun, self.path = file, begun, path

    def write(self, text: str) -> int:
        """Write what is not there yet."""
        content = text.encode("utf-8")
        if not content.startswith(self.begun):
            self._refuse()
        self.file.write(content[len(self.begun) :])
        self.begun = b""
        return len(text)

    def flush(self) -> None:
        """Hand what was written to the system."""
        self.file.flush()

    def finish(self) -> None:
        """Refuse the beginning of a line that was never written."""
        if self.begun:
            self._refuse()

    def _refuse(self) -> None:
        told = "its last line has no end and is not the beginning of the next output"
        raise ConfigError(f"{self.path}: {told}; complete or remove that line, or choose another --output")


def _whole_lines(file: BinaryIO, path: Path) -> tuple[int, bytes]:
    """How many lines of a file have an end, and the beginning of one after them."""
    lines, begun = 0, b""
    file.seek(0)
    while piece := file.read(1 << 20):
        lines += piece.count(b"\n")
        begun = begun + piece if b"\n" not in piece else piece.rpartition(b"\n")[2]
        if len(begun) > LONGEST_LINE:
            raise ConfigError(f"{path}: its last line has over {LONGEST_LINE} bytes; it is not an output to continue")
    return lines, begun


def refuse_inputs(path: Path, inputs: tuple[Path | None, ...]) -> None:
    """Refuse an output that is one of the inputs, under whatever name; None among these is standard input."""
    if any(_same_file(path, given) for given in inputs):
        raise ConfigError(f"{path}: is also the input; choose another --output")


def _same_file(path: Path, given: Path | None) -> bool:
    """Whether both are one file on disk, under whatever names."""
    try:
        state = os.fstat(sys.stdin.fileno()) if given is None else given.stat()
        return stat.S_ISREG(state.st_mode) and os.path.samestat(state, path.stat())
    except (OSError, ValueError, AttributeError):  # one of them is not there
        return False

"""Input and output of the commands that read and write lines."""

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from typing import TextIO, cast

from headway.data.text import Invalid, read_lines, read_stream
from headway.errors import ConfigError, DataError, HeadwayError


def lines_of(path: Path | None, invalid: Invalid = "refuse") -> Iterator[str | None]:
    """The lines of a file, or of standard input; None for one that is not UTF-8 and to be skipped."""
    if path is None:
        if sys.stdin is None:
            raise DataError("standard input: closed; give a file by --input")
        return read_stream(cast(BufferedIOBase, sys.stdin.buffer), "standard input", invalid=invalid)
    return read_lines(path, invalid=invalid)


@contextmanager
def written(path: Path | None, *inputs: Path | None) -> Iterator[TextIO]:
    """A text stream to a file, never one of the inputs, or to standard output; None among the inputs is standard input.

    The file appears when everything is written; after an error there is none, or the one that was there before.
    """
    if path is None:
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]  # a text stream has it
        yield sys.stdout
        sys.stdout.flush()
        return
    if any(_same_file(path, given) for given in inputs):
        raise ConfigError(f"{path}: is also the input; choose another --output")
    final = path.resolve()  # a link stays a link
    aside = final if final.exists() and not final.is_file() else final.with_name(f".{final.name}.tmp")
    try:
        file = aside.open("w", encoding="utf-8", newline="\n")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror}); choose another --output") from None
    try:
        with file:
            yield file
        if aside != final:
            aside.rename(final)
    except BaseException as error:
        if aside != final:
            aside.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise HeadwayError(f"{path}: cannot be written ({error.strerror}); choose another --output") from None
        raise


def _same_file(path: Path, given: Path | None) -> bool:
    """Whether both are one file on disk, under whatever names."""
    try:
        state = os.fstat(sys.stdin.fileno()) if given is None else given.stat()
        return stat.S_ISREG(state.st_mode) and os.path.samestat(state, path.stat())
    except (OSError, ValueError, AttributeError):  # one of them is not there
        return False

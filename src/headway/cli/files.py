"""Input and output of the commands that read and write lines."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from headway.data.text import Invalid, read_lines, read_stream
from headway.errors import ConfigError, HeadwayError


def lines_of(path: Path | None, invalid: Invalid = "refuse") -> Iterator[str | None]:
    """The lines of a file, or of standard input; None for one that is not UTF-8 and to be skipped."""
    if path is None:
        return read_stream(sys.stdin.buffer, "standard input", invalid=invalid)
    return read_lines(path, invalid=invalid)


@contextmanager
def written(path: Path | None, *inputs: Path | None) -> Iterator[TextIO]:
    """A text stream to a file, never one of the inputs, or to standard output."""
    if path is None:
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]  # a text stream has it
        yield sys.stdout
        sys.stdout.flush()
        return
    for given in inputs:
        if given is not None and given.exists() and path.exists() and path.samefile(given):
            raise ConfigError(f"{path}: is also the input; choose another --output")
    try:
        with path.open("w", encoding="utf-8", newline="\n") as file:
            yield file
    except OSError as error:
        raise HeadwayError(f"{path}: cannot be written ({error.strerror}); choose another --output") from None

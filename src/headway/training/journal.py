"""The journal of a run: `metrics.jsonl`, TensorBoard events, and a line for people."""

import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from headway.disk import plain_file, present, write_bytes
from headway.errors import FolderError, HeadwayError

FLUSHED = 10.0
"""Seconds after which events reach the disk at the latest, while new ones come."""


class Journal:
    """Writes what happened, by step, and goes on where the checkpoint stood.

    Lines of later steps are dropped: they will be written again. What is there already is not written twice.
    """

    def __init__(self, folder: Path, say: Callable[[str], None], *, begins_at: int = 0) -> None:
        self.path = folder / "metrics.jsonl"
        self.say = say
        self._known: set[tuple[int, str]] = set()
        with _writing(self.path):
            self._rewind(begins_at)
            self._file = self.path.open("a", encoding="utf-8")
        self._events = _Events(folder / "events", begins_at)

    def _rewind(self, step: int) -> None:
        if not present(self.path):
            return
        if not plain_file(self.path):
            raise FolderError(f"{self.path}: is not a plain file, so Headway did not write it; move it elsewhere")
        kept, content = [], self.path.read_bytes()
        for line in content.splitlines(keepends=True):
            try:
                values = json.loads(line)
                if values["step"] <= step:
                    kept.append(line if line.endswith(b"\n") else line + b"\n")
                    self._known |= {(values["step"], name) for name in values}
            except (ValueError, KeyError, TypeError, RecursionError):  # the half line of a kill, or damage
                continue
        if b"".join(kept) != content:
            write_bytes(self.path, b"".join(kept))

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Record numbers under their names."""
        if all((step, name) in self._known for name in values):
            return
        finite = {name: value if math.isfinite(value) else None for name, value in values.items()}
        with _writing(self.path):
            self._file.write(json.dumps({"step": step, "time": round(time.time(), 3), **finite}) + "\n")
            self._file.flush()
        for name, value in values.items():
            if math.isfinite(value):
                self._events.scalar(step, name, value)

    def text(self, step: int, name: str, lines: list[str]) -> None:
        """Record sample output."""
        self._events.text(step, name, "\n\n".join(lines))

    def close(self) -> None:
        """Flush and close the files."""
        self._events.close()
        self._file.close()

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        with suppress(HeadwayError, OSError) if kind is not None else nullcontext():  # the first error says it
            self.close()


class _Events:
    """An event file for TensorBoard, written in place: a writer's thread that dies would let training wait forever."""

    def __init__(self, folder: Path, begins_at: int) -> None:
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog

        self._folder, self._make = folder, Event
        self._flushed = time.monotonic()
        with _writing(folder):
            folder.mkdir(exist_ok=True)
            self._writer = EventsWriter(str(folder / "events"), f".{os.getpid()}")
            # Events of this step and later ones, of a run that was killed, are then hidden.
            self._add(begins_at + 1, session_log=SessionLog(status=SessionLog.START))
            self._writer.flush()

    def scalar(self, step: int, name: str, value: float) -> None:
        from tensorboardX.summary import scalar

        self._add(step, summary=scalar(name, value))

    def text(self, step: int, name: str, text: str) -> None:
        from tensorboardX.summary import text as summary

        self._add(step, summary=summary(name, text))

    def _add(self, step: int, **content: Any) -> None:
        with _writing(self._folder):
            self._writer.write_event(self._make(wall_time=time.time(), step=step, **content))
            if time.monotonic() - self._flushed > FLUSHED:
                self._writer.flush()
                self._flushed = time.monotonic()

    def close(self) -> None:
        with _writing(self._folder):
            self._writer.close()


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn a full or closed disk into one line that names the file."""
    try:
        yield
    except OSError as error:
        told = f"{path}: cannot be written ({error.strerror or error})"
        raise HeadwayError(f"{told}; free space and go on with --resume") from None


class Unwritten(Journal):
    """The journal of a process that leaves writing to the first one."""

    def __init__(self) -> None:
        self.say = lambda _: None

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Record nothing."""

    def text(self, step: int, name: str, lines: list[str]) -> None:
        """Record nothing."""

    def close(self) -> None:
        """Nothing is open."""

"""Ctrl-C and SIGTERM as a flag that is polled, so that work stops at a good moment."""

import os
import signal
from types import FrameType, TracebackType

from headway.errors import Interrupted


class Stopper:
    """While entered, the first SIGINT or SIGTERM asks for a stop and the second leaves at once."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._before: dict[int, object] = {}

    def __enter__(self) -> "Stopper":
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.signal itself returned

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self.signal is not None:
            os._exit(128 + number)  # checkpoints are whole or absent, so nothing is lost by leaving here
        self.signal = number

    def check(self, step: int) -> None:
        """Raise `Interrupted` if a stop was asked for."""
        if self.signal is not None:
            raise Interrupted(f"stopped at step {step}; --resume goes on from there", self.signal)

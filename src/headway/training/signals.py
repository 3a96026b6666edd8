"""Ctrl-C, SIGTERM and a closed terminal as a flag that is polled, so that work stops at a good moment."""

import os
import signal
import threading
import time
from contextlib import suppress
from types import FrameType, TracebackType

from headway.errors import Interrupted

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
ONE = 0.2
"""Seconds within which several signals are one: `timeout` and other launchers send to a process and to its group."""


class Stopper:
    """While entered, the first SIGINT, SIGTERM or SIGHUP asks for a stop and the second leaves at once.

    While `hasty`, when there is nothing to save yet, the first one leaves at once too and says these words, what to do
    then. A thread of its own sees to leaving: the main one may be in a library for minutes. Outside the main thread it
    does nothing.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self.hasty = ""
        self._before: dict[int, object] = {}
        self._pipe = (-1, -1)
        self._wakeup = -1

    def __enter__(self) -> "Stopper":
        if threading.current_thread() is threading.main_thread():
            self._pipe = os.pipe()
            os.set_blocking(self._pipe[1], False)
            threading.Thread(target=self._watch, args=(self._pipe[0],), daemon=True).start()
            self._wakeup = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
            for number in STOPPING:
                if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                    continue  # started by nohup
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before:
            for number, handler in self._before.items():
                signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.signal itself returned
            signal.set_wakeup_fd(self._wakeup)
            os.close(self._pipe[1])  # which ends the thread

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        self.signal = self.signal or number

    def _watch(self, pipe: int) -> None:
        """Read the number of every signal as it comes, whatever the main thread is doing."""
        first: float | None = None
        while number := os.read(pipe, 1):
            if number[0] not in STOPPING:
                continue
            again = first is not None and time.monotonic() - first > ONE
            first = first or time.monotonic()
            if again or self.hasty:
                told = f"before training began; {self.hasty}".encode() if self.hasty else b"at once"
                cursor = b"\x1b[?25h" if os.isatty(2) else b""  # a live line hides it
                with suppress(OSError):  # the terminal may be gone
                    os.write(2, cursor + b"headway: stopped " + told + b"\n")
                os._exit(128 + number[0])  # checkpoints are whole or absent, so nothing is lost by leaving here
        os.close(pipe)

    def check(self, step: int) -> None:
        """Raise `Interrupted` if a stop was asked for."""
        if self.signal is not None:
            raise interrupted(step, self.signal)


def interrupted(step: int, number: int) -> Interrupted:
    """What is raised when a run stops because it was asked to."""
    return Interrupted(f"stopped at step {step}; --resume goes on from there", number)

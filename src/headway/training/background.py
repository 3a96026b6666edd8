"""Work beside the training loop, one piece at a time."""

import threading
from collections.abc import Callable


class Background:
    """A thread for slow work such as writing a checkpoint; what goes wrong there is raised at the next call.

    The work must leave torch's arithmetic alone: OpenMP gives every thread that computes a team of its own, and as long
    as there are more threads in teams than cores, those of the training loop fall asleep where they should wait.
    """

    def __init__(self) -> None:
        self._running: threading.Thread | None = None
        self._error: Exception | None = None

    def start(self, work: Callable[[], None]) -> None:
        """Begin a piece of work, after the one before has ended."""
        self.wait()
        self._running = threading.Thread(target=self._run, args=(work,), name="headway-background")
        self._running.start()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001  # raised where somebody hears it
            self._error = error

    @property
    def busy(self) -> bool:
        """Whether a piece of work is under way."""
        return self._running is not None and self._running.is_alive()

    def wait(self) -> None:
        """Wait until nothing is under way."""
        if self._running is not None:
            self._running.join()
            self._running = None
        error, self._error = self._error, None
        if error is not None:
            raise error

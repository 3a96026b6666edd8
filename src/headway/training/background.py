"""Work beside the training loop, one piece at a time."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class Background:
    """A thread for slow work such as writing a checkpoint; what goes wrong there is raised at the next call."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "headway-background")
        self._running: Future[None] | None = None

    def start(self, work: Callable[[], None]) -> None:
        """Begin a piece of work, after the one before has ended."""
        self.wait()
        self._running = self._thread.submit(work)

    def wait(self) -> None:
        """Wait until nothing is under way."""
        running, self._running = self._running, None
        if running is not None:
            running.result()

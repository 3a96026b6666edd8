"""What a person sees of a run, on standard error: a live line in a terminal, plain lines anywhere else."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.text import Text

if TYPE_CHECKING:
    from headway.training.trainer import Update


class Terminal:
    """Follows a run; `say` leaves a line, everything else is a live line, or now and then a plain one."""

    def __init__(self, every: int = 50) -> None:
        self.every = every
        self.console = Console(stderr=True, highlight=False)
        self.live = Live(Text(""), console=self.console, refresh_per_second=4, transient=True)
        self._told = ""

    def __enter__(self) -> "Terminal":
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self.live.stop()

    def say(self, line: str) -> None:
        """Show a line that stays; nobody may be left to read it, and no work is lost for that."""
        with suppress(OSError):
            if self.live.is_started:
                self.console.print(Text(line))
            else:
                sys.stderr.write(f"{line}\n")  # in one piece: a signal may end the process between two
                sys.stderr.flush()

    def working(self, what: str, done: int, total: int | None) -> None:
        """Show how far a piece of work is; away from a terminal, only that it began."""
        if self.live.is_started:
            share = f" of {total:,}  {bar(done / total)}" if total else ""
            self.live.update(Text(f"{what}: {done:,}{share}"))
        elif what != self._told:
            self.say(f"{what} ...")
        self._told = what

    def updated(self, update: "Update") -> None:
        """Show the latest update."""
        plain = update.step % self.every == 0 or update.step == 1
        if not plain and not self.live.is_started:
            return
        of = f"/{update.steps}" if update.steps else ""
        until = "left" if update.steps else "to the next validation"
        left = f", {duration(update.seconds_left)} {until}" if update.seconds_left is not None else ""
        line = (
            f"step {update.step}{of}: loss {update.loss:.3f}, {update.tokens_per_second:,.0f} tokens/s, "
            f"learning rate {update.learning_rate:.2e}, epoch {update.epoch + 1}{left}"
        )
        if self.live.is_started:
            self.live.update(Text(line))
        else:
            self.say(line)


def speaks() -> bool:
    """Whether this process is the one that talks, where torchrun has started several on this machine."""
    return "TORCHELASTIC_RUN_ID" not in os.environ or os.environ.get("LOCAL_RANK", "0") == "0"


def bar(share: float, width: int = 30) -> str:
    """A progress bar with its percentage."""
    full = round(width * min(share, 1.0))
    return f"{'━' * full}{'┄' * (width - full)} {100 * share:.0f} %"


def duration(seconds: float) -> str:
    """A time span as people write it."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


@contextmanager
def ended_cleanly() -> Iterator[None]:
    """Let SIGTERM, as `timeout` sends it, remove temporary folders and end worker processes like Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

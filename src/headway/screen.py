"""Where a person follows the work."""

from typing import Protocol, runtime_checkable

from headway.training.trainer import Update


@runtime_checkable
class Screen(Protocol):
    """Where a person follows the work."""

    def say(self, line: str) -> None:
        """Show a line that stays."""
        ...

    def working(self, what: str, done: int, total: int | None) -> None:
        """Show how far a piece of work is."""
        ...

    def updated(self, update: Update) -> None:
        """Show the latest update."""
        ...


class Silent:
    """The screen of a process that leaves speaking to the first one."""

    def say(self, line: str) -> None:
        """Show nothing."""

    def working(self, what: str, done: int, total: int | None) -> None:
        """Show nothing."""

    def updated(self, update: Update) -> None:
        """Show nothing."""

"""What can find outputs: our own engine, or another that stands in for it."""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from headway.search import DecodingConfig, Hypothesis, Request


def nothing() -> None:
    """Check nothing."""


@runtime_checkable
class Backend(Protocol):
    """Finds the outputs of requests."""

    @property
    def longest(self) -> int:
        """The most tokens of a source, without its end symbol."""
        ...

    def search(
        self, requests: Sequence[Request], config: DecodingConfig, *, check: Callable[[], None] = nothing
    ) -> list[list[Hypothesis]]:
        """The best hypotheses for every request, in order; an empty source gets none.

        `check` is called before every batch and may raise to stop.
        """
        ...

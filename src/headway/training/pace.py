"""How fast training goes, and how many steps fit into the time that is left."""

import time


class Pace:
    """The speed of the last updates; it starts anew after a pause."""

    MEMORY = 20
    """Updates looked back on."""
    SURE = 8
    """Updates after which the speed is known well enough to plan by."""

    def __init__(self) -> None:
        self._ticks: list[tuple[float, int]] = []

    def pause(self) -> None:
        """Forget: what comes next is not an update."""
        self._ticks.clear()

    def tick(self, units: int) -> None:
        """An update on this many target tokens is done."""
        self._ticks = [*self._ticks[-self.MEMORY :], (time.monotonic(), units)]

    @property
    def sure(self) -> bool:
        """Whether the speed is known well enough to plan by."""
        return len(self._ticks) > self.SURE

    @property
    def seconds_per_update(self) -> float | None:
        """The mean of late."""
        if len(self._ticks) < 2:
            return None
        return (self._ticks[-1][0] - self._ticks[0][0]) / (len(self._ticks) - 1)

    @property
    def tokens_per_second(self) -> float:
        """Target tokens, 0 while unknown."""
        each = self.seconds_per_update
        units = sum(units for _, units in self._ticks[1:])
        return units / (each * (len(self._ticks) - 1)) if each else 0.0

    def seconds_for(self, updates: int | None) -> float | None:
        """How long so many updates will take, where both are known."""
        each = self.seconds_per_update
        return None if each is None or updates is None else each * updates

    def updates_in(self, seconds: float) -> int:
        """How many updates fit; at least one."""
        each = self.seconds_per_update
        return max(1, int(seconds / each)) if each else 1

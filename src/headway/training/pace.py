"""How fast training goes, and how many steps fit into the time that is left."""

from typing import NamedTuple


class _Tick(NamedTuple):
    time: float
    units: int
    updates: int


class Pace:
    """The speed of the last updates; it starts anew after a pause."""

    MEMORY = 100
    """Ticks looked back on."""
    LATE = 20
    """Ticks of which the speed is shown."""
    SURE = 8
    """Updates after which the speed is known well enough to plan by."""

    def __init__(self) -> None:
        self._ticks: list[_Tick] = []

    def pause(self) -> None:
        """Forget: what comes next is not an update."""
        self._ticks.clear()

    def tick(self, now: float, units: int, updates: int = 1) -> None:
        """Some more updates, on this many target tokens, are done by `now`, in seconds of any clock."""
        self._ticks.append(_Tick(now, units, updates))
        del self._ticks[: -self.MEMORY]

    @property
    def sure(self) -> bool:
        """Whether the speed is known well enough to plan by."""
        return sum(tick.updates for tick in self._ticks[1:]) >= self.SURE

    @property
    def seconds_per_update(self) -> float | None:
        """The mean since the last pause."""
        if len(self._ticks) < 2:
            return None
        return (self._ticks[-1].time - self._ticks[0].time) / sum(tick.updates for tick in self._ticks[1:])

    @property
    def tokens_per_second(self) -> float:
        """Target tokens, 0 while unknown."""
        late = self._ticks[-self.LATE - 1 :]
        if len(late) < 2:
            return 0.0
        return sum(tick.units for tick in late[1:]) / max(late[-1].time - late[0].time, 1e-9)

    def seconds_for(self, updates: int | None) -> float | None:
        """How long so many updates will take, where both are known."""
        each = self.seconds_per_update
        return None if each is None or updates is None else each * updates

    def updates_in(self, seconds: float) -> int:
        """How many updates fit; at least one."""
        each = self.seconds_per_update
        return max(1, int(seconds / each)) if each else 1

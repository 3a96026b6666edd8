"""The feed as one stream of batches that follows the position in a run."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from headway.data.batches import Batch
from headway.training.parallel import Parallel
from headway.training.progress import Progress


@runtime_checkable
class Feed(Protocol):
    """Batches in an order that depends on the seed and the data alone."""

    def epoch(self, number: int, start: int, *, rank: int, world: int) -> tuple[int, Iterator[Batch]]:
        """How many batches an epoch has, and those of one rank from `start` on; all ranks get equally many."""
        ...


@dataclass
class Stream:
    """The feed as one stream that follows the position in the run."""

    feed: Feed
    parallel: Parallel
    length: int = field(default=0, init=False)
    """Batches of the epoch last taken from."""
    _batches: Iterator[Batch] = field(default_factory=lambda: iter(()), init=False)
    _place: tuple[int, int] = field(default=(-1, -1), init=False)

    def take(self, progress: Progress, most: int) -> list[Batch]:
        """This process's next batches of the epoch, `most` of them or what is left."""
        rank, world = self.parallel.rank, self.parallel.world
        if self._place != (progress.epoch, progress.position):
            self.length, self._batches = self.feed.epoch(progress.epoch, progress.position, rank=rank, world=world)
        self._place = (progress.epoch, progress.position + most * world)
        return list(itertools.islice(self._batches, most))

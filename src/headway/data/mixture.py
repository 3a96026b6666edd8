"""Mixtures of corpora, and the runs of neighbouring pairs that an epoch is drawn in."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Mixture:
    """How often the pairs of several corpora, which stand one after the other, are met in an epoch."""

    sizes: tuple[int, ...]
    taken: tuple[int, ...]
    """Pairs of each corpus in an epoch, every repetition counted."""


def mixed(sizes: Sequence[int], weights: Sequence[float], temperature: float) -> Mixture | None:
    """An epoch as long as all corpora together, their shares following the weights, or else size^(1/temperature).

    None where that is every pair once.
    """
    if len(sizes) == 1 or (not weights and temperature == 1.0):
        return None
    # Relative to the largest: what a weight is divided by must not overflow.
    largest = max(weights or sizes)
    shares = [(each / largest) ** (1.0 if weights else 1.0 / temperature) for each in weights or sizes]
    return Mixture(tuple(sizes), tuple(max(1, round(sum(sizes) * share / sum(shares))) for share in shares))


class Runs(NamedTuple):
    """Stretches of neighbouring pairs: `counts` of them from `begins` on, going round within `sizes` from `origins`."""

    origins: Integers
    sizes: Integers
    begins: Integers
    counts: Integers

    @classmethod
    def whole(cls, first: int, pairs: int, run: int) -> "Runs":
        """Every one of so many pairs once, `run` in a run."""
        origins = np.arange(first, first + pairs, run, dtype=np.int64)
        sizes = np.minimum(run, first + pairs - origins)
        return cls(origins, sizes, np.zeros_like(origins), sizes)

    def picked(self, places: Integers) -> "Runs":
        """Some of the runs, in the order of `places`."""
        return Runs(*(column[places] for column in self))


def mixed_runs(mixture: Mixture, run: int, chance: np.random.PCG64) -> Runs:
    """Whole passes over each corpus and a random part of one more; a corpus of one run goes round within it."""
    parts, first = [], 0
    for size, taken in zip(mixture.sizes, mixture.taken, strict=True):
        whole = Runs.whole(first, size, run)
        if len(whole.counts) == 1:
            starts = np.arange(0, taken, run, dtype=np.int64)
            begins = (starts + chance.random_raw() % size) % size
            runs = whole.picked(np.zeros_like(starts))._replace(begins=begins, counts=np.minimum(run, taken - starts))
        else:
            runs = _passes(whole, *divmod(taken, size), chance)
        parts.append(runs)
        first += size
    return Runs(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _passes(whole: Runs, passes: int, rest: int, chance: np.random.PCG64) -> Runs:
    """All runs `passes` times and random ones of `rest` pairs, the last of them in part."""
    order = shuffled(len(whole.counts), chance)
    ends = whole.counts[order].cumsum()
    some = order[: int(np.searchsorted(ends, rest)) + 1] if rest else order[:0]
    runs = whole.picked(np.concatenate([np.tile(np.arange(len(order)), passes), some]))
    if rest:
        runs.counts[-1] -= ends[len(some) - 1] - rest
        runs.begins[-1] = chance.random_raw() % int(runs.sizes[-1])
    return runs


def shuffled(count: int, chance: np.random.PCG64) -> Integers:
    """A random permutation; from raw draws, whose stream numpy promises never to change."""
    return np.argsort(chance.random_raw(count), kind="stable").astype(np.int64)

"""The shape every demo corpus has, and how its sentences are divided into train, valid and test."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from headway.errors import DataError

PATIENCE = 2000
"""Draws in a row that may bring nothing new before a demo is said to be exhausted."""


class Pair(NamedTuple):
    """A sentence and what it becomes."""

    source: str
    target: str


@dataclass(frozen=True)
class Demo:
    """A corpus small enough to learn in minutes, with a baseline to beat."""

    name: str
    train: list[Pair]
    valid: list[Pair]
    test: list[Pair]
    example: str
    """A test sentence worth showing."""
    baseline_name: str
    """What the trivial baseline does, in words."""
    baseline: Callable[[str], str]
    """A trivial baseline a model must beat."""


class Splits(NamedTuple):
    """Train, valid and test: no source and no target of one occurs in another."""

    train: list[Pair]
    valid: list[Pair]
    test: list[Pair]


def divide(
    name: str, draw: Callable[[Random], Pair], *, example: Pair, train: int, valid: int, test: int, seed: int
) -> Splits:
    """Draw distinct pairs, `example` first among those of test.

    Test is drawn first, so it depends on `test` and `seed` alone. Sources never repeat; only within train do targets.
    """
    if test < 1 or valid < 0 or train < 0:
        raise DataError(f"demo {name}: test must be at least 1, train and valid at least 0; ask for other sizes")
    random = Random(seed)
    sources, targets = {example.source}, {example.target}
    tested = [example, *_fresh(name, draw, random, test - 1, sources, targets, repeat=False)]
    validated = _fresh(name, draw, random, valid, sources, targets, repeat=False)
    return Splits(_fresh(name, draw, random, train, sources, targets, repeat=True), validated, tested)


def _fresh(
    name: str,
    draw: Callable[[Random], Pair],
    random: Random,
    count: int,
    sources: set[str],
    targets: set[str],
    *,
    repeat: bool,
) -> list[Pair]:
    """Draw `count` pairs whose source and target are in neither set; `repeat` lets them share targets."""
    pairs: list[Pair] = []
    vain = 0
    while len(pairs) < count:
        pair = draw(random)
        if pair.source in sources or pair.target in targets:
            vain += 1
            if vain > PATIENCE:
                raise DataError(f"demo {name}: no new sentences after {len(pairs)} of {count}; ask for fewer")
            continue
        vain = 0
        pairs.append(pair)
        sources.add(pair.source)
        if not repeat:
            targets.add(pair.target)
    return pairs

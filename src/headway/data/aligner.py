"""Which source token every target token comes from, found by IBM model 1 both ways and the diagonal."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from headway.data.model_one import IdPairs, Translations, learn_translations
from headway.data.store import TokenStore

ITERATIONS = 5
"""Of EM, each way."""
TENSION = 4.0
"""How strongly tokens keep to the diagonal of a pair: 4 is where Dyer et al. (2013, section 2) begin."""
UNKNOWN = 1e-7
"""The probability of a translation that was never seen."""

Ids = Sequence[int] | Int[np.ndarray, " tokens"]


@dataclass(frozen=True, eq=False)
class Table:
    """The translation probabilities of model 1 one way."""

    keys: Int[np.ndarray, " pairs"]
    """The token given times the size of the other vocabulary, plus the token it becomes; in order."""
    levels: Float[np.ndarray, " pairs"]
    """Their log-probabilities."""
    size: int
    """Tokens of the other vocabulary."""

    @classmethod
    def of(cls, found: Translations, size: int) -> "Table":
        """What was learnt, ready to be looked up."""
        keys = found.sources.astype(np.int64) * size + found.targets
        return cls(keys, np.log(np.maximum(found.probabilities, UNKNOWN)), size)

    def __call__(
        self, given: Int[np.ndarray, "#source #target"], other: Int[np.ndarray, "#source #target"]
    ) -> Float[np.ndarray, "source target"]:
        """The log-probability that tokens become others."""
        wanted = given * self.size + other
        places = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return np.where(self.keys[places] == wanted, self.levels[places], np.log(UNKNOWN))


@dataclass(frozen=True, eq=False)
class Aligner:
    """The translation probabilities both ways, by which every target token finds the source token it comes from."""

    forth: Table
    back: Table

    @classmethod
    def learn(
        cls,
        pairs: Callable[[], IdPairs],
        *,
        source_size: int,
        target_size: int,
        progress: Callable[[int], None] = lambda _: None,
    ) -> "Aligner":
        """Learn from the ids of sentence pairs, read twice; `progress` hears of every iteration that is done."""
        forth = learn_translations(
            pairs(), source_size=source_size, target_size=target_size, iterations=ITERATIONS, progress=progress
        )
        back = learn_translations(
            ((target, source) for source, target in pairs()),
            source_size=target_size,
            target_size=source_size,
            iterations=ITERATIONS,
            progress=lambda done: progress(ITERATIONS + done),
        )
        return cls(Table.of(forth, target_size), Table.of(back, source_size))

    def __call__(self, source: Ids, target: Ids) -> Int[np.ndarray, " target"]:
        """The place of the source token from which each target token comes; neither side is empty.

        It is the one with the highest t(target | source)·t(source | target)·exp(-tension·|i/m - j/n|). One way alone,
        source tokens that become nothing collect whatever stands beside them; and model 1 cannot tell two equal tokens
        apart, and knows nothing of those it has not seen.
        """
        read, made = np.asarray(source, np.int64)[:, None], np.asarray(target, np.int64)[None]
        levels = self.forth(read, made) + self.back(made, read)
        rows, columns = ((np.arange(len(side)) + 0.5) / len(side) for side in (source, target))
        found: Int[np.ndarray, " target"] = (levels - TENSION * np.abs(rows[:, None] - columns)).argmax(0)
        return found

    def codes(self, source: Ids, target: Ids) -> Int[np.ndarray, " target"]:
        """The links of a pair as `data/alignment.py` stores them: the target's place above the source's 16 bits."""
        if not len(source) or not len(target):
            return np.zeros(0, np.int64)
        return (np.arange(len(target)) << 16) + self(source, target)


def stored_pairs(store: TokenStore, at_once: int = 1024) -> Iterator[tuple[list[int], list[int]]]:
    """The ids of all pairs of a store, in order."""
    for first in range(0, len(store), at_once):
        chosen = np.arange(first, min(first + at_once, len(store)))
        sides = [store.gather("source", chosen), store.gather("target", chosen)]
        cut = [np.split(tokens, lengths.cumsum()[:-1]) for tokens, lengths in sides]
        yield from ((source.tolist(), target.tolist()) for source, target in zip(*cut, strict=True))

"""IBM model 1: how likely every source token becomes every target token, learnt from pairs in bounded memory."""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from headway.errors import DataError

MOST_LINKS = 1 << 27
"""Links between the tokens of pairs that are learnt from, at four bytes each: 200,000 pairs of 25 tokens.

Of a larger corpus every third pair is taken, or every ninth, and so on."""
MOST_ENTRIES = 1 << 23
"""Co-occurrences held, at most 100 bytes each: of more, every source token keeps those that are most its own."""
THINNED = 3
"""Odd, as long and short sentences take turns in some corpora."""
AT_ONCE = 1 << 20
"""Links gone through at once; a single pair with more of them is left out."""

IdPairs = Iterable[tuple[Sequence[int], Sequence[int]]]
"""The ids of sources and targets."""


class Translations(NamedTuple):
    """The translation probabilities t(target | source) that are not 0, by source and by target."""

    sources: Int[np.ndarray, " pairs"]
    targets: Int[np.ndarray, " pairs"]
    probabilities: Float[np.ndarray, " pairs"]
    frequencies: Int[np.ndarray, " vocabulary"]
    """How often every target token occurs."""


def learn_translations(
    pairs: IdPairs,
    *,
    source_size: int,
    target_size: int,
    iterations: int,
    progress: Callable[[int], None] = lambda _: None,
) -> Translations:
    """Estimate the translation probabilities of tokens by EM (Brown et al. 1993, section 4.1).

    A source has one token more, which stands for no word; its translations are not among the result. The same pairs
    give the same probabilities. Pairs with an empty side teach nothing. `progress` hears of every iteration done.
    """
    corpus = _read(pairs, source_size, target_size)
    keys = _together(corpus)
    links = [links.found(keys) for links in corpus.links()]
    sources, targets = np.divmod(keys, target_size)
    probabilities = np.ones(len(keys))
    for iteration in range(iterations):
        probabilities = _reestimated(links, sources, probabilities)
        progress(iteration + 1)
    real = (sources < source_size) & (probabilities > 0)
    return Translations(sources[real], targets[real], probabilities[real], corpus.frequencies)


def ranked(
    rows: Int[np.ndarray, " pairs"], values: Float[np.ndarray, " pairs"]
) -> tuple[Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"]]:
    """An order by row and, within it, by falling value, with the rank in its row of everything so ordered.

    Of equal values the one that stands before stays before.
    """
    order = np.lexsort((-values, rows))
    lengths = np.bincount(rows)
    starts = np.cumsum(lengths) - lengths
    return order, np.arange(len(order)) - starts[rows[order]]


class _Links(NamedTuple):
    """Every target token of some pairs with each source token of its pair, target by target."""

    keys: Int[np.ndarray, " pairs"]
    """The source token times the size of the target vocabulary, plus the target token; or places in a table of such."""
    widths: Int[np.ndarray, " tokens"]
    """How many there are for each target token."""

    def found(self, keys: Int[np.ndarray, " pairs"]) -> "_Links":
        """The places of the links in the sorted `keys`; the place after the last for those that are not there."""
        places = np.searchsorted(keys, self.keys)
        there = keys[np.minimum(places, len(keys) - 1)] == self.keys
        return _Links(np.where(there, places, len(keys)).astype(np.int32), self.widths.astype(np.int32))


@dataclass(frozen=True, eq=False)
class _Corpus:
    """Sentence pairs with all tokens in a row, and where each sentence begins and ends."""

    sources: Int[np.ndarray, " source"]
    source_bounds: Int[np.ndarray, " bounds"]
    targets: Int[np.ndarray, " target"]
    target_bounds: Int[np.ndarray, " bounds"]
    target_size: int

    @property
    def frequencies(self) -> Int[np.ndarray, " vocabulary"]:
        """How often every target token occurs."""
        return np.bincount(self.targets, minlength=self.target_size)

    def links(self) -> Iterator[_Links]:
        """All links of all pairs, at most `AT_ONCE` in one piece."""
        products = np.cumsum(np.diff(self.source_bounds) * np.diff(self.target_bounds))
        first = 0
        while first < len(products):
            before = int(products[first - 1]) if first else 0
            last = int(np.searchsorted(products, before + AT_ONCE, side="right"))
            yield self._links_of(first, last)
            first = last

    def _links_of(self, first: int, last: int) -> _Links:
        lengths = np.diff(self.target_bounds[first : last + 1])
        widths = np.repeat(np.diff(self.source_bounds[first : last + 1]), lengths)
        begins = np.repeat(self.source_bounds[first:last], lengths)  # where the source of each target token begins
        offsets = begins - (np.cumsum(widths) - widths)
        sources = self.sources[np.repeat(offsets, widths) + np.arange(int(widths.sum()))]
        targets = self.targets[self.target_bounds[first] : self.target_bounds[last]]
        return _Links(sources.astype(np.int64) * self.target_size + np.repeat(targets, widths), widths)


class _Side:
    """One side of the pairs while they are read: all tokens in a row, and how many each sentence has."""

    def __init__(self) -> None:
        self.tokens, self.lengths = array("i"), array("i")

    def add(self, ids: Sequence[int]) -> None:
        self.tokens.extend(ids)
        self.lengths.append(len(ids))

    def thin(self) -> None:
        """Keep every third sentence alone."""
        lengths, tokens = (np.frombuffer(each, np.int32) for each in (self.lengths, self.tokens))
        kept = np.arange(len(lengths)) % THINNED == 0
        self.tokens = array("i", tokens[np.repeat(kept, lengths)].tobytes())
        self.lengths = array("i", lengths[kept].tobytes())

    def arrays(self) -> tuple[Int[np.ndarray, " tokens"], Int[np.ndarray, " bounds"]]:
        """All tokens, and where each sentence begins and ends."""
        return np.frombuffer(self.tokens, np.int32), np.concatenate(([0], np.cumsum(self.lengths, dtype=np.int64)))


def _read(pairs: IdPairs, source_size: int, target_size: int) -> _Corpus:
    """Hold the pairs that are learnt from, each source led by the token that stands for no word."""
    sources, targets, usable, step, total = _Side(), _Side(), 0, 1, 0
    for number, (source, target) in enumerate(pairs, start=1):
        links = (len(source) + 1) * len(target)
        if not len(source) or not 0 < links <= AT_ONCE:
            continue
        usable += 1
        if (usable - 1) % step:
            continue
        for ids, size in ((source, source_size), (target, target_size)):
            if min(ids) < 0 or max(ids) >= size:
                raise DataError(f"pair {number}: an id is not one of {size} tokens; use the tokenizers they belong to")
        sources.add([source_size, *source])
        targets.add(target)
        total += links
        if total > MOST_LINKS:
            sources.thin()
            targets.thin()
            step *= THINNED
            total = int(np.dot(sources.lengths, targets.lengths))
    if not usable:
        raise DataError("pairs: none has tokens on both sides; give pairs to learn from")
    return _Corpus(*sources.arrays(), *targets.arrays(), target_size)


class _Table(NamedTuple):
    """What occurs together, in order of its keys, and how often."""

    keys: Int[np.ndarray, " pairs"]
    counts: Int[np.ndarray, " pairs"]


def _together(corpus: _Corpus) -> Int[np.ndarray, " pairs"]:
    """The keys of what occurs together, in order and at most `MOST_ENTRIES` of them."""
    table, waiting = _Table(np.empty(0, np.int64), np.empty(0, np.int32)), []
    for links in corpus.links():
        keys, counts = np.unique(links.keys, return_counts=True)
        waiting.append(_Table(keys, counts.astype(np.int32)))
        if sum(len(each.keys) for each in waiting) > max(len(table.keys) // 4, AT_ONCE):  # each merge takes time
            table = _pruned(_merged([table, *waiting]), corpus)
            waiting = []
    return _pruned(_merged([table, *waiting]), corpus).keys


def _merged(tables: Sequence[_Table]) -> _Table:
    """One table of all keys, each with the sum of its counts."""
    keys = np.concatenate([table.keys for table in tables])
    order = np.argsort(keys, kind="stable")  # which is fast where parts are in order already
    keys, counts = keys[order], np.concatenate([table.counts for table in tables])[order]
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    return _Table(keys[first], np.add.reduceat(counts, first, dtype=np.int32))


def _pruned(table: _Table, corpus: _Corpus) -> _Table:
    """The table itself or, where it is too large, half of what is allowed: the best of every source token.

    The best are those of the highest Dice coefficient. The longest rows are cut to one length, short ones not at all.
    """
    if len(table.keys) <= MOST_ENTRIES:
        return table
    sources, targets = np.divmod(table.keys, corpus.target_size)
    occurring = np.bincount(corpus.sources)[sources] + corpus.frequencies[targets]
    order, ranks = ranked(sources, table.counts / occurring)
    lengths = np.bincount(sources)
    widths = range(1, int(lengths.max()) + 1)
    width = bisect_right(widths, MOST_ENTRIES // 2, key=lambda width: int(np.minimum(lengths, width).sum()))
    kept = np.sort(order[ranks < max(1, width)])
    return _Table(table.keys[kept], table.counts[kept])


def _reestimated(
    links: Sequence[_Links], sources: Int[np.ndarray, " pairs"], probabilities: Float[np.ndarray, " pairs"]
) -> Float[np.ndarray, " pairs"]:
    """One iteration of EM: share every target token out among its sources, then divide by what each source got."""
    probabilities = np.append(probabilities, 0.0)  # of what was pruned
    expected = np.zeros(len(probabilities))
    for places, widths in links:
        shares = probabilities[places]
        totals = np.add.reduceat(shares, np.cumsum(widths) - widths)
        shares /= np.repeat(np.where(totals > 0, totals, 1.0), widths)
        np.add.at(expected, places, shares)
    received = np.bincount(sources, expected[:-1])[sources]
    return np.divide(expected[:-1], received, out=np.zeros(len(sources)), where=received > 0)

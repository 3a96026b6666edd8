"""The plan of an epoch: which pairs make which batch, a function of seed, epoch and lengths alone."""

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from headway.data.arrays import Lengths, Numbers, StoredArray, blocks
from headway.data.mixture import Integers, Mixture, Runs, mixed_runs, shuffled
from headway.data.store import TokenStore
from headway.disk import make_folder, plain_file, remove_own, replacing, sweep, writing
from headway.errors import ConfigError, DataError

Layout = Literal["padded", "packed"]

NAME = re.compile(r"plan-[0-9a-f]{32}")
"""What the file of a plan is called."""
_VERSION = 1  # part of every plan's name: raised when the same inputs would give another plan
_RUN = 512  # pairs that stay neighbours on disk, so that a block is read in long stretches
_BLOCK = 128  # runs sorted together
_KEPT = 4  # plans left in the folder; any can be computed again
_INTEGER = np.dtype("<i8")
_PIECE = 1 << 20  # bytes of a plan that are hashed at once


@dataclass(frozen=True)
class Plan:
    """The batches of one epoch in order; a position in the epoch is one integer."""

    order: Numbers
    """The pairs in the order of training: every one once, unless a mixture or a curriculum says otherwise."""
    cuts: Numbers
    """Where each batch starts in `order`, and last where they end."""
    layout: Layout
    budget: int

    def __len__(self) -> int:
        return len(self.cuts) - 1

    def __getitem__(self, position: int) -> Integers:
        """The pairs of one batch."""
        if not 0 <= position < len(self):
            raise IndexError(f"batch {position} of {len(self)}")
        pairs: Integers = self.order[slice(*self.cuts[position : position + 2].tolist())]
        return pairs


def plan_epoch(
    source_lengths: Lengths,
    target_lengths: Lengths,
    *,
    seed: int,
    epoch: int,
    budget: int,
    layout: Layout,
    folder: Path,
    mixture: Mixture | None = None,
    curriculum: int = 0,
) -> Plan:
    """Compute the plan of an epoch, or reuse it from `folder`.

    `budget` limits the cells of either side of a batch, the start or end symbol of each sentence included. Epoch k of
    the first `curriculum` takes only pairs whose longer side is among the shortest (k + 1) / `curriculum` of all, ties
    included. Memory does not grow with the corpus: blocks of runs of neighbouring pairs are sorted and cut one at a
    time.
    """
    if len(source_lengths) == 0:
        raise DataError("corpus: no pair left to train on; check the files and the length limits")
    limit = _limit(source_lengths, target_lengths, (epoch + 1) / curriculum) if epoch + 1 < curriculum else None
    digest = _digest(source_lengths, target_lengths, budget)
    digest.update(f"{_VERSION} {seed} {epoch} {budget} {layout} {len(source_lengths)}".encode())
    if mixture is not None or limit is not None:  # plans without keep the names they always had
        digest.update(f" {mixture} {limit}".encode())
    path = folder / f"plan-{digest.hexdigest()[:32]}"
    plan = _reopened(path, layout, budget)
    if plan is None:
        draw = _Draw(source_lengths, target_lengths, mixture, limit)
        with writing(folder, "free space"):
            make_folder(folder)
        _write(path, _blocks(draw, seed, epoch, budget, layout))
        _prune(folder, path)
        plan = _reopened(path, layout, budget)
        if plan is None:
            raise ConfigError(f"training.curriculum: {curriculum} leaves no pair for epoch {epoch + 1}; lower it")
    return plan


def fill(plan: Plan, store: TokenStore) -> float:
    """The share of the cells of all batches, both sides together, that hold a token rather than padding."""
    real = cells = 0
    both = np.asarray(store.source_lengths), np.asarray(store.target_lengths)
    for position in range(len(plan)):
        pairs = plan[position]
        for lengths in both:
            sizes = lengths[pairs].astype(np.int64) + 1
            real += int(sizes.sum())
            cells += int(sizes.sum() if plan.layout == "packed" else sizes.max() * len(sizes))
    return real / cells


def _digest(source: Lengths, target: Lengths, budget: int) -> Any:
    """Start a hash with all lengths, refusing a sentence that no batch can hold."""
    digest = hashlib.sha256()
    longest = 0
    for both in zip(blocks(source), blocks(target), strict=True):
        for block in both:
            digest.update(block.astype("<i4", copy=False).tobytes())
            longest = max(longest, int(block.max()))
    if longest + 1 > budget:
        raise ConfigError(
            f"batch tokens fewer than the longest sentence: {budget} for one of {longest + 1} with its end symbol; "
            "raise the batch tokens or lower the length limit"
        )
    return digest


class _Limit(NamedTuple):
    """The most tokens of the longer side in an epoch, and the share of all pairs that have no more."""

    longest: int
    share: float


def _limit(source: Lengths, target: Lengths, share: float) -> _Limit:
    """The shortest length that at least `share` of all pairs keep to."""
    counts = np.zeros(0, np.int64)
    for both in zip(blocks(source), blocks(target), strict=True):
        longer = np.maximum(*both)
        found = np.bincount(longer, minlength=len(counts))
        found[: len(counts)] += counts
        counts = found
    reached = counts.cumsum() / len(source)
    longest = int(np.searchsorted(reached, share))
    return _Limit(longest, float(reached[longest]))


class _Draw(NamedTuple):
    """What an epoch takes its pairs from."""

    source: Lengths
    target: Lengths
    mixture: Mixture | None
    limit: _Limit | None

    def read(self, runs: Runs) -> tuple[Integers, Integers]:
        """The pairs of some runs that are not too long, and their sizes with one control symbol."""
        found, sizes = [], []
        for origin, size, begin, count in zip(*(column.tolist() for column in runs), strict=True):
            places = (begin + np.arange(count)) % size
            sides = [lengths[origin : origin + size].astype(np.int64)[places] for lengths in (self.source, self.target)]
            pairs, both = origin + places, np.stack(sides)
            if self.limit is not None:
                short = both.max(axis=0) <= self.limit.longest
                pairs, both = pairs[short], both[:, short]
            found.append(pairs)
            sizes.append(both)
        return np.concatenate(found), np.concatenate(sizes, axis=1) + 1


def _blocks(draw: _Draw, seed: int, epoch: int, budget: int, layout: Layout) -> Iterator[tuple[Integers, Integers]]:
    """Every block's pairs in the order of training, with the sizes of its batches."""
    chance = np.random.PCG64(int.from_bytes(hashlib.sha256(f"{seed} {epoch}".encode()).digest(), "big"))
    runs = Runs.whole(0, len(draw.source), _RUN) if draw.mixture is None else mixed_runs(draw.mixture, _RUN, chance)
    runs = runs.picked(shuffled(len(runs.counts), chance))
    block = _BLOCK if draw.limit is None else int(_BLOCK / draw.limit.share)  # as many pairs where some are left out
    for first in range(0, len(runs.counts), block):
        pairs, sizes = draw.read(runs.picked(np.arange(first, min(first + block, len(runs.counts)))))
        order = shuffled(len(pairs), chance)
        pairs, sizes = pairs[order], sizes[:, order]
        if layout == "packed":
            yield pairs, _cut_packed(sizes, budget)
        else:
            order = _by_length(sizes)
            counts = _cut_padded(sizes[:, order].max(axis=0), budget)
            yield _batches_shuffled(pairs[order], counts, chance)


def _by_length(sizes: Integers) -> Integers:
    """Order by the longer side, then by how much longer the source is, up and down in turns; ties stay random.

    The difference keeps long sources apart from long targets, so that neither side pads the other; turning round keeps
    it steady where the longer side grows by one, so that a batch across that step is as full as the others.
    """
    longer, difference = sizes.max(axis=0), sizes[0] - sizes[1]
    return np.lexsort((np.where(longer % 2, difference, -difference), longer))


def _cut_padded(sizes: Integers, budget: int) -> Integers:
    """How many rows each batch takes, when rows times the longest may not exceed the budget; `sizes` ascend."""
    counts, start = [], 0
    while start < len(sizes):
        window = sizes[start : start + budget // int(sizes[start])]
        cells = window * np.arange(1, len(window) + 1)
        counts.append(int(np.searchsorted(cells, budget, side="right")))
        start += counts[-1]
    return np.array(counts, dtype=np.int64)


def _cut_packed(sizes: Integers, budget: int) -> Integers:
    """How many sentences each batch takes, when the tokens of neither side may exceed the budget."""
    ends = sizes.cumsum(axis=1)
    counts, start = [], 0
    before = np.zeros(2, dtype=np.int64)
    while start < sizes.shape[1]:
        stop = min(int(np.searchsorted(ends[side], before[side] + budget, side="right")) for side in (0, 1))
        counts.append(stop - start)
        start, before = stop, ends[:, stop - 1]
    return np.array(counts, dtype=np.int64)


def _batches_shuffled(pairs: Integers, counts: Integers, chance: np.random.PCG64) -> tuple[Integers, Integers]:
    order = shuffled(len(counts), chance)
    starts = (counts.cumsum() - counts)[order]
    counts = counts[order]
    shift = np.repeat(starts - (counts.cumsum() - counts), counts)
    return pairs[shift + np.arange(len(pairs))], counts


def _write(path: Path, blocks: Iterator[tuple[Integers, Integers]]) -> None:
    """Write a plan as one file: the order, the cuts, how many of each, and the sha256 of all that.

    Several processes may do so at once: all of them write the same.
    """
    with replacing(path) as file:
        digest, order, cuts = hashlib.sha256(), 0, [np.zeros(1, _INTEGER)]

        def write(values: Integers) -> None:
            content = values.astype(_INTEGER, copy=False).tobytes()
            file.write(content)
            digest.update(content)

        for pairs, counts in blocks:
            write(pairs)
            cuts.append(counts.cumsum() + order)
            order += len(pairs)
        write(np.concatenate(cuts))
        write(np.array([order, sum(map(len, cuts))], _INTEGER))
        file.write(digest.digest())


def _reopened(path: Path, layout: Layout, budget: int) -> Plan | None:
    """The plan in a file, verified; None where there is none that is whole."""
    if not plain_file(path):
        return None
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size - hashlib.sha256().digest_size
        digest, last = hashlib.sha256(), b""
        for start in range(0, size, _PIECE):
            piece = file.read(min(_PIECE, size - start))
            digest.update(piece)
            last = last[-16:] + piece
        if size < 16 or file.read() != digest.digest():
            return None
    pairs, cuts = np.frombuffer(last[-16:], _INTEGER).tolist()
    if size != _INTEGER.itemsize * (pairs + cuts + 2) or cuts < 2:
        return None
    order = StoredArray(path, _INTEGER, size=pairs)
    return Plan(order, StoredArray(path, _INTEGER, first=pairs * _INTEGER.itemsize, size=cuts), layout, budget)


def _prune(folder: Path, newest: Path) -> None:
    """Remove all but the last few plans; one in use stays readable until it is closed."""
    sweep(folder)
    ages = []
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # another process may be pruning as well
            if NAME.fullmatch(path.name) and plain_file(path) and path != newest:
                ages.append((path.stat().st_mtime, path))
    for _, path in sorted(ages, reverse=True)[_KEPT - 1 :]:
        with suppress(FileNotFoundError):
            remove_own(path)

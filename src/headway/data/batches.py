"""Batches of token tensors, gathered from the store ahead of the training loop."""

import math
import queue
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor

from headway.data.alignment import Alignment
from headway.data.dropout import BpeDropout
from headway.data.plan import Layout, Plan
from headway.data.store import Side, TokenStore, ranges
from headway.data.tokenizer import Tokenizer
from headway.data.word_dropout import WordDropout
from headway.sequences import Sequences

UNCOUNTED = -1
"""The label of a cell that fills a batch up and does not count."""


@dataclass(frozen=True)
class Batch:
    """Sentence pairs as a model takes them: source with its end, target after its start, and what is to come next."""

    source: Sequences
    target: Sequences
    labels: Int[Tensor, "*batch time"]
    """The target shifted by one: its tokens and the end symbol; cells of padding hold the padding id."""
    units: int
    """Labels that count, known without asking the device."""
    alignment: Bool[Tensor, "batch target source"] | None = None
    """Which cells of the source each label translates, of a padded batch whose word alignments are known."""

    @property
    def pairs(self) -> int:
        """How many sentence pairs."""
        return len(self.source.lengths)

    @property
    def written(self) -> Sequences:
        """The target tokens alone, with neither start nor end symbol, of a padded batch."""
        target = self.target
        return Sequences(target.tokens[:, 1:], target.lengths - 1, target.longest - 1, target.full)

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on another device."""
        labels = self.labels.to(device, non_blocking=True)
        alignment = None if self.alignment is None else self.alignment.to(device, non_blocking=True)
        return Batch(self.source.to(device), self.target.to(device), labels, self.units, alignment)

    def repeated(self, times: int) -> "Batch":
        """All the pairs, then all of them again, `times` over."""
        labels = self.labels.repeat(times, *[1] * (self.labels.dim() - 1))
        alignment = None if self.alignment is None else self.alignment.repeat(times, 1, 1)
        return Batch(self.source.repeated(times), self.target.repeated(times), labels, times * self.units, alignment)


@dataclass(frozen=True)
class Resegment:
    """Leaves words out of stored sources and segments sentences anew, as a function of seed, epoch and pair alone."""

    source: BpeDropout | None
    target: BpeDropout | None
    seed: int
    epoch: int
    longest: int | None = None
    """A sentence that would grow beyond this keeps its stored segmentation."""
    words: WordDropout | None = None
    """What leaves out words of the source."""

    def __call__(self, side: Side, pair: int, ids: NDArray[np.int64]) -> list[int]:
        """The new ids of one sentence."""
        if self.words is not None and side == "source":
            ids = self.words(ids, random.Random(f"{self.seed} {self.epoch} {pair} words"))
        dropout = self.source if side == "source" else self.target
        stored: list[int] = ids.tolist()
        if dropout is None:
            return stored
        chance = random.Random(f"{self.seed} {self.epoch} {pair} {side}")
        symbols = set(dropout.tokenizer.tags.values())
        tags = [token for token in stored if token in symbols]  # they stand first, and are no text
        anew = tags + dropout.encode(dropout.tokenizer.decode(stored), chance)
        return stored if self.longest is not None and len(anew) > self.longest else anew


def collate(
    store: TokenStore,
    pairs: NDArray[np.int64],
    source: Tokenizer,
    target: Tokenizer,
    layout: Layout,
    resegment: Resegment | None = None,
    alignment: Alignment | None = None,
) -> Batch:
    """Gather the pairs into one batch, a padded one of stored segmentation with their alignment."""
    read = _Side.gather(store, "source", pairs, layout, resegment)
    written = _Side.gather(store, "target", pairs, layout, resegment)
    labels = written.laid_out(target.padding, end=target.end)
    linked = None
    if alignment is not None and layout == "padded" and resegment is None:
        linked = torch.from_numpy(alignment.mask(pairs, written.shape[1], read.shape[1]))
    return Batch(
        read.sequences(read.laid_out(source.padding, end=source.end)),
        written.sequences(written.laid_out(target.padding, start=target.start)),
        torch.from_numpy(labels),
        int(written.sizes.sum()),
        linked,
    )


def batches(
    store: TokenStore,
    plan: Plan,
    source: Tokenizer,
    target: Tokenizer,
    *,
    start: int = 0,
    rank: int = 0,
    world: int = 1,
    resegment: Resegment | None = None,
    alignment: Alignment | None = None,
    ahead: int = 4,
) -> Iterator[Batch]:
    """The batches of a plan at positions `start + rank`, `start + rank + world` and so on, `ahead` made in advance.

    All ranks get equally many: one whose last position lies beyond the plan repeats that of rank 0, with no units.
    A thread makes them; it ends when the iterator is exhausted, closed or dropped, and its errors are raised here.
    """

    def made() -> Iterator[Batch]:
        for first in range(start, len(plan), world):
            own = first + rank < len(plan)
            pairs = plan[first + rank if own else first]
            batch = collate(store, pairs, source, target, plan.layout, resegment, alignment)
            yield batch if own else replace(batch, units=0)

    return _ahead(made(), ahead)


@dataclass(frozen=True)
class _Side:
    """One side of a batch before it is laid out: its tokens one after the other, and the cell of each."""

    tokens: NDArray[np.int64]
    sizes: NDArray[np.int64]
    """Cells of every sentence: its tokens and one control symbol."""
    starts: NDArray[np.int64]
    cells: NDArray[np.int64]
    shape: tuple[int, ...]

    @classmethod
    def gather(
        cls, store: TokenStore, side: Side, pairs: NDArray[np.int64], layout: Layout, resegment: Resegment | None
    ) -> "_Side":
        tokens, lengths = store.gather(side, pairs)
        if resegment is not None:
            sentences = np.split(tokens, lengths.cumsum()[:-1])
            anew = [resegment(side, pair, ids) for pair, ids in zip(pairs.tolist(), sentences, strict=True)]
            lengths = np.fromiter(map(len, anew), np.int64, len(anew))
            tokens = np.fromiter(chain.from_iterable(anew), np.int64, int(lengths.sum()))
        sizes = lengths + 1
        width = int(sizes.max())
        packed = layout == "packed"
        starts = sizes.cumsum() - sizes if packed else np.arange(len(sizes)) * width
        shape = (int(sizes.sum()),) if packed else (len(sizes), width)
        return cls(tokens, sizes, starts, ranges(starts, lengths), shape)

    def laid_out(self, padding: int, *, start: int | None = None, end: int | None = None) -> NDArray[np.int64]:
        """The tokens with either `start` before or `end` after each sentence."""
        flat = np.full(math.prod(self.shape), padding, dtype=np.int64)
        flat[self.cells + (start is not None)] = self.tokens
        if start is not None:
            flat[self.starts] = start
        if end is not None:
            flat[self.starts + self.sizes - 1] = end
        return flat.reshape(self.shape)

    def sequences(self, tokens: NDArray[np.int64]) -> Sequences:
        longest = int(self.sizes.max())
        full = tokens.ndim == 1 or int(self.sizes.min()) == longest
        return Sequences(torch.from_numpy(tokens), torch.from_numpy(self.sizes), longest, full)


def _ahead(items: Iterator[Batch], limit: int) -> Iterator[Batch]:
    ready: queue.SimpleQueue[Batch | BaseException | None] = queue.SimpleQueue()
    room = threading.Semaphore(limit)
    stopped = threading.Event()

    def work() -> None:
        item: Batch | BaseException | None = None
        while room.acquire() and not stopped.is_set():
            try:
                item = next(items, None)
            except BaseException as error:  # noqa: BLE001 - raised again by the consumer
                item = error
            ready.put(item)
            if not isinstance(item, Batch):
                return

    thread = threading.Thread(target=work, name="headway-batches", daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not None:
            room.release()
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stopped.set()
        room.release()
        thread.join()

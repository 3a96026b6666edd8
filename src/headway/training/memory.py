"""When memory runs out: batches split in two, and the largest budget that fits."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from headway.data.batches import Batch
from headway.errors import ConfigError, out_of_memory
from headway.runtime.memory import free_memory, own_memory
from headway.sequences import Sequences
from headway.training.optimiser import Optimiser


def cells(batch: Batch) -> int:
    """The cells of a batch on its larger side."""
    return max(batch.source.tokens.numel(), batch.target.tokens.numel())


def parts(batch: Batch, limit: int | None) -> Iterator[Batch]:
    """The batch in as many parts as it takes for each to have fewer cells than `limit`, but never half a pair."""
    if limit is None or cells(batch) < limit or batch.pairs == 1:
        yield batch
    else:
        for half in halves(batch):
            yield from parts(half, limit)


def halves(batch: Batch) -> tuple[Batch, Batch]:
    """The first and the second half of the pairs."""
    middle = batch.pairs // 2
    return _some(batch, 0, middle), _some(batch, middle, batch.pairs)


def _some(batch: Batch, start: int, end: int) -> Batch:
    target, labels = batch.target, batch.labels
    if target.packed:
        first, last = target.bounds[[start, end]].tolist()
        labels = labels[first:last]
    else:
        labels = labels[start:end, : int(target.lengths[start:end].max())]
    target = _sentences(target, start, end)
    units = int(target.lengths.sum()) if batch.units else 0
    source, links = _sentences(batch.source, start, end), batch.alignment
    if links is not None:
        links = links[start:end, : target.longest, : source.longest]
    return replace(batch, source=source, target=target, labels=labels, units=units, alignment=links)


def _sentences(given: Sequences, start: int, end: int) -> Sequences:
    lengths = given.lengths[start:end]
    longest = int(lengths.max())
    if given.packed:
        first, last = given.bounds[[start, end]].tolist()
        return Sequences(given.tokens[first:last], lengths, longest, True)
    return Sequences(given.tokens[start:end, :longest], lengths, longest, int(lengths.min()) == longest)


PROCESS = Path("/proc/self")
SLACK = {"cuda": 0.9, "cpu": 0.5}
"""The share of the free memory that may be filled, by kind of device: a CPU's is shared with the system."""


def largest_budget(peak: Callable[[int], int], *, smallest: int, most: int, room: int) -> int:
    """The most cells of a batch, between `smallest` and `most`, with which memory stays below `room` bytes.

    `peak` tries a batch of so many cells and says how many bytes were in use at most, or raises where memory ran out.
    Two small batches tell what a cell takes; the answer then has been tried, and made smaller until it fitted.
    """
    near, far = smallest, min(4 * smallest, most)
    if far <= near:
        return near
    try:
        low, high = peak(near), peak(far)
    except RuntimeError as error:
        if not out_of_memory(error):
            raise
        return near
    cell = max((high - low) / (far - near), 1.0)
    found = int(min(most, far + max(room - high, 0) / cell))
    while found > near:
        try:
            if peak(found) <= room:
                return found
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
        found = max(near, int(0.9 * found))
    return near


@dataclass(frozen=True)
class Probe:
    """Tries batches on a device: forward, backward and an update that moves nothing."""

    forward: nn.Module
    optimiser: Optimiser
    arithmetic: Callable[[], AbstractContextManager[object]]
    device: torch.device
    longest: int
    """Tokens of the longest sentence with its end symbol: attention takes most memory where sentences are long."""
    packed: bool

    @property
    def room(self) -> int:
        """Bytes that may be in use at most."""
        if self.device.type == "cuda":
            free, _ = torch.cuda.mem_get_info(self.device)
            return int(SLACK["cuda"] * (free + torch.cuda.memory_reserved(self.device)))
        return (own_memory("VmRSS") or 0) + int(SLACK["cpu"] * (free_memory() or 0))

    def __call__(self, count: int) -> int:
        """The bytes in use at most while a batch of so many cells is learnt from."""
        self._forget_peak()
        self.optimiser.zero_grad()
        batch = self._batch(count).to(self.device)
        with self.arithmetic():
            loss = self.forward(batch, 1 << 40)  # late, when scheduled sampling has begun
        (loss.total / batch.units).backward()
        self.optimiser.step(0.0)
        del loss
        self.optimiser.zero_grad()
        if self.device.type == "cuda":
            return torch.cuda.max_memory_reserved(self.device)
        return own_memory("VmHWM") or 0

    def _forget_peak(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self.device)
        elif PROCESS.is_dir():
            (PROCESS / "clear_refs").write_text("5")
        else:
            raise ConfigError('training.batch_tokens: "auto" needs a GPU or Linux, to see what is used; give a number')

    def _batch(self, count: int) -> Batch:
        sentences = [[1] * self.longest] * max(1, count // self.longest)
        laid_out = Sequences.pack(sentences) if self.packed else Sequences.pad(sentences, 0)
        linked = None if self.packed else torch.ones(len(sentences), self.longest, self.longest, dtype=torch.bool)
        return Batch(laid_out, laid_out, laid_out.tokens, laid_out.tokens.numel(), linked)

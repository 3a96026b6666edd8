"""Updates captured in CUDA graphs: forward and backward pass, clipping and Adam as one launch.

A graph does the same work on the same memory whenever it is replayed, so a packed batch is filled up to one of a few
fixed sizes with sentences that do not count. Nothing is asked of the device between two updates; an update whose
gradient is not finite leaves the weights as they are without the host being asked.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from headway.data.batches import UNCOUNTED, Batch
from headway.errors import out_of_memory
from headway.sequences import Sequences
from headway.training.optimiser import Optimiser

SIZES = 8
"""Sizes a side of a batch is rounded up to, in equal steps."""
TRAYS = 8
"""Batches that may be on their way to the device."""
FILLER = 32
"""Tokens at most of a sentence that fills a batch up."""
UNSETTLED = 64
"""Updates whose results may wait to be read."""


class Room(NamedTuple):
    """Cells of either side of a batch, sentences, and tokens of the longest."""

    source: int
    target: int
    sentences: int
    longest: int


class Outcome(NamedTuple):
    """What an update found: the surprise of all its tokens, and the length of the gradient before clipping."""

    surprise: float
    norm: float


@dataclass
class CapturedUpdates:
    """Takes whole updates by replaying graphs, one for every size of batch."""

    forward: nn.Module
    optimiser: Optimiser
    arithmetic: Callable[[], AbstractContextManager[object]]
    device: torch.device
    clip: float
    """The longest gradient let through unscaled; 0 lets all through."""
    budget: int
    """Cells of a batch on its larger side at most."""
    longest: int
    """Tokens of a sentence at most."""
    failed: bool = field(default=False, init=False)
    """Memory ran out while capturing: updates must be taken another way."""
    _graphs: dict[Room, "_Graph"] = field(default_factory=dict, init=False)
    _unsettled: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._held = torch.ones((), device=self.device)
        """1 while no weight may move."""
        self._results = torch.zeros(UNSETTLED, 2, device=self.device)
        self._pool: Any = None

    def serves(self, batches: Sequence[Batch]) -> bool:
        """Whether an update on these batches can be replayed."""
        if self.failed or len(batches) != 1:
            return False
        (batch,) = batches
        longest = max(batch.source.longest, batch.target.longest)
        return batch.target.packed and batch.units > 0 and longest <= self.longest

    @property
    def full(self) -> bool:
        """Whether results must be read before another update is taken."""
        return self._unsettled == UNSETTLED

    def __call__(self, batch: Batch, rate: float) -> bool:
        """Begin an update at this learning rate, its outcome to be settled later; False where memory ran out."""
        room = self.room(batch)
        if room not in self._graphs:
            try:
                self._graphs[room] = self._captured(batch, room)
            except RuntimeError as error:
                if not out_of_memory(error):  # a capture that is broken off complains of that, after what broke it
                    raise
                self.failed = True
        if self.failed:  # what the error held is free by now
            self._graphs.clear()
            torch.cuda.empty_cache()
            return False
        graph = self._graphs[room]
        self.optimiser.set_rate(rate)
        graph.trays.load(batch)
        graph.graph.replay()
        self._results[self._unsettled].copy_(graph.result)
        self._unsettled += 1
        return True

    def settle(self) -> list[Outcome]:
        """Wait for the updates begun since the last time, and return their outcomes."""
        outcomes = [Outcome(*row) for row in self._results[: self._unsettled].tolist()] if self._unsettled else []
        self._unsettled = 0
        return outcomes

    def room(self, batch: Batch) -> Room:
        """The size of graph that serves a batch."""
        step = max(64, -(-self.budget // SIZES))
        counts = len(batch.source.tokens), len(batch.target.tokens)
        source, target = (step * -(-count // step) for count in counts)
        longest = max(64, 1 << (max(batch.source.longest, batch.target.longest) - 1).bit_length())
        longest = min(longest, self.longest)
        spare = -(-max(source - counts[0], target - counts[1]) // min(FILLER, longest))
        return Room(source, target, 1 << (batch.pairs + spare - 1).bit_length(), longest)

    def _captured(self, batch: Batch, room: Room) -> "_Graph":
        """Capture the update of batches of this size; weights, moments and random numbers stay as they are."""
        chance, here = torch.cuda.get_rng_state(self.device), torch.cuda.current_stream(self.device)
        self._held.fill_(1.0)
        try:
            trays = Trays(room, self.device)
            trays.load(batch)
            aside = torch.cuda.Stream(self.device)
            aside.wait_stream(here)
            with torch.cuda.stream(aside):
                self._update(trays)  # once beforehand: kernels are compiled and workspaces taken outside of the graph
            here.wait_stream(aside)
            self.optimiser.zero_grad()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                result = self._update(trays)
        finally:
            self.optimiser.zero_grad()
            torch.cuda.set_rng_state(chance, self.device)
            self._held.fill_(0.0)
        self._pool = graph.pool()
        return _Graph(graph, trays, result)

    def _update(self, trays: "Trays") -> Tensor:
        with self.arithmetic():
            loss = self.forward(trays.batch(), 0)
        (loss.total / trays.units).backward()
        gradients = [weight.grad for weight in self.optimiser.weights if weight.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        skipped = torch.maximum(self._held, (~norm.isfinite()).float())
        scale = ((norm + 1e-6) / (self.clip or math.inf)).clamp(min=1.0)  # as torch's clip_grad_norm_
        self.optimiser.move(divisor=scale, skipped=skipped)
        return torch.stack((loss.surprise.float(), norm.float()))


class _Graph(NamedTuple):
    graph: torch.cuda.CUDAGraph
    trays: "Trays"
    result: Tensor


class Trays:
    """Room for a packed batch on the device, and several on the host from which batches are on their way to it."""

    def __init__(self, room: Room, device: torch.device) -> None:
        self.room = room
        self._sizes = [room.source, room.target, room.target, room.sentences, room.sentences, 1]
        total, gpu = sum(self._sizes), device.type == "cuda"
        self._hosts = [torch.zeros(total, dtype=torch.int64, pin_memory=gpu) for _ in range(TRAYS if gpu else 1)]
        self._events = [torch.cuda.Event() for _ in self._hosts] if gpu else []
        self._turn = 0
        self._there = torch.zeros(total, dtype=torch.int64, device=device)
        self.units = self._there[-1]

    def batch(self) -> Batch:
        """The batch on the device, which has worked nothing out yet; whether a label counts shows in its sign."""
        source, target, labels, source_lengths, target_lengths, _ = self._there.split(self._sizes)
        return Batch(
            Sequences(source, source_lengths, self.room.longest, True),
            Sequences(target, target_lengths, self.room.longest, True),
            labels,
            self.room.target,
        )

    def load(self, batch: Batch) -> None:
        """Send a batch to the device, filled up with sentences whose labels do not count."""
        host = self._hosts[self._turn]
        if self._events:
            self._events[self._turn].synchronize()  # what was here before has arrived
        source, target, labels, source_lengths, target_lengths, units = (
            part.numpy() for part in host.split(self._sizes)
        )
        self._fill(batch.source, source, source_lengths)
        self._fill(batch.target, target, target_lengths)
        count = len(batch.labels)
        labels[:count], labels[count:] = batch.labels.numpy(), UNCOUNTED
        units[0] = batch.units
        self._there.copy_(host, non_blocking=True)
        if self._events:
            self._events[self._turn].record()
        self._turn = (self._turn + 1) % len(self._hosts)

    def _fill(self, given: Sequences, tokens: np.ndarray, lengths: np.ndarray) -> None:
        count, sentences = len(given.tokens), len(given.lengths)
        tokens[:count], tokens[count:] = given.tokens.numpy(), 0
        lengths[:sentences], lengths[sentences:] = given.lengths.numpy(), 0
        left, place = len(tokens) - count, sentences
        while left:
            lengths[place] = min(left, FILLER, self.room.longest)
            left, place = left - int(lengths[place]), place + 1

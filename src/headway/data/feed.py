"""The batches of every epoch of a prepared corpus."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from headway.data.batches import Batch, Resegment, batches
from headway.data.dropout import BpeDropout
from headway.data.plan import Layout, Plan, plan_epoch
from headway.data.preparation import Prepared


@dataclass(frozen=True)
class Feed:
    """Batches in an order that depends on the seed and the stored lengths alone."""

    prepared: Prepared
    seed: int
    budget: int
    layout: Layout
    folder: Path
    """Where the plans of epochs are kept."""
    dropout: float
    """The probability of BPE-dropout."""
    longest: int
    """The most tokens of a sentence."""

    def epoch(self, number: int, start: int) -> tuple[int, Iterator[Batch]]:
        """How many batches an epoch has, and those from `start` on."""
        plan, resegment = self.plan(number), None
        if self.dropout > 0.0:
            resegment = Resegment(*self._segmenters, seed=self.seed, epoch=number, longest=self.longest)
        source, target = self.prepared.source, self.prepared.target
        made = batches(self.prepared.store, plan, source, target, start=start, resegment=resegment)
        return len(plan), made

    def plan(self, epoch: int) -> Plan:
        """Which pairs make which batch of an epoch."""
        store = self.prepared.store
        return plan_epoch(
            store.source_lengths,
            store.target_lengths,
            seed=self.seed,
            epoch=epoch,
            budget=self.budget,
            layout=self.layout,
            folder=self.folder,
        )

    @cached_property
    def _segmenters(self) -> tuple[BpeDropout, BpeDropout]:
        return BpeDropout(self.prepared.source, self.dropout), BpeDropout(self.prepared.target, self.dropout)

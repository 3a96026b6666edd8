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

    def length(self, epoch: int) -> int:
        """Batches of an epoch."""
        return len(self._plan(epoch))

    def batches(self, epoch: int, start: int) -> Iterator[Batch]:
        """The batches of an epoch from one on."""
        resegment = None
        if self.dropout > 0.0:
            resegment = Resegment(*self._segmenters, seed=self.seed, epoch=epoch, longest=self.longest)
        source, target = self.prepared.source, self.prepared.target
        return batches(self.prepared.store, self._plan(epoch), source, target, start=start, resegment=resegment)

    @cached_property
    def _segmenters(self) -> tuple[BpeDropout, BpeDropout]:
        return BpeDropout(self.prepared.source, self.dropout), BpeDropout(self.prepared.target, self.dropout)

    def _plan(self, epoch: int) -> Plan:
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

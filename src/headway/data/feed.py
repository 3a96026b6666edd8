"""The batches of every epoch of a prepared corpus."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from headway.data.batches import Batch, Resegment, batches
from headway.data.dropout import BpeDropout
from headway.data.plan import Layout, Plan, plan_epoch
from headway.data.preparation import Prepared
from headway.data.word_dropout import WordDropout


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
    curriculum: int = 0
    """Epochs that begin with the shortest pairs."""
    word_dropout: float = 0.0
    """The probability of leaving out a word of the source."""

    def epoch(self, number: int, start: int, *, rank: int = 0, world: int = 1) -> tuple[int, Iterator[Batch]]:
        """How many batches an epoch has, and those at `start + rank`, `start + rank + world` and so on.

        All ranks get equally many; where one would get none at the end, it gets one of no units, which weighs nothing.
        """
        plan, prepared = self.plan(number), self.prepared
        place = {"start": start, "rank": rank, "world": world}
        made = batches(
            prepared.store,
            plan,
            prepared.source,
            prepared.target,
            **place,
            resegment=self._resegment(number),
            alignment=prepared.alignment,
        )
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
            mixture=self.prepared.mixture,
            curriculum=self.curriculum,
        )

    def _resegment(self, epoch: int) -> Resegment | None:
        if not self.dropout and not self.word_dropout:
            return None
        return Resegment(*self._segmenters, seed=self.seed, epoch=epoch, longest=self.longest, words=self._words)

    @cached_property
    def _segmenters(self) -> tuple[BpeDropout | None, BpeDropout | None]:
        if not self.dropout:
            return None, None
        return BpeDropout(self.prepared.source, self.dropout), BpeDropout(self.prepared.target, self.dropout)

    @cached_property
    def _words(self) -> WordDropout | None:
        return WordDropout(self.prepared.source, self.word_dropout) if self.word_dropout else None

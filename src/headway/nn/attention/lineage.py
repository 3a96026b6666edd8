"""Which row of a search descends from which: rows of one sentence share one memory, and never move in it."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor


@runtime_checkable
class Lineage(Protocol):
    """Which of the positions a search has written each of its rows descends from."""

    def grown(self, parents: Int[Tensor, "batch query"] | None, rows: int) -> "Lineage":
        """After one more position in each of `rows` rows that continue the rows `parents`; None: each its own."""
        ...

    def keep(self, sentences: Int[Tensor, " sentences"]) -> "Lineage":
        """The chosen sentences of the batch, in that order."""
        ...

    @property
    def added(self) -> Float[Tensor, "batch 1 query key"] | None:
        """What is added to attention scores: zero for ancestors, minus infinity for others; None if all are."""
        ...

    @property
    def positions(self) -> Int[Tensor, " key"]:
        """Where each position written stands in its row."""
        ...


@dataclass(frozen=True)
class GrowingLineage:
    """The lineage of rows whose number may change from step to step."""

    positions: Int[Tensor, " key"]
    added: Float[Tensor, "batch 1 query key"] | None = None
    length: int = 0

    def grown(self, parents: Int[Tensor, "batch query"] | None, rows: int) -> "GrowingLineage":
        """Rows inherit the ancestors of their parents and see themselves."""
        newest = self.positions.new_full((rows,), self.length)
        positions, length = torch.cat((self.positions, newest)), self.length + 1
        if rows == 1 and self.added is None:  # one row a sentence all along: it descends from all there is
            return GrowingLineage(positions, None, length)
        assert parents is not None  # several rows have had a common ancestor
        entries, batch = len(self.positions), len(parents)
        if self.added is None:
            inherited = torch.zeros(batch, 1, rows, entries, device=parents.device)
        else:
            index = parents[:, None, :, None].expand(-1, -1, -1, entries)
            inherited = self.added.gather(2, index)
        own = alone(rows, parents.device).expand(batch, 1, rows, rows)
        return GrowingLineage(positions, torch.cat((inherited, own), -1), length)

    def keep(self, sentences: Int[Tensor, " sentences"]) -> "GrowingLineage":
        """The chosen sentences, in that order."""
        if self.added is None:
            return self
        return GrowingLineage(self.positions, self.added.index_select(0, sentences), self.length)


@dataclass(frozen=True)
class FixedLineage:
    """The lineage of a fixed number of rows in a memory of fixed size, changed in place."""

    positions: Int[Tensor, " key"]
    added: Float[Tensor, "batch 1 query key"]
    slots: Int[Tensor, " query"]

    def grown(self, parents: Int[Tensor, "batch query"] | None, rows: int) -> "FixedLineage":
        """Rows inherit the ancestors of their parents and see themselves."""
        assert parents is not None  # a captured step is told every time
        inherited = self.added.gather(2, parents[:, None, :, None].expand_as(self.added))
        own = alone(rows, parents.device).to(self.added.dtype).expand(len(parents), 1, rows, rows)
        self.added.copy_(inherited.index_copy_(3, self.slots, own))
        return self

    def keep(self, sentences: Int[Tensor, " sentences"]) -> "FixedLineage":
        """Refused: its place is fixed."""
        raise NotImplementedError("a fixed lineage keeps all its sentences")


def alone(rows: int, device: torch.device) -> Float[Tensor, "query query"]:
    """Zero on the diagonal, minus infinity elsewhere: each row sees its own newest position only."""
    return torch.full((rows, rows), -torch.inf, device=device).fill_diagonal_(0.0)

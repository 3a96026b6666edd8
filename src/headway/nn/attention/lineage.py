"""Which row of a search descends from which: rows of one sentence share one memory, and never move in it."""

from dataclasses import dataclass, replace
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
        """What is added to attention scores: zero for ancestors near enough, else minus infinity; None if all are."""
        ...

    @property
    def positions(self) -> Int[Tensor, " key"]:
        """Where each position stands in its row."""
        ...


@dataclass(frozen=True)
class GrowingLineage:
    """The lineage of rows whose number may change from step to step."""

    positions: Int[Tensor, " key"]
    added: Float[Tensor, "batch 1 query key"] | None = None
    length: int = 0
    window: int | None = None
    """Steps that are seen, the newest among them, which `GrowingPast` alone holds; None: all."""
    steps: tuple[int, ...] = ()
    """The rows of each of these."""

    def grown(self, parents: Int[Tensor, "batch query"] | None, rows: int) -> "GrowingLineage":
        """Rows inherit the ancestors of their parents and see themselves."""
        newest = self.positions.new_full((rows,), self.length)
        positions = torch.cat((self.positions, newest))
        if rows == 1 and self.added is None:  # one row a sentence all along: it descends from all there is
            return self._after(positions, None, rows)
        assert parents is not None  # several rows have had a common ancestor
        entries, batch = len(self.positions), len(parents)
        if self.added is None:
            inherited = torch.zeros(batch, 1, rows, entries, device=parents.device)
        else:
            index = parents[:, None, :, None].expand(-1, -1, -1, entries)
            inherited = self.added.gather(2, index)
        own = alone(rows, parents.device).expand(batch, 1, rows, rows)
        return self._after(positions, torch.cat((inherited, own), -1), rows)

    def _after(self, positions: Tensor, added: Tensor | None, rows: int) -> "GrowingLineage":
        """After a step of this many rows; what then lies outside of the window is forgotten."""
        if self.window is None:
            return GrowingLineage(positions, added, self.length + 1)
        steps = (*self.steps, rows)
        gone = sum(steps[: -self.window])
        seen = None if added is None else added[..., gone:]
        return GrowingLineage(positions[gone:], seen, self.length + 1, self.window, steps[-self.window :])

    def keep(self, sentences: Int[Tensor, " sentences"]) -> "GrowingLineage":
        """The chosen sentences, in that order."""
        if self.added is None:
            return self
        return replace(self, added=self.added.index_select(0, sentences))


@dataclass(frozen=True)
class FixedLineage:
    """The lineage of a fixed number of rows in a memory of fixed size, changed in place."""

    positions: Int[Tensor, " key"]
    added: Float[Tensor, "batch 1 query key"]
    slots: Int[Tensor, " query"]
    window: int | None = None
    """Steps that are seen, the newest among them; None: all."""

    def grown(self, parents: Int[Tensor, "batch query"] | None, rows: int) -> "FixedLineage":
        """Rows inherit the ancestors of their parents and see themselves."""
        assert parents is not None  # a captured step is told every time
        inherited = self.added.gather(2, parents[:, None, :, None].expand_as(self.added))
        own = alone(rows, parents.device).to(self.added.dtype).expand(len(parents), 1, rows, rows)
        inherited.index_copy_(3, self.slots, own)
        if self.window is not None:
            newest = self.positions.index_select(0, self.slots[:1])
            inherited.masked_fill_(self.positions <= newest - self.window, -torch.inf)
        self.added.copy_(inherited)
        return self

    def keep(self, sentences: Int[Tensor, " sentences"]) -> "FixedLineage":
        """Refused: its place is fixed."""
        raise NotImplementedError("a fixed lineage keeps all its sentences")


def alone(rows: int, device: torch.device) -> Float[Tensor, "query query"]:
    """Zero on the diagonal, minus infinity elsewhere: each row sees its own newest position only."""
    return torch.full((rows, rows), -torch.inf, device=device).fill_diagonal_(0.0)

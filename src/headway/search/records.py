"""What the rows of a search wrote, step by step, and the way back from a row to its whole output."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Taken:
    """The tokens of one step: each row continues a row of the step before."""

    parents: Int[Tensor, "batch beam"]
    tokens: Int[Tensor, "batch beam"]
    values: Float[Tensor, "batch beam"]
    """Log-probabilities of the tokens."""

    @classmethod
    def beside(cls, steps: Sequence["Taken"]) -> "Taken":
        """The rows of several groups, side by side."""
        return cls(*(torch.cat([getattr(each, name) for each in steps], 1) for name in ("parents", "tokens", "values")))

    def first(self, rows: int) -> "Taken":
        """The first `rows` rows of every sentence."""
        return Taken(self.parents[:, :rows], self.tokens[:, :rows], self.values[:, :rows])

    def keep(self, sentences: Int[Tensor, " sentences"]) -> "Taken":
        """The chosen sentences, in that order."""
        parts = self.parents, self.tokens, self.values
        return Taken(*(part.index_select(0, sentences) for part in parts))


@dataclass
class Records:
    """All steps so far; a sentence that is done is not in the later ones."""

    steps: list[Taken] = field(default_factory=list)
    lines: list[Int[Tensor, " sentences"]] = field(default_factory=list)
    """The sentence of each line of each step."""

    def add(self, taken: Taken, sentences: Int[Tensor, " sentences"]) -> None:
        """One more step, whose lines are these sentences."""
        self.steps.append(taken)
        self.lines.append(sentences)

    def trace(
        self,
        sentences: Int[np.ndarray, " candidates"],
        lengths: Int[np.ndarray, " candidates"],
        rows: Int[np.ndarray, " candidates"],
    ) -> tuple[Int[np.ndarray, "candidates time"], Float[np.ndarray, "candidates time"]]:
        """The tokens, and their log-probabilities, of the rows `rows` as they were after `lengths` steps."""
        longest = int(lengths.max(initial=0))
        tokens = np.zeros((len(rows), longest), dtype=np.int64)
        values = np.zeros((len(rows), longest))
        rows = rows.copy()
        known: Tensor | None = None
        line = np.zeros(0, dtype=np.int64)
        for time in range(longest - 1, -1, -1):
            step, there = self.steps[time], self.lines[time]
            if there is not known:  # lines move only when sentences leave
                known, ids = there, there.numpy(force=True)
                line = np.full(int(max(ids.max(), sentences.max())) + 1, -1)
                line[ids] = np.arange(len(ids))
            ends = (lengths > time).nonzero()[0]
            cell = line[sentences[ends]], rows[ends]
            tokens[ends, time] = step.tokens.numpy(force=True)[cell]
            values[ends, time] = step.values.numpy(force=True)[cell]
            rows[ends] = step.parents.numpy(force=True)[cell]
        return tokens, values


def written(taken: Taken, before: Int[Tensor, "batch _beam time"]) -> Int[Tensor, "batch beam _time"]:
    """The tokens of every row after a step, given those before it."""
    index = taken.parents[:, :, None].expand(-1, -1, before.shape[2])
    return torch.cat((before.gather(1, index), taken.tokens[:, :, None]), -1)

"""Outputs found by a search, and the rows it is still growing."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Hypothesis:
    """One output for one sentence, without its start and end symbols."""

    tokens: tuple[int, ...]
    log_probability: float
    """The sum over all tokens and, where finished, the end symbol."""
    score: float
    """The log-probability divided by the length penalty."""
    finished: bool
    """The end symbol was chosen; otherwise the output was cut at its limit or had no possible continuation."""
    token_log_probabilities: tuple[float, ...]
    """One for each token and, where finished, a last one for the end symbol."""


def penalty(length: int, strength: float) -> float:
    """The divisor of a log-probability over `length` symbols, end symbol included (Wu et al. 2016, equation 14)."""
    return float(((5 + length) / 6) ** strength)


@dataclass(frozen=True)
class Prefixes:
    """The rows of a search in progress, on the host and in double precision: sums never depend on the device."""

    tokens: Int[Tensor, "rows time"]
    log_probabilities: Float[Tensor, "rows time"]
    totals: Float[Tensor, " rows"]

    @classmethod
    def empty(cls, rows: int) -> "Prefixes":
        """Rows that hold no token yet."""
        numbers = torch.zeros(rows, 0, dtype=torch.float64)
        return cls(numbers.long(), numbers, torch.zeros(rows, dtype=torch.float64))

    @property
    def length(self) -> int:
        """Tokens of each row."""
        return self.tokens.shape[1]

    def extend(
        self,
        rows: Int[Tensor, " candidates"],
        tokens: Int[Tensor, " candidates"],
        log_probabilities: Float[Tensor, " candidates"],
        totals: Float[Tensor, " candidates"],
    ) -> "Prefixes":
        """The chosen rows, each with one more token."""
        return Prefixes(
            torch.cat([self.tokens[rows], tokens[:, None]], dim=1),
            torch.cat([self.log_probabilities[rows], log_probabilities[:, None]], dim=1),
            totals,
        )

    def close(self, row: int, strength: float, ending: float | None = None) -> Hypothesis:
        """The row as an output: finished if `ending`, the log-probability of the end symbol, is given."""
        parts, total = self.log_probabilities[row].tolist(), float(self.totals[row])
        if ending is not None:
            parts, total = [*parts, ending], total + ending
        score = total / penalty(len(parts), strength)
        return Hypothesis(tuple(self.tokens[row].tolist()), total, score, ending is not None, tuple(parts))

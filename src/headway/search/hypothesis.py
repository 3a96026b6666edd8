"""Outputs found by a search, and how they are scored."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Hypothesis:
    """One output for one sentence, without its start and end symbols."""

    tokens: tuple[int, ...]
    log_probability: float
    """The sum over all tokens and, where finished, the end symbol."""
    score: float
    """The log-probability divided by the length penalty, less the coverage penalty where there is one."""
    finished: bool
    """The end symbol was chosen; otherwise the output was cut at its limit or had no possible continuation."""
    token_log_probabilities: tuple[float, ...]
    """One for each token and, where finished, a last one for the end symbol."""


@dataclass(frozen=True)
class Scoring:
    """How a finished hypothesis is judged (Wu et al. 2016, equation 14)."""

    length_penalty: float = 0.0
    coverage_penalty: float = 0.0

    def penalty(self, length: int) -> float:
        """The divisor of a log-probability over `length` symbols, end symbol included."""
        return float(((5 + length) / 6) ** self.length_penalty)

    def score(
        self,
        totals: Float[Tensor, "batch beam"],
        lengths: Tensor | int,
        unread: Float[Tensor, "batch beam"] | None = None,
    ) -> Float[Tensor, "batch beam"]:
        """The score of hypotheses of these lengths, end symbol included, that left so much `unread`."""
        lengths = torch.as_tensor(lengths, dtype=totals.dtype)  # a penalty is as precise as a total
        scores = totals / ((5.0 + lengths) / 6.0) ** self.length_penalty if self.length_penalty else totals
        return scores if unread is None else scores + self.coverage_penalty * unread

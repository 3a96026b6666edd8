"""Greedy search: the likeliest token at every step, which is a beam of one without its books."""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from headway.search.beam import Beam
from headway.search.candidates import top
from headway.search.hypothesis import Scoring
from headway.search.records import Taken


class Greedy(Beam):
    """A beam of one place: its only row takes the best token (of equals, the lower id), and the end symbol ends it."""

    def extend(
        self,
        log_probabilities: Float[Tensor, "batch beam vocabulary"],
        merits: Float[Tensor, "batch beam vocabulary"],
        *,
        scoring: Scoring,
        end: int,
        unread: Float[Tensor, "batch beam"] | None = None,
        first: int = 0,
        blind: bool = False,
    ) -> tuple["Greedy", Taken]:
        """Take the token of highest merit."""
        worth, tokens = top(merits[:, 0])
        values = worth if merits is log_probabilities else log_probabilities[:, 0].gather(-1, tokens)
        values = values.double()
        totals, rows = self.totals + values, torch.zeros_like(tokens)
        alive = (self.totals > -torch.inf) & (worth > -torch.inf)
        ending = alive & (tokens == end)
        stop = ending | ~alive | (self.length >= self.limits)[:, None]
        found = self.found
        if blind or stop.any():
            lengths, taken = rows + self.length, rows + first
            scores = scoring.score(totals, lengths + 1, unread)
            found = found.add(ending, scores=scores, lengths=lengths, rows=taken, endings=values)
            cut, scores = stop & ~ending & (self.totals > -torch.inf), scoring.score(self.totals, lengths)
            found = found.add(cut, scores=scores, lengths=lengths, rows=taken, endings=None)
        totals, done = totals.masked_fill(stop, -torch.inf), stop[:, 0]
        after = replace(self, totals=totals, found=found, done=done, length=self.length + 1)
        return after, Taken(rows + first if first else rows, tokens, values)

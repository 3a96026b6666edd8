"""Beam search: the likeliest few hypotheses of every sentence, token by token."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headway.search.candidates import best
from headway.search.found import Found
from headway.search.hypothesis import Scoring
from headway.search.records import Taken


@dataclass(frozen=True)
class Beam:
    """The search of every sentence between two steps: all tensors, and none is looked at unless that costs nothing.

    A hypothesis that takes the end symbol while among the best is set aside and keeps its place in the beam, so that a
    beam of one is greedy search. A sentence is done once all places are taken, or no live hypothesis can still change
    the `nbest` best, or its limit of tokens is reached. Unfinished hypotheses count only where none finished.
    """

    totals: Float[Tensor, "batch beam"]
    """Log-probabilities of the rows so far, in double precision; minus infinity where a row is no more."""
    found: Found
    done: Bool[Tensor, " batch"]
    limits: Int[Tensor, " batch"]
    """The most tokens of each output."""
    places: int
    nbest: int
    length: int | Int[Tensor, ""] = 0
    """Tokens of every row."""
    ended: bool = False
    """Whether any hypothesis has taken the end symbol."""

    @classmethod
    def begin(cls, limits: Int[Tensor, " batch"], places: int, nbest: int) -> "Beam":
        """One row for each sentence, with no token."""
        totals = torch.zeros(len(limits), 1, dtype=torch.float64, device=limits.device)
        found = Found.none(len(limits), places, limits.device)
        return cls(totals, found, torch.zeros_like(limits, dtype=torch.bool), limits, places, nbest)

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
    ) -> tuple["Beam", Taken]:
        """Take the tokens of highest total, by merit in this step; of equal totals, those of the earlier row.

        `first` is the number of this beam's first row where several beams stand side by side. A `blind` search looks at
        no tensor's value on the host.
        """
        values, totals, tokens, rows, ranks = self._candidates(log_probabilities, merits)
        possible, ends = ranks > -torch.inf, tokens == end
        place = torch.arange(ranks.shape[1], device=ranks.device)
        ending = ends & possible & (place < (self.places - self.found.count)[:, None])
        found = self.found
        if blind or ending.any():
            lengths = self._lengths(rows)
            scores = scoring.score(totals, lengths + 1, None if unread is None else unread.gather(1, rows))
            found = found.add(ending, scores=scores, lengths=lengths, rows=rows + first, endings=values)
        ranks = ranks.masked_fill(ends, -torch.inf)
        order = ranks.sort(dim=1, descending=True, stable=True).indices[:, : self.places]
        parts = (ranks, totals, rows, tokens, values)
        ranks, totals, rows, tokens, values = (part.gather(1, order) for part in parts)
        dead = (ranks == -torch.inf) | (place[: ranks.shape[1]] >= (self.places - found.count)[:, None])
        totals = totals.masked_fill(dead, -torch.inf)
        after = replace(self, found=found, ended=self.ended or found is not self.found)
        after = self._stopped(after, totals, scoring, first, blind)
        return after, Taken(rows + first, tokens, values)

    def _candidates(
        self,
        log_probabilities: Float[Tensor, "batch beam vocabulary"],
        merits: Float[Tensor, "batch beam vocabulary"],
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Log-probabilities, totals, tokens, rows and ranking totals of twice as many candidates as places, in order.

        Of each row its best `places` tokens and the end symbol are enough; of all of them twice `places`, since each
        row ends at most once.
        """
        ranked, tokens = best(merits, self.places + 1)
        values = ranked if merits is log_probabilities else log_probabilities.gather(-1, tokens)
        values, ranked = values.double(), ranked.double()
        totals = (self.totals[:, :, None] + values).flatten(1)
        ranks = totals if merits is log_probabilities else (self.totals[:, :, None] + ranked).flatten(1)
        order = ranks.sort(dim=1, descending=True, stable=True).indices[:, : 2 * self.places]
        rows = order.div(tokens.shape[2], rounding_mode="floor")
        gathered = (part.gather(1, order) for part in (values.flatten(1), totals, tokens.flatten(1)))
        values, totals, tokens = gathered
        return values, totals, tokens, rows, ranks.gather(1, order)

    def _stopped(
        self, after: "Beam", totals: Float[Tensor, "batch _beam"], scoring: Scoring, first: int, blind: bool
    ) -> "Beam":
        """The beam after a step that grew to `totals`, done where nothing more is to come."""
        found = after.found
        stop = (self.length >= self.limits) | (totals[:, 0] == -torch.inf)
        if blind or after.ended:
            # A total only falls and the penalties only rise with length, so nothing to come scores above this.
            bound = scoring.score(totals.amax(1, keepdim=True), self.limits[:, None] + 1)[:, 0]
            stop |= (found.count >= self.nbest) & (bound <= found.worst(self.nbest))
        bare = (stop & ~self.done & (found.count == 0))[:, None] & (self.totals > -torch.inf)
        if blind or bare.any():
            rows = torch.arange(bare.shape[1], device=bare.device).expand_as(bare)
            lengths = self._lengths(rows)
            scores = scoring.score(self.totals, lengths)
            found = found.add(bare, scores=scores, lengths=lengths, rows=rows + first, endings=None)
        done = self.done | stop
        totals = totals.masked_fill(done[:, None], -torch.inf)
        return replace(after, totals=totals, found=found, done=done, length=self.length + 1)

    def _lengths(self, like: Tensor) -> Int[Tensor, "batch candidates"]:
        return torch.zeros_like(like) + self.length

    def narrowed(self) -> "Beam":
        """The same without the rows that are no more in any sentence."""
        rows = max(1, int((self.totals > -torch.inf).any(0).sum()))
        return replace(self, totals=self.totals[:, :rows])

    def keep(self, sentences: Int[Tensor, " sentences"]) -> "Beam":
        """The chosen sentences, in that order."""
        chosen = (part.index_select(0, sentences) for part in (self.totals, self.done, self.limits))
        totals, done, limits = chosen
        return replace(self, totals=totals, done=done, limits=limits, found=self.found.keep(sentences))

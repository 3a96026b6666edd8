"""Beam search: the likeliest few hypotheses of every sentence, token by token."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headway.errors import ConfigError
from headway.search.hypothesis import Hypothesis, Prefixes, penalty
from headway.search.shortlist import shortlist
from headway.search.stepper import State, Stepper


@torch.inference_mode()
def beam_search(
    stepper: Stepper[State],
    state: State,
    *,
    beam: int,
    start: int,
    end: int,
    limits: Sequence[int],
    nbest: int = 1,
    length_penalty: float = 0.0,
    forbidden: Sequence[int] = (),
) -> list[list[Hypothesis]]:
    """Grow the `beam` likeliest hypotheses of every sentence; return up to `nbest` of each, best first.

    `state` has one row for each limit; `Stepper.select` widens it. A hypothesis that takes the end symbol while among
    the best is set aside and keeps its place in the beam, so that a beam of one is greedy search. A sentence is done,
    and leaves the rows, once all places are taken, or no live hypothesis can still change the `nbest` best, or its
    limit of tokens is reached. Unfinished hypotheses are returned only where none finished. The answer for a sentence
    never depends on the others.
    """
    if not 1 <= nbest <= beam:
        raise ConfigError(f"search: nbest is {nbest} and beam {beam}; choose 1 <= nbest <= beam")
    if length_penalty < 0:
        raise ConfigError(f"search: length_penalty is {length_penalty}; choose 0 or more")
    searches = live = [_Search(limit, beam, nbest, length_penalty) for limit in limits]
    prefixes, newest = Prefixes.empty(len(live)), torch.full((len(live),), start)
    while live:
        log_probabilities, state = stepper.step(newest, state)
        candidates = _Candidates.after(prefixes, *shortlist(log_probabilities, beam + 1, forbidden), len(live))
        for place, row, ending in candidates.best([search.places for search in live]).endings(end):
            live[place].found.append(prefixes.close(row, length_penalty, ending))
        grown = candidates.without(end).best([search.places for search in live])
        going = [place for place, best in enumerate(grown.totals[:, 0].tolist()) if live[place].goes_on(prefixes, best)]
        for place in set(range(len(live))).difference(going):
            live[place].settle(prefixes, place, len(live))
        live = [live[place] for place in going]
        rows, newest, values, totals = grown.of(going)
        if live and not torch.equal(rows, torch.arange(len(prefixes.totals))):
            state = stepper.select(state, rows)
        prefixes = prefixes.extend(rows, newest, values, totals)
    return [search.answer() for search in searches]


@dataclass
class _Search:
    """The search for one sentence: when it stops, and what it found."""

    limit: int
    beam: int
    nbest: int
    strength: float
    found: list[Hypothesis] = field(default_factory=list)

    @property
    def places(self) -> int:
        """How many hypotheses may live: the finished ones have taken the others' places."""
        return self.beam - len(self.found)

    def goes_on(self, prefixes: Prefixes, best: float) -> bool:
        """Whether to take the next step, which starts from a highest total of `best`."""
        if prefixes.length >= self.limit or best == -torch.inf:
            return False
        # A total only falls and the penalty only rises with length, so nothing to come scores above this.
        bound = best / penalty(self.limit + 1, self.strength)
        return len(self.found) < self.nbest or bound > self.answer()[-1].score

    def settle(self, prefixes: Prefixes, place: int, sentences: int) -> None:
        """Where none finished, take the rows of this sentence, the `place`-th of `sentences`, as they are."""
        if not self.found:
            width = len(prefixes.totals) // sentences
            rows = range(place * width, (place + 1) * width)
            self.found = [prefixes.close(row, self.strength) for row in rows if prefixes.totals[row] > -torch.inf]

    def answer(self) -> list[Hypothesis]:
        """The best of what was found; of equal scores, the one found first."""
        return sorted(self.found, key=lambda hypothesis: -hypothesis.score)[: self.nbest]


@dataclass(frozen=True)
class _Candidates:
    """The hypotheses of every sentence with one more token; of equal totals, the better row's goes first."""

    rows: Int[Tensor, "batch candidates"]
    tokens: Int[Tensor, "batch candidates"]
    log_probabilities: Float[Tensor, "batch candidates"]
    totals: Float[Tensor, "batch candidates"]

    @classmethod
    def after(
        cls,
        prefixes: Prefixes,
        log_probabilities: Float[Tensor, "rows candidates"],
        tokens: Int[Tensor, "rows candidates"],
        sentences: int,
    ) -> "_Candidates":
        """All continuations of the rows, side by side for each sentence."""
        rows = torch.arange(len(tokens))[:, None].expand_as(tokens)
        parts = rows, tokens, log_probabilities, prefixes.totals[:, None] + log_probabilities
        return cls(*(part.reshape(sentences, -1) for part in parts))

    def parts(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Rows, tokens, log-probabilities, totals."""
        return self.rows, self.tokens, self.log_probabilities, self.totals

    def best(self, places: Sequence[int]) -> "_Candidates":
        """The highest totals of each sentence, as many as it has places; impossible ones fill up to the most places."""
        order = self.totals.sort(dim=1, descending=True, stable=True).indices[:, : max(1, *places)]
        rows, tokens, log_probabilities, totals = (part.gather(1, order) for part in self.parts())
        beyond = torch.arange(totals.shape[1]) >= torch.tensor(places)[:, None]
        return _Candidates(rows, tokens, log_probabilities, totals.masked_fill(beyond, -torch.inf))

    def endings(self, end: int) -> Iterator[tuple[int, int, float]]:
        """The sentence, row and log-probability of every possible end symbol."""
        for place, column in ((self.tokens == end) & (self.totals > -torch.inf)).nonzero().tolist():
            yield place, int(self.rows[place, column]), float(self.log_probabilities[place, column])

    def without(self, end: int) -> "_Candidates":
        """The same with the end symbol impossible."""
        return replace(self, totals=self.totals.masked_fill(self.tokens == end, -torch.inf))

    def of(self, sentences: Sequence[int]) -> Iterator[Tensor]:
        """All parts of the chosen sentences, one after the other."""
        chosen = torch.tensor(sentences, dtype=torch.int64)
        return (part[chosen].flatten() for part in self.parts())

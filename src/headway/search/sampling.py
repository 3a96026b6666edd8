"""Samples: every row draws its next token at random, by numbers that belong to its sentence alone."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt
from torch import Tensor

from headway.search.config import DecodingConfig
from headway.search.found import Found
from headway.search.hypothesis import Scoring
from headway.search.records import Taken


@dataclass(frozen=True)
class Samples:
    """The samples of every sentence between two steps, one row each; a row that ended stays empty."""

    totals: Float[Tensor, "batch beam"]
    found: Found
    done: Bool[Tensor, " batch"]
    limits: Int[Tensor, " batch"]
    seeds: UInt[np.ndarray, " batch"]
    config: DecodingConfig
    places: int
    length: int = 0

    @classmethod
    def begin(
        cls, limits: Int[Tensor, " batch"], seeds: Sequence[int], config: DecodingConfig, places: int
    ) -> "Samples":
        """One row for each sentence, with no token."""
        totals = torch.zeros(len(limits), 1, dtype=torch.float64, device=limits.device)
        found = Found.none(len(limits), places, limits.device)
        done = torch.zeros_like(limits, dtype=torch.bool)
        return cls(totals, found, done, limits, np.array(seeds, dtype=np.uint64), config, places)

    def extend(
        self,
        log_probabilities: Float[Tensor, "batch beam vocabulary"],
        merits: Float[Tensor, "batch beam vocabulary"],
        *,
        scoring: Scoring,
        end: int,
        unread: Float[Tensor, "batch beam"] | None = None,
        first: int = 0,
    ) -> tuple["Samples", Taken]:
        """Draw one token for every row."""
        del unread, first  # nothing is ranked, and there is one group
        rows = torch.arange(self.places, device=merits.device) if self.length else merits.new_zeros(self.places).long()
        log_probabilities, merits, totals = log_probabilities[:, rows], merits[:, rows], self.totals[:, rows]
        numbers = torch.from_numpy(uniform(self.seeds, self.places, self.length)).to(merits.device)
        tokens = drawn(merits, numbers, self.config)
        values = log_probabilities.gather(-1, tokens[:, :, None])[:, :, 0].double()
        live = (totals > -torch.inf) & (merits.amax(-1) > -torch.inf)
        ended = live & (tokens == end)
        cut = (totals > -torch.inf) & ~ended & (~live | (self.length >= self.limits)[:, None])
        found, lines = self.found, rows.expand_as(tokens)
        lengths = torch.full_like(tokens, self.length)
        if ended.any():
            scores = scoring.score(totals + values, lengths + 1)
            found = found.add(ended, scores=scores, lengths=lengths, rows=lines, endings=values)
        if cut.any():
            found = found.add(cut, scores=scoring.score(totals, lengths), lengths=lengths, rows=lines, endings=None)
        totals = (totals + values).masked_fill(ended | cut | ~live, -torch.inf)
        done = (totals == -torch.inf).all(1)
        after = replace(self, totals=totals, found=found, done=done, length=self.length + 1)
        return after, Taken(lines, tokens, values)

    def narrowed(self) -> "Samples":
        """The same: rows keep their places, since random numbers belong to them."""
        return self

    def keep(self, sentences: Int[Tensor, " sentences"]) -> "Samples":
        """The chosen sentences, in that order."""
        totals, done, limits = (part.index_select(0, sentences) for part in (self.totals, self.done, self.limits))
        seeds = self.seeds[sentences.numpy(force=True)]
        return replace(self, totals=totals, done=done, limits=limits, seeds=seeds, found=self.found.keep(sentences))


def drawn(
    merits: Float[Tensor, "batch beam vocabulary"], numbers: Float[Tensor, "batch beam"], config: DecodingConfig
) -> Int[Tensor, "batch beam"]:
    """The tokens at which the cumulated probabilities of what the settings leave pass `numbers`, by id."""
    merits = (merits.double() / config.temperature).log_softmax(-1)
    if config.typical < 1.0:
        merits = _typical(merits, config.typical)
    ranked, tokens = merits.sort(dim=-1, descending=True, stable=True)
    probabilities = ranked.softmax(-1).nan_to_num(0.0)  # a row with nothing possible is all zeros
    if config.top_k:
        probabilities[..., config.top_k :] = 0.0
    before = probabilities.cumsum(-1) - probabilities
    probabilities = probabilities.masked_fill(before >= config.top_p * probabilities.sum(-1, keepdim=True), 0.0)
    # By id, not by rank: rounding, which depends on the batch, may change the rank of tokens that are as good as equal.
    probabilities = torch.zeros_like(probabilities).scatter(-1, tokens, probabilities)
    cumulated = probabilities.cumsum(-1)
    place = torch.searchsorted(cumulated, numbers[..., None] * cumulated[..., -1:], right=True)
    last = probabilities.shape[-1] - 1 - (probabilities.flip(-1) > 0).int().argmax(-1, keepdim=True)
    return place.minimum(last)[..., 0]


def _typical(
    log_probabilities: Float[Tensor, "batch beam vocabulary"], mass: float
) -> Float[Tensor, "batch beam vocabulary"]:
    """The tokens whose surprise is nearest the expected one, as few as have this mass; the others impossible."""
    probabilities = log_probabilities.exp()
    expected = -(probabilities * log_probabilities.nan_to_num(neginf=0.0)).sum(-1, keepdim=True)
    order = (-log_probabilities - expected).abs().sort(dim=-1, stable=True).indices
    held = probabilities.gather(-1, order)
    beyond = held.cumsum(-1) - held >= mass
    return log_probabilities.masked_fill(beyond.scatter(-1, order, beyond), -torch.inf)


def uniform(seeds: UInt[np.ndarray, " batch"], rows: int, step: int) -> Float[np.ndarray, "batch beam"]:
    """Numbers in [0, 1) that depend on the seed of the sentence, the row and the step, and on nothing else."""
    with np.errstate(over="ignore"):  # arithmetic modulo 2^64 is meant
        state = seeds.astype(np.uint64)[:, None] + np.arange(rows, dtype=np.uint64) * np.uint64(0xD1342543DE82EF95)
        state = _mixed(_mixed(state) + np.uint64(step))
    return (state >> np.uint64(11)).astype(np.float64) / (1 << 53)


def _mixed(state: UInt[np.ndarray, "batch beam"]) -> UInt[np.ndarray, "batch beam"]:
    """The next state of SplitMix64 (Steele et al. 2014)."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))

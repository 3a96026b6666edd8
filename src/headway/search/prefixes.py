"""Prefix beam search over slots (Graves 2012; Hannun et al. 2014): paths that collapse to the same tokens are one."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

ROOT, DEAD = -1, -2
"""Marks of prefixes that continue none: the empty one, and places of the beam that hold nothing."""
_FACTOR = 0x9E3779B97F4A7C15 - (1 << 64)  # odd, so that no product loses a bit; products wrap around


@dataclass(frozen=True)
class Prefixes:
    """The beam of every sentence: outputs as far as they are written, no two of them the same."""

    waiting: Float[Tensor, "batch beam"]
    """The log-probability of all paths whose last slot is blank."""
    writing: Float[Tensor, "batch beam"]
    """That of all paths whose last slot wrote the last token."""
    tokens: Int[Tensor, "batch beam target"]
    lengths: Int[Tensor, "batch beam"]
    last: Int[Tensor, "batch beam"]
    """The last token; the blank where there is none."""
    marks: Int[Tensor, "batch beam"]
    """A number for the tokens: the same for the same ones, and to all practical purposes for no others."""
    parents: Int[Tensor, "batch beam"]
    """The mark of the tokens without the last."""

    @classmethod
    def empty(cls, sentences: int, beam: int, *, longest: int, blank: int, device: torch.device) -> "Prefixes":
        """Nothing written yet: one empty prefix a sentence, which is certain."""
        nothing = torch.full((sentences, beam), -torch.inf, dtype=torch.float64, device=device)
        numbers = torch.zeros(sentences, beam, dtype=torch.int64, device=device)
        certain, marks = nothing.clone(), numbers + DEAD
        certain[:, 0], marks[:, 0] = 0.0, 0
        tokens = numbers.new_full((sentences, beam, longest), blank)
        return cls(certain, nothing, tokens, numbers, numbers + blank, marks, numbers + ROOT)

    @property
    def totals(self) -> Float[Tensor, "batch beam"]:
        """The log-probability of all paths."""
        return torch.logaddexp(self.waiting, self.writing)

    def read(
        self,
        slot: Float[Tensor, "batch labels"],
        best: tuple[Float[Tensor, "batch candidates"], Int[Tensor, "batch candidates"]],
        limits: Int[Tensor, " batch"],
    ) -> "Prefixes":
        """The likeliest prefixes after one more slot, of which `best` are the likeliest tokens and what they are."""
        values, ids = best
        totals, own = self.totals, slot.gather(1, self.last).double()
        child = self.parents[:, None, :] == self.marks[:, :, None]  # of the prefix in the row, that in the column
        waiting = totals + slot[:, -1:].double()
        arriving = _going_on(self.waiting, totals, self.last, self.last)
        arriving = arriving.masked_fill(~child, -torch.inf).logsumexp(1)
        writing = torch.logaddexp(self.writing, arriving) + own
        longer = _going_on(self.waiting, totals, self.last, ids) + values[:, None, :].double()
        there = (child[:, :, None, :] & (ids[:, None, :, None] == self.last[:, None, None, :])).any(-1)
        longer = longer.masked_fill(there | (self.lengths >= limits[:, None])[:, :, None], -torch.inf)
        return self._kept(waiting, writing, longer, ids)

    def _kept(
        self,
        waiting: Float[Tensor, "batch beam"],
        writing: Float[Tensor, "batch beam"],
        longer: Float[Tensor, "batch beam candidates"],
        ids: Int[Tensor, "batch candidates"],
    ) -> "Prefixes":
        """The best of the prefixes that stay as they are and of the `longer` ones."""
        beam, candidates = longer.shape[1:]
        stays = torch.logaddexp(waiting, writing)
        totals, index = torch.cat((stays, longer.flatten(1)), 1).topk(beam, 1)
        stay = index < beam
        rows = torch.where(stay, index, (index - beam).div(candidates, rounding_mode="floor"))
        added = ids.gather(1, (index - beam).remainder(candidates))
        marks, dead = self.marks.gather(1, rows), totals == -torch.inf
        lengths = self.lengths.gather(1, rows)
        tokens = self.tokens.gather(1, rows[:, :, None].expand_as(self.tokens))
        if tokens.shape[2]:
            place = lengths.clamp(max=tokens.shape[2] - 1)[:, :, None]
            tokens = tokens.scatter(2, place, torch.where(stay[:, :, None], tokens.gather(2, place), added[:, :, None]))
        return Prefixes(
            waiting.gather(1, rows).masked_fill(~stay, -torch.inf),
            torch.where(stay, writing.gather(1, rows), totals),
            tokens,
            lengths + (~stay).long(),
            torch.where(stay, self.last.gather(1, rows), added),
            torch.where(stay, marks, _marked(marks, added)).masked_fill(dead, DEAD),
            torch.where(stay, self.parents.gather(1, rows), marks).masked_fill(dead, ROOT),
        )


def _going_on(
    waiting: Float[Tensor, "batch beam"],
    totals: Float[Tensor, "batch beam"],
    last: Int[Tensor, "batch beam"],
    tokens: Int[Tensor, "batch candidates"],
) -> Float[Tensor, "batch beam candidates"]:
    """The paths of each prefix that a token can make longer: the token it ends with must come after a blank."""
    return torch.where(last[:, :, None] == tokens[:, None, :], waiting[:, :, None], totals[:, :, None])


def _marked(marks: Int[Tensor, "batch beam"], tokens: Int[Tensor, "batch beam"]) -> Int[Tensor, "batch beam"]:
    mixed = (marks ^ (marks >> 29)) * _FACTOR + tokens + 1
    return (mixed ^ (mixed >> 32)) * _FACTOR


def prefix_beam_search(
    log_probabilities: Float[Tensor, "batch time labels"], limits: Int[Tensor, " batch"], beam: int
) -> list[list[tuple[int, ...]]]:
    """The likeliest outputs of every sentence by what the search knows of them, up to `beam` each.

    The last label is the blank. Slots that are no part of a sentence must be certain to be blank. Of the tokens of a
    slot the 2·beam likeliest are enough: at most as many as the beam is wide can be of less use to a prefix than
    their probability says, the one it ends with and those that make it another prefix of the beam.
    """
    sentences, slots, labels = log_probabilities.shape
    longest = min(int(limits.max()), slots) if sentences else 0
    found = Prefixes.empty(sentences, beam, longest=longest, blank=labels - 1, device=log_probabilities.device)
    values, ids = log_probabilities[..., :-1].topk(min(2 * beam, labels - 1))
    for time in range(slots):
        found = found.read(log_probabilities[:, time], (values[:, time], ids[:, time]), limits)
    rows = zip(found.totals.tolist(), found.lengths.tolist(), found.tokens.tolist(), strict=True)
    return [
        [tuple(ids[:length]) for total, length, ids in zip(*row, strict=True) if total > -torch.inf] for row in rows
    ]

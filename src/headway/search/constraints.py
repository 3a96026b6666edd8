"""Phrases that outputs must hold: a beam whose places are divided by how much of them is written."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from headway.errors import ConfigError
from headway.search.beam import Beam
from headway.search.candidates import best
from headway.search.config import DecodingConfig
from headway.search.hypothesis import Scoring
from headway.search.records import Taken
from headway.search.request import Request, Symbols

Phrase = tuple[int, ...]


@dataclass(frozen=True)
class Progress:
    """How far a row has come with the phrases it must hold; no two of them may share a token of the output."""

    unmet: tuple[Phrase, ...]
    begun: Phrase = ()
    """The longest end of the output with which a phrase that is not yet met begins."""

    @property
    def needed(self) -> int:
        """The fewest tokens that can meet all phrases."""
        return sum(map(len, self.unmet)) - len(self.begun)

    @property
    def elsewhere(self) -> "Progress":
        """After a token that neither begins nor continues a phrase."""
        return Progress(self.unmet)

    def after(self, token: int) -> "Progress":
        """After one more token; a phrase that breaks off is begun anew with the longest end that can (Knuth et al.)."""
        written = (*self.begun, token)
        for start in range(len(written)):
            end = written[start:]
            if end in self.unmet:
                place = self.unmet.index(end)
                return Progress(self.unmet[:place] + self.unmet[place + 1 :])
            if any(phrase[: len(end)] == end for phrase in self.unmet):
                return Progress(self.unmet, end)
        return self.elsewhere


@lru_cache(maxsize=1 << 14)
def onward(progress: Progress) -> Mapping[int, Progress]:
    """What comes of every token that begins or continues a phrase."""
    tokens = sorted({token for phrase in progress.unmet for token in phrase})
    steps = {token: progress.after(token) for token in tokens}
    return {token: after for token, after in steps.items() if after != progress.elsewhere}


class Candidate(NamedTuple):
    """A row with one more token."""

    row: int
    token: int
    needed: int
    """The fewest tokens that can then meet all phrases."""
    value: float = 0.0
    total: float = 0.0
    rank: float = 0.0


@dataclass(frozen=True)
class ConstrainedBeam(Beam):
    """A beam that ends a hypothesis only when it holds all it must, by dynamic allocation (Post and Vilar 2018).

    Beside the best tokens of a row, those that begin or continue a phrase are candidates. The rows of a sentence fall
    into banks by the tokens they still need; banks take turns to fill the places, the one that needs fewest first. A
    token after which the limit would not leave enough for the phrases is impossible, so that they are always met unless
    the model or a rule makes their tokens impossible. A sentence without phrases is searched as `Beam` does.
    """

    progress: list[list[Progress]] = field(default_factory=list)
    """Of every row of every sentence."""

    @classmethod
    def begin(
        cls, limits: Int[Tensor, " batch"], places: int, nbest: int, required: Sequence[tuple[Phrase, ...]] = ()
    ) -> "ConstrainedBeam":
        """One row for each sentence, with no token, and the phrases its output must hold."""
        beam = super().begin(limits, places, nbest)
        assert isinstance(beam, ConstrainedBeam)
        return replace(beam, progress=[[Progress(phrases)] for phrases in required])

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
    ) -> tuple["ConstrainedBeam", Taken]:
        """Take the best tokens of every bank; it is the only beam, and looks at what it does."""
        assert first == 0 and not blind
        needing = torch.tensor([[each.needed > 0 for each in rows] for rows in self.progress], device=merits.device)
        merits[..., end].masked_fill_(needing, -torch.inf)
        after, taken = super().extend(log_probabilities, merits, scoring=scoring, end=end, unread=unread)
        assert isinstance(after, ConstrainedBeam)
        steps = zip(self.progress, taken.parents.tolist(), taken.tokens.tolist(), strict=True)
        progress = [
            [rows[parent].after(token) for parent, token in zip(parents, tokens, strict=True)]
            for rows, parents, tokens in steps
        ]
        return replace(after, progress=progress), taken

    def _candidates(
        self,
        log_probabilities: Float[Tensor, "batch beam vocabulary"],
        merits: Float[Tensor, "batch beam vocabulary"],
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """What `Beam` considers, but for sentences with phrases to meet the candidates of their banks in turn."""
        values, totals, tokens, rows, ranks = super()._candidates(log_probabilities, merits)
        lines = [line for line, each in enumerate(self.progress) if any(row.needed for row in each)]
        chosen = [self._in_turn(line, log_probabilities[line], merits[line]) for line in lines]
        more = max([len(each) - ranks.shape[1] for each in chosen], default=0)
        ranks = F.pad(ranks, (0, max(0, more)), value=-torch.inf)
        values, totals, tokens, rows = (F.pad(part, (0, max(0, more))) for part in (values, totals, tokens, rows))
        for line, each in zip(lines, chosen, strict=True):
            count = len(each)
            ranks[line] = -torch.inf
            ranks[line, :count] = -torch.arange(count, dtype=ranks.dtype, device=ranks.device)  # as they stand
            values[line, :count] = values.new_tensor([candidate.value for candidate in each])
            totals[line, :count] = totals.new_tensor([candidate.total for candidate in each])
            tokens[line, :count] = tokens.new_tensor([candidate.token for candidate in each])
            rows[line, :count] = rows.new_tensor([candidate.row for candidate in each])
        return values, totals, tokens, rows, ranks

    def _in_turn(
        self,
        line: int,
        log_probabilities: Float[Tensor, "beam vocabulary"],
        merits: Float[Tensor, "beam vocabulary"],
    ) -> list[Candidate]:
        """The candidates of one sentence: the best of every bank, then the second best of every bank, and so on."""
        _, likely = best(merits[None], self.places + 1)
        open_ = list(self._open(line, likely[0].tolist()))
        cells = [each.row for each in open_], [each.token for each in open_]
        totals = self.totals[line].tolist()
        values, worth = (part[cells].double().tolist() for part in (log_probabilities, merits))
        priced = [
            each._replace(value=value, total=totals[each.row] + value, rank=totals[each.row] + merit)
            for each, value, merit in zip(open_, values, worth, strict=True)
        ]
        priced = [each for each in priced if each.rank > -torch.inf]
        banks: dict[int, int] = {}
        turns = []
        for each in sorted(priced, key=lambda each: (-each.rank, each.row, each.token)):
            turns.append((banks.setdefault(each.needed, 0), each.needed, each))
            banks[each.needed] += 1
        return [each for *_, each in sorted(turns, key=lambda turn: turn[:2])]

    def _open(self, line: int, likely: list[list[int]]) -> Iterator[Candidate]:
        """Every token of every row that leaves enough tokens for the phrases."""
        left = max(0, int(self.limits[line]) - int(self.length) - 1)
        for row, progress in enumerate(self.progress[line]):
            steps = {**dict.fromkeys(likely[row], progress.elsewhere), **onward(progress)}
            for token, after in steps.items():
                if after.needed <= left:
                    yield Candidate(row, token, after.needed)

    def narrowed(self) -> "ConstrainedBeam":
        """The same without the rows that are no more in any sentence."""
        beam = super().narrowed()
        assert isinstance(beam, ConstrainedBeam)
        return replace(beam, progress=[rows[: beam.totals.shape[1]] for rows in self.progress])

    def keep(self, sentences: Int[Tensor, " sentences"]) -> "ConstrainedBeam":
        """The chosen sentences, in that order."""
        beam = super().keep(sentences)
        assert isinstance(beam, ConstrainedBeam)
        return replace(beam, progress=[self.progress[line] for line in sentences.tolist()])


def check_required(requests: Sequence[Request], config: DecodingConfig, symbols: Symbols) -> None:
    """Raise a `ConfigError` where phrases are required that no output can hold."""
    if config.groups > 1:
        raise ConfigError("required: phrases are searched for by one beam; set groups to 1")
    if config.sample:
        raise ConfigError("required: phrases are searched for by a beam; leave out sample")
    never = {symbols.end, *symbols.forbidden}
    for request in requests:
        for phrase in request.required:
            if not phrase or never.intersection(phrase):
                raise ConfigError(f"required: {phrase} is empty or holds control symbols; leave it out")

"""The search the settings ask for, step by step over any model that can take one."""

from collections.abc import Iterator, Sequence
from os.path import commonprefix
from typing import Generic

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headway.errors import HeadwayError
from headway.search.beam import Beam
from headway.search.config import DecodingConfig
from headway.search.constraints import ConstrainedBeam, check_required
from headway.search.found import Found
from headway.search.greedy import Greedy
from headway.search.hypothesis import Hypothesis, Scoring
from headway.search.records import Records, Taken, written
from headway.search.request import Request, Symbols
from headway.search.rules import Rows, rules
from headway.search.sampling import Samples
from headway.search.stepper import Reader, State, Stepper

CROWDED = 0.75
"""Sentences that are done leave the batch once no more than this share of it is still at work."""

CPU = torch.device("cpu")


@torch.inference_mode()
def decode(
    stepper: Stepper[State],
    state: State,
    requests: Sequence[Request],
    config: DecodingConfig,
    symbols: Symbols,
    device: torch.device = CPU,
) -> list[list[Hypothesis]]:
    """The outputs for every request, best first; `state` has one sentence for each."""
    search = Search(stepper, state, requests, config, symbols, device)
    while search.live:
        search.advance()
    return search.answers()


def wanted(config: DecodingConfig) -> int:
    """Outputs to be found for every sentence."""
    return max(config.nbest, config.mbr)


class Search(Generic[State]):
    """A search in progress, for all sentences of a batch at once; the answer for one never depends on the others."""

    def __init__(
        self,
        stepper: Stepper[State],
        state: State,
        requests: Sequence[Request],
        config: DecodingConfig,
        symbols: Symbols,
        device: torch.device = CPU,
    ) -> None:
        self.stepper, self.state, self.config, self.symbols = stepper, state, config, symbols
        self.scoring = Scoring(config.length_penalty, config.coverage_penalty)
        self.groups = _groups(requests, config, symbols, device)
        self.rules = rules(requests, config, symbols)
        shortest = [config.shortest(len(each.source)) for each in requests]
        self.least, self.shortest = max(shortest, default=0), torch.tensor(shortest, device=device)
        self.forbidden = torch.tensor(symbols.forbidden, dtype=torch.int64, device=device)
        self.sentences = torch.arange(len(requests), device=device)
        self.newest = torch.full((len(requests), len(self.groups)), symbols.start, device=device)
        self.parents = torch.zeros_like(self.newest) if len(self.groups) > 1 else None
        self.written = self.newest[:, :, None][:, :, :0]
        self.records, self.length = Records(), 0
        self.left: list[tuple[Tensor, list[Found]]] = []
        """The sentences that are done and gone, and what was found for them."""

    @property
    def live(self) -> bool:
        """Whether any sentence still needs a step."""
        return len(self.sentences) > 0

    def advance(self) -> None:
        """Take one step: one more token for every row of every sentence that is not done."""
        log_probabilities, self.state = self.stepper.step(self.newest, self.parents, self.state)
        if log_probabilities[..., 0].isnan().any():  # a softmax that holds one NaN holds nothing else
            raise HeadwayError("search: the model gave a probability that is not a number; check its weights for NaN")
        taken = self._taken(log_probabilities, self._merits(log_probabilities))
        self.records.add(taken, self.sentences)
        if self.rules:
            self.written = written(taken, self.written)
        self.newest, self.parents, self.length = taken.tokens, taken.parents, self.length + 1
        self._leave()

    def _merits(
        self, log_probabilities: Float[Tensor, "batch beam vocabulary"]
    ) -> Float[Tensor, "batch beam vocabulary"]:
        """What the next tokens are worth when one is to be chosen."""
        log_probabilities.index_fill_(-1, self.forbidden, -torch.inf)
        if self.length < self.least:
            short = self.shortest > self.length
            log_probabilities[..., self.symbols.end].masked_fill_(short[:, None], -torch.inf)
        if not self.rules:
            return log_probabilities
        merits, rows = log_probabilities.clone(), Rows(self.sentences.tolist(), self.written.cpu())
        for rule in self.rules:
            rule(merits, rows)
        return merits

    def _taken(
        self,
        log_probabilities: Float[Tensor, "batch beam vocabulary"],
        merits: Float[Tensor, "batch beam vocabulary"],
    ) -> Taken:
        """Let one group after the other choose, each knowing what those before it chose."""
        unread = None
        if self.config.coverage_penalty:
            assert isinstance(self.stepper, Reader)  # the engine has seen to it
            unread = self.stepper.unread(self.state).to(log_probabilities.device, torch.float64)
        first, steps, chosen = 0, [], None
        for number, group in enumerate(self.groups):
            rows = slice(first, first + group.totals.shape[1])
            values, worth = log_probabilities[:, rows], merits[:, rows]
            if chosen is not None and self.config.diversity:
                worth = worth - self.config.diversity * chosen[:, None]
            after, taken = group.extend(
                values,
                values if merits is log_probabilities and chosen is None else worth,
                scoring=self.scoring,
                end=self.symbols.end,
                unread=None if unread is None else unread[:, rows],
                first=first,
            )
            if after.found is not group.found:
                after = after.narrowed()
                taken = taken.first(after.totals.shape[1])
            if len(self.groups) > 1:
                alive = (after.totals > -torch.inf).to(worth.dtype)
                chosen = torch.zeros_like(worth[:, 0]) if chosen is None else chosen
                chosen = chosen.scatter_add(1, taken.tokens, alive)
            self.groups[number], first = after, rows.stop
            steps.append(taken)
        return steps[0] if len(steps) == 1 else Taken.beside(steps)

    def _leave(self) -> None:
        """Let sentences that are done go, once they are many or all."""
        done = self.groups[0].done
        for group in self.groups[1:]:
            done = done & group.done
        still = len(done) - int(done.sum())
        if still > CROWDED * len(done):
            return
        gone, stay = done.nonzero()[:, 0], (~done).nonzero()[:, 0]
        self.left.append((self.sentences[gone], [group.found.keep(gone) for group in self.groups]))
        self.sentences = self.sentences[stay]
        if not still:
            return
        self.groups = [group.keep(stay) for group in self.groups]
        self.state = self.stepper.keep(self.state, stay)
        self.newest, self.shortest, self.written = self.newest[stay], self.shortest[stay], self.written[stay]
        self.parents = None if self.parents is None else self.parents[stay]

    def answers(self) -> list[list[Hypothesis]]:
        """What was found, best first; of equal scores, the one found first."""
        answers: dict[int, list[Hypothesis]] = {}
        for sentences, groups in self.left:
            for found in groups:
                for sentence, hypothesis in hypotheses(self.records, sentences, found):
                    answers.setdefault(sentence, []).append(hypothesis)
        unique = not self.config.sample
        return [
            ranked(answers.get(sentence, []), wanted(self.config), unique=unique) for sentence in range(len(answers))
        ]

    def stable(self, sentence: int) -> tuple[int, ...]:
        """The tokens with which every output of a sentence that may still be returned begins."""
        line = self.sentences.tolist().index(sentence)
        ends: list[tuple[int, int]] = []
        first = 0
        for group in self.groups:
            alive = (group.totals[line] > -torch.inf).nonzero()[:, 0] + first
            ends += [(self.length, row) for row in alive.tolist()]
            over = (group.found.scores[line] > -torch.inf).nonzero()[:, 0].tolist()
            ends += [(int(group.found.lengths[line, place]), int(group.found.rows[line, place])) for place in over]
            first += group.totals.shape[1]
        lengths, rows = np.array(ends).T
        tokens, _ = self.records.trace(np.full(len(ends), sentence), lengths, rows)
        texts = [tuple(each[:length].tolist()) for each, length in zip(tokens, lengths, strict=True)]
        return tuple(commonprefix(texts))  # noqa: RUF071  # of any sequences


def _groups(
    requests: Sequence[Request], config: DecodingConfig, symbols: Symbols, device: torch.device
) -> list[Beam | Samples]:
    required = [request.required for request in requests]
    if any(required):
        check_required(requests, config, symbols)
    limits = torch.tensor([request.limit(config) for request in requests], dtype=torch.int64, device=device)
    if config.sample:
        return [Samples.begin(limits, [request.seed for request in requests], config, wanted(config))]
    places = config.beam // config.groups
    if any(required):
        return [ConstrainedBeam.begin(limits, places, min(places, wanted(config)), required)]
    kind = Greedy if places == 1 else Beam
    return [kind.begin(limits, places, min(places, wanted(config))) for _ in range(config.groups)]


def hypotheses(
    records: Records, sentences: Int[Tensor, " sentences"], found: Found
) -> Iterator[tuple[int, Hypothesis]]:
    """Everything found for these sentences, in the order it was found."""
    scores, lengths, rows, endings, finished, _ = (part.numpy(force=True) for part in found.parts())
    lines, places = (scores > -np.inf).nonzero()
    cells = lines, places
    which = sentences.numpy(force=True)[lines]
    tokens, values = records.trace(which, lengths[cells], rows[cells])
    parts = which, lengths[cells], scores[cells], endings[cells], finished[cells], tokens, values
    for sentence, length, score, ending, ended, ids, surprises in zip(*(each.tolist() for each in parts), strict=True):
        own = (*surprises[:length], ending) if ended else tuple(surprises[:length])
        yield sentence, Hypothesis(tuple(ids[:length]), sum(own, 0.0), score, ended, own)


def ranked(found: list[Hypothesis], count: int, *, unique: bool) -> list[Hypothesis]:
    """The best `count`, best first; finished ones before those that were cut, and of equals the one found first."""
    order = sorted(found, key=lambda hypothesis: (not hypothesis.finished, -hypothesis.score))
    if unique:
        first: dict[tuple[int, ...], Hypothesis] = {}
        for hypothesis in order:
            first.setdefault(hypothesis.tokens, hypothesis)
        order = list(first.values())
    return order[:count]

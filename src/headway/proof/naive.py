"""The naive twin of the search: plain lists, one sentence at a time, and nothing remembered between two tokens.

Beam search here is what `search/beam.py` does for many sentences at once. With `places` hypotheses wanted:

1. Every row is continued by its `places` + 1 likeliest tokens; of all continuations the 2 x `places` of highest total
   log-probability are candidates, best first, and of equals the one of the earlier row, then of the lower token.
2. A candidate that ends, and is among the first `places` less the number found already, is found. Each hypothesis found
   takes a place away for good.
3. The best candidates that do not end, as many as places are left, are the rows from now on.
4. The search stops when no row is left; when the output has reached its limit; or when `nbest` are found and the best
   row, even if it kept its total up to the limit, would score no higher than the worst of the best `nbest`.
5. If nothing was found by then, the rows as they were before this step are the answer, unfinished.

A score is the total divided by ((5 + symbols) / 6) to the power of the length penalty, the end symbol counted.
"""

import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from headway.models.model import Autoregressive
from headway.search import DecodingConfig, Hypothesis, Scoring, Symbols
from headway.sequences import Sequences

Predict = Callable[[list[list[int]]], list[list[float]]]
"""From outputs of equal length to the log-probabilities of every next token of each."""


@dataclass(frozen=True)
class Answer:
    """What the twin found."""

    hypotheses: list[Hypothesis]
    margin: float
    """The narrowest choice it made: rounding by more than this may lead elsewhere."""


@dataclass(frozen=True)
class Row:
    """An output in the making."""

    tokens: tuple[int, ...] = ()
    total: float = 0.0
    parts: tuple[float, ...] = ()

    def grown(self, token: int, log_probability: float) -> "Row":
        """With one more token."""
        return Row((*self.tokens, token), self.total + log_probability, (*self.parts, log_probability))


def recompute(model: Autoregressive[Any, Any], source: Sequence[int], symbols: Symbols) -> Predict:
    """Predict by reading each output whole, every time; `source` has its end symbol."""
    device, encodings = model.output.weight.device, dict[int, Any]()

    @torch.inference_mode()
    def predict(outputs: list[list[int]]) -> list[list[float]]:
        rows = len(outputs)
        if rows not in encodings:
            encodings[rows] = model.encode(Sequences.pad([source] * rows, symbols.end).to(device))
        given = Sequences.pad([[symbols.start, *output] for output in outputs], symbols.end).to(device)
        states = model.decode(given, encodings[rows]).states[:, -1]
        values = model.output(states).float().log_softmax(-1)
        values[:, list(symbols.forbidden)] = -math.inf
        return values.tolist()

    return predict


def greedy(predict: Predict, end: int, limit: int, scoring: Scoring) -> Answer:
    """Write the likeliest token, of equals the lowest, until it is the end symbol or `limit` tokens are written."""
    row, margin = Row(), math.inf
    while True:
        (values,) = predict([list(row.tokens)])
        first, second = likeliest(values, 2)
        if values[first] == -math.inf:
            return Answer([_cut(row, scoring)], margin)
        margin = min(margin, values[first] - values[second])
        if first == end:
            return Answer([_ended(row.grown(end, values[end]), scoring)], margin)
        if len(row.tokens) == limit:
            return Answer([_cut(row, scoring)], margin)
        row = row.grown(first, values[first])


def beam_search(predict: Predict, end: int, limit: int, config: DecodingConfig) -> Answer:
    """The best hypotheses by the rules above."""
    scoring, places, nbest = Scoring(config.length_penalty), config.beam, config.nbest
    rows, found, margins = [Row()], list[Hypothesis](), [math.inf]
    while True:
        candidates = _candidates(rows, predict([list(row.tokens) for row in rows]), places)
        free = places - len(found)
        found += [_ended(each, scoring) for each in candidates[:free] if each.tokens[-1] == end]
        if any(each.tokens[-1] == end for each in candidates[free - 1 : free + 1]):
            margins += _gaps(each.total for each in candidates[free - 1 : free + 1])
        free = places - len(found)
        going = [each for each in candidates if each.tokens[-1] != end]
        kept = going[:free]
        if kept:
            margins += _gaps(each.total for each in going[free - 1 : free + 1])
        stop = not kept or len(rows[0].tokens) >= limit
        if kept and len(found) >= nbest:
            worst = sorted((each.score for each in found), reverse=True)[nbest - 1]
            bound = kept[0].total / scoring.penalty(limit + 1)
            margins.append(abs(bound - worst))
            stop = stop or bound <= worst
        if stop:
            found = found or [_cut(row, scoring) for row in rows]
            break
        rows = kept
    found = sorted(found, key=lambda each: -each.score)
    margins += _gaps(each.score for each in found[: nbest + 1])
    return Answer(found[:nbest], min(margins))


def likeliest(values: Sequence[float], count: int) -> list[int]:
    """The tokens of the highest values, best first, of equals the lower."""
    least = heapq.nlargest(count, values)[-1]
    order = sorted((-value, token) for token, value in enumerate(values) if value >= least)
    return [token for _, token in order[:count]]


def _candidates(rows: Sequence[Row], values: Sequence[Sequence[float]], places: int) -> list[Row]:
    grown = [
        row.grown(token, own[token])
        for row, own in zip(rows, values, strict=True)
        for token in likeliest(own, places + 1)
    ]
    best = sorted(grown, key=lambda row: -row.total)[: 2 * places]
    return [row for row in best if row.total > -math.inf]


def _gaps(values: Iterable[float]) -> list[float]:
    return [abs(left - right) for left, right in pairwise(values)]


def _ended(row: Row, scoring: Scoring) -> Hypothesis:
    score = row.total / scoring.penalty(len(row.tokens))
    return Hypothesis(row.tokens[:-1], row.total, score, True, row.parts)


def _cut(row: Row, scoring: Scoring) -> Hypothesis:
    return Hypothesis(row.tokens, row.total, row.total / scoring.penalty(len(row.tokens)), False, row.parts)

"""Greedy search: the likeliest token at every step."""

from collections.abc import Sequence

import torch

from headway.search.hypothesis import Hypothesis, Prefixes
from headway.search.shortlist import shortlist
from headway.search.stepper import State, Stepper


@torch.inference_mode()
def greedy(
    stepper: Stepper[State],
    state: State,
    *,
    start: int,
    end: int,
    limits: Sequence[int],
    length_penalty: float = 0.0,
    forbidden: Sequence[int] = (),
) -> list[Hypothesis]:
    """Take the likeliest token (of equals, the lower id) until the end symbol or the sentence's limit of tokens.

    `state` has one row for each limit. Sentences that are done leave the rows; the penalty only shapes their score.
    """
    answers: dict[int, Hypothesis] = {}
    sentences, limit = torch.arange(len(limits)), torch.tensor(limits, dtype=torch.int64)
    prefixes, newest = Prefixes.empty(len(limits)), torch.full((len(limits),), start)
    while len(sentences):
        log_probabilities, state = stepper.step(newest, state)
        values, tokens = (column[:, 0] for column in shortlist(log_probabilities, 1, forbidden))
        ended = (tokens == end) & (values > -torch.inf)
        done = ended | (values == -torch.inf) | (limit[sentences] <= prefixes.length)
        for row in done.nonzero()[:, 0].tolist():
            ending = float(values[row]) if ended[row] else None
            answers[int(sentences[row])] = prefixes.close(row, length_penalty, ending)
        rows = (~done).nonzero()[:, 0]
        if 0 < len(rows) < len(sentences):
            state = stepper.select(state, rows)
        sentences = sentences[rows]
        newest = tokens[rows]
        prefixes = prefixes.extend(rows, newest, values[rows], (prefixes.totals + values)[rows])
    return [answers[sentence] for sentence in range(len(limits))]

"""Outputs that are written as a whole: the likeliest token of every place, and the best of several outputs."""

from collections.abc import Iterable, Sequence
from functools import cache

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headway.models.model import Encoded, Model
from headway.search.config import DecodingConfig
from headway.search.hypothesis import Hypothesis, Scoring
from headway.search.request import Symbols
from headway.sequences import Sequences

LOGITS = {"cpu": 1 << 21, "cuda": 1 << 28}
"""Logits held at a time, by kind of device: on a CPU what stays in its caches."""


def guessed(
    model: Model,
    states: Float[Tensor, "batch time dim"],
    wanted: Bool[Tensor, "batch time"] | None,
    symbols: Symbols,
) -> tuple[Int[Tensor, "batch time"], Float[Tensor, "batch time"]]:
    """The likeliest token of every place that may stand in an output, and its log-probability.

    Places that are not wanted may hold anything: on a CPU they
    are passed over, on a GPU they cost less than asking it where they are.
    """
    never = _tokens((*symbols.forbidden, symbols.end), states.device)  # the length is known: it needs no end symbol
    size = max(1, LOGITS.get(states.device.type, LOGITS["cpu"]) // len(model.output.weight))
    tokens, levels = [], []
    rows, cells = states.flatten(0, 1), None
    if wanted is not None and states.device.type == "cpu":
        cells = wanted.flatten().nonzero()[:, 0]
        rows = rows.index_select(0, cells)
    for part in rows.split(size):
        every = model.output.wide(part).log_softmax(-1).index_fill_(-1, never, -torch.inf)
        tokens.append(highest(every))
        levels.append(every.gather(-1, tokens[-1][:, None])[:, 0])
    shape, chosen, chances = states.shape[:2], torch.cat(tokens), torch.cat(levels)
    if cells is not None:
        chosen, chances = (each.new_zeros(shape.numel()).index_copy_(0, cells, each) for each in (chosen, chances))
    return chosen.view(shape), chances.view(shape)


@cache  # graphs read them where they are
def _tokens(tokens: tuple[int, ...], device: torch.device) -> Int[Tensor, " tokens"]:
    return torch.tensor(tokens, device=device)


def highest(values: Float[Tensor, "rows vocabulary"]) -> Int[Tensor, " rows"]:
    """The place of the highest value of every row, the first of equals; on a CPU, NumPy finds it ten times sooner."""
    return torch.from_numpy(values.numpy().argmax(-1)) if values.device.type == "cpu" else values.argmax(-1)


def repeated(encoded: Encoded, parents: Sequence[int], rows: int) -> Encoded:
    """The sources of so many drafts, each given by its place; rows that are left over have any."""
    if len(encoded.states) == rows and list(parents) == list(range(len(parents))):
        return encoded
    source = encoded.source
    chosen = torch.tensor([*parents, *[0] * (rows - len(parents))]).to(source.tokens.device)
    tokens, lengths, states = (each.index_select(0, chosen) for each in (source.tokens, source.lengths, encoded.states))
    return Encoded(Sequences(tokens, lengths, source.longest, source.full), states)


def ranked(drafts: Iterable[tuple[Sequence[int], Sequence[float], float]], config: DecodingConfig) -> list[Hypothesis]:
    """The best of the outputs of one sentence, none twice: tokens, their log-probabilities, and that of the length.

    The last stands where outputs that are written token by token have the log-probability of their end symbol.
    """
    scoring, best = Scoring(config.length_penalty), dict[tuple[int, ...], Hypothesis]()
    for tokens, levels, length in drafts:
        written, total = tuple(tokens), sum(levels) + length
        score = total / scoring.penalty(len(written) + 1)
        if written not in best or best[written].score < score:
            best[written] = Hypothesis(written, total, score, True, (*levels, length))
    return sorted(best.values(), key=lambda each: -each.score)[: max(config.nbest, config.mbr)]

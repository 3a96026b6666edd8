"""How a model of slots writes: the likeliest label of every slot, or a search for the likeliest output."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headway.models.ctc import Ctc, widened
from headway.models.model import Encoded
from headway.search.config import DecodingConfig
from headway.search.graphs import replayed
from headway.search.hypothesis import Hypothesis, Scoring
from headway.search.labelling import token_log_probabilities
from headway.search.prefixes import prefix_beam_search
from headway.search.request import Request, Symbols
from headway.sequences import Sequences

TOGETHER = {"cpu": 1 << 25, "cuda": 1 << 29}
"""Log-probabilities held at a time, by kind of device, where a batch has more than one sentence."""


def write_slots(
    model: Ctc,
    source: Sequences,
    requests: Sequence[Request],
    config: DecodingConfig,
    symbols: Symbols,
) -> list[list[Hypothesis]]:
    """The outputs for every source, best first.

    With a beam of 1 the label of every slot is its likeliest; wider ones are searched for by prefixes. The
    log-probability of an output is the sum over all its paths, whatever the search saw of them.
    """
    found: list[list[Hypothesis]] = []
    barred = torch.tensor(sorted({symbols.start, symbols.end, *symbols.forbidden}), device=source.tokens.device)
    (states,) = replayed(_read, model, source.tokens, source.lengths, full=source.full)
    count, made = len(requests), widened(source, model.config.upsample)
    slots = Encoded(replace(made, tokens=made.tokens[:count], lengths=made.lengths[:count]), states[:count])
    for given in divided(model, slots):
        given.index_fill_(2, barred, -torch.inf)
        limits = [each.limit(config) for each in requests[len(found) :][: len(given)]]
        outputs, finished = _greedy(given, limits) if config.beam == 1 else _searched(given, limits, config.beam)
        parts = token_log_probabilities(given, outputs, model.blank)
        found += [_best(*each, config) for each in zip(outputs, parts, finished, strict=True)]
    return found


def _read(
    model: Ctc, tokens: Int[Tensor, "batch source"], lengths: Int[Tensor, " batch"], *, full: bool
) -> tuple[Float[Tensor, "batch slots dim"]]:
    """The states of all slots."""
    return (model.slots(Sequences(tokens, lengths, tokens.shape[1], full)).states,)


def divided(model: Ctc, slots: Encoded) -> Iterator[Float[Tensor, "batch time labels"]]:
    """The log-probabilities of all labels of slots, some sentences at a time; beyond their ends they are blank."""
    most = TOGETHER.get(slots.states.device.type, TOGETHER["cpu"])
    together = max(1, most // (max(1, slots.source.longest) * (model.blank + 1)))
    for first in range(0, len(slots.states), together):
        some = slice(first, first + together)
        found = model.output.wide(slots.states[some]).log_softmax(-1)
        if not slots.source.full:
            beyond = ~slots.source.present[some, :, None]
            found.masked_fill_(beyond, -torch.inf)
            found[..., -1:].masked_fill_(beyond, 0.0)
        yield found


def read_slots(model: Ctc, source: Sequences, outputs: Sequence[Sequence[int]]) -> list[list[float]]:
    """What the model gives one output of each source: see `token_log_probabilities`."""
    parts: list[list[float]] = []
    for given in divided(model, model.slots(source)):
        own = [[each] for each in outputs[len(parts) :][: len(given)]]
        parts += [each for (each,) in token_log_probabilities(given, own, model.blank)]
    return parts


Outputs = tuple[list[list[tuple[int, ...]]], list[bool]]
"""Some outputs a sentence, and which sentences were not cut at their limits."""


def _greedy(given: Float[Tensor, "batch time labels"], limits: Sequence[int]) -> Outputs:
    """The likeliest path, collapsed: equal neighbours are one token, and then blanks are none (best path decoding)."""
    blank, paths = given.shape[2] - 1, given.argmax(2).cpu().numpy()
    fresh = np.ones_like(paths, dtype=bool)
    fresh[:, 1:] = paths[:, 1:] != paths[:, :-1]
    fresh &= paths != blank
    written = [tuple(path[own].tolist()) for path, own in zip(paths, fresh, strict=True)]
    cut = [[each[:limit]] for each, limit in zip(written, limits, strict=True)]
    return cut, [len(each) <= limit for each, limit in zip(written, limits, strict=True)]


def _searched(given: Float[Tensor, "batch time labels"], limits: Sequence[int], beam: int) -> Outputs:
    found = prefix_beam_search(given, torch.tensor(limits, device=given.device), beam)
    return found, [True] * len(found)


def _best(
    outputs: list[tuple[int, ...]], parts: list[list[float]], finished: bool, config: DecodingConfig
) -> list[Hypothesis]:
    """The outputs of a sentence by score; of one that was cut, nothing is known of its end."""
    scoring, found = Scoring(config.length_penalty), []
    for tokens, each in zip(outputs, parts, strict=True):
        own = tuple(each if finished else each[:-1])
        total = sum(own)
        found.append(Hypothesis(tokens, total, total / scoring.penalty(len(own)), finished, own))
    return sorted(found, key=lambda each: -each.score)[: max(config.nbest, config.mbr)]

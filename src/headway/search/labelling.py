"""How probable an output is when every slot writes a token or nothing: the sum over all paths that collapse to it."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

IMPOSSIBLE = -1e9
"""The log-probability of what cannot be: finite, so that differences stay numbers."""


class Labelled(NamedTuple):
    """Log-probabilities of outputs and of all their beginnings."""

    begun: Float[Tensor, "rows target"]
    """That the output begins with the tokens up to each place."""
    ended: Float[Tensor, "rows _places"]
    """That the output is none but the tokens before each place."""


def labelled(
    written: Float[Tensor, "rows time target"], blank: Float[Tensor, "rows time"], again: Bool[Tensor, "rows target"]
) -> Labelled:
    """The forward algorithm (Graves et al. 2006, equations 5 to 8), a token after the other instead of slot by slot.

    `written` are the log-probabilities that each slot writes each token of the row's output, `again` is true where a
    token is the one before it once more. With all slots at once a token takes two running sums: of the paths whose last
    slot wrote it, and of those whose last slot was blank.
    """
    none = torch.full_like(blank[:, :1], -torch.inf)
    silence, sums = blank.cumsum(1), written.clamp(min=IMPOSSIBLE).cumsum(1)
    waiting, writing = silence, torch.full_like(blank, -torch.inf)
    start = torch.zeros_like(none)  # nothing was written before the first slot
    begun, ended = [], [silence[:, -1]]
    for place in range(written.shape[2]):
        from_token = writing.masked_fill(again[:, place, None], -torch.inf)
        before = torch.cat((start, torch.logaddexp(waiting, from_token)[:, :-1]), 1)
        new = written[:, :, place] + before
        writing = sums[:, :, place] + (new - sums[:, :, place]).logcumsumexp(1)
        waiting = silence + torch.cat((none, (writing - silence).logcumsumexp(1)[:, :-1]), 1)
        begun.append(new.logsumexp(1))
        ended.append(torch.logaddexp(waiting[:, -1], writing[:, -1]))
        start = none
    empty = blank.new_zeros(len(blank), 0)
    return Labelled(torch.stack(begun, 1) if begun else empty, torch.stack(ended, 1))


def token_log_probabilities(
    log_probabilities: Float[Tensor, "batch time labels"], outputs: Sequence[Sequence[Sequence[int]]], blank: int
) -> list[list[list[float]]]:
    """For some outputs of each sentence: that each token comes next, and last that no other does; their sum is exact.

    A token's is the log-probability that the output begins with it after those before it, given that it begins with
    those. Slots that are no part of a sentence must be certain to be blank.
    """
    width = max((len(each) for own in outputs for each in own), default=0)
    rows = max(map(len, outputs), default=0)
    filled = [[[*each, *[blank] * (width - len(each))] for each in own] for own in outputs]
    filled = [[*own, *[[blank] * width] * (rows - len(own))] for own in filled]
    device, sentences, slots = log_probabilities.device, len(outputs), log_probabilities.shape[1]
    tokens: Int[Tensor, "batch rows target"] = torch.tensor(filled, device=device).view(sentences, rows, width)
    index = tokens.view(sentences, 1, rows * width).expand(-1, slots, -1)
    written = log_probabilities.gather(2, index).double().view(sentences, slots, rows, width).transpose(1, 2)
    silent = log_probabilities[:, None, :, blank].double().expand(-1, rows, -1).flatten(0, 1)
    again = torch.zeros_like(tokens, dtype=torch.bool)
    again[..., 1:] = tokens[..., 1:] == tokens[..., :-1]
    found = labelled(written.flatten(0, 1), silent, again.flatten(0, 1))
    begun, ended = (part.view(sentences, rows, -1).tolist() for part in found)
    return [
        [_parts(begun[place][row], ended[place][row], len(each)) for row, each in enumerate(own)]
        for place, own in enumerate(outputs)
    ]


def _parts(begun: list[float], ended: list[float], length: int) -> list[float]:
    totals = [0.0, *begun[:length], ended[length]]
    return [max(after, IMPOSSIBLE) - max(before, IMPOSSIBLE) for before, after in pairwise(totals)]

"""Mask-predict: outputs of several lengths are guessed, and what is least sure is hidden and guessed again."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headway.models.maskpredict import MaskPredict
from headway.models.model import Encoded
from headway.nn.attention import KeyValues
from headway.search.config import DecodingConfig
from headway.search.drafts import guessed, ranked
from headway.search.hypothesis import Hypothesis
from headway.search.request import Request, Symbols
from headway.sequences import Sequences


def write_by_masks(
    model: MaskPredict, source: Sequences, requests: Sequence[Request], config: DecodingConfig, symbols: Symbols
) -> list[list[Hypothesis]]:
    """The outputs for every source, best first (Ghazvininejad et al. 2019, section 4).

    The host asks twice what was computed, however many rounds there are: the lengths, which it decides, and outputs.
    """
    encoded = model.encode(source)
    levels = model.lengths(encoded).cpu().numpy()
    chosen = [likeliest_lengths(row, config, request) for row, request in zip(levels, requests, strict=True)]
    sizes = [length for row in chosen for length, _ in row]
    parents = [place for place, row in enumerate(chosen) for _ in row]
    memory, read = model.remember(encoded), Encoded(source, encoded.states)
    if len(parents) > len(requests):
        rows = torch.tensor(parents, device=source.tokens.device)
        memory = tuple(each.keep(rows) for each in memory)
        tokens, lengths = source.tokens.index_select(0, rows), source.lengths.index_select(0, rows)
        read = Encoded(Sequences(tokens, lengths, source.longest, source.full), encoded.states)
    outputs, chances = (each.tolist() for each in _refined(model, sizes, read, memory, config.iterations, symbols))
    written = iter(zip(outputs, chances, strict=True))
    found = []
    for row in chosen:
        drafts = [
            (output[:length], parts[:length], chance)
            for (length, chance), (output, parts) in zip(row, written)  # noqa: B905  # there are more for the next
        ]
        found.append(ranked(drafts, config))
    return found


def likeliest_lengths(
    levels: Float[np.ndarray, " lengths"], config: DecodingConfig, request: Request
) -> list[tuple[int, float]]:
    """The likeliest lengths that an output may have, as many as the beam is wide, with their log-probabilities."""
    reach, most = len(levels) // 2, max(1, request.limit(config))
    least = min(most, max(1, config.shortest(len(request.source))))
    lengths = len(request.source) + np.arange(-reach, reach + 1)
    allowed = np.flatnonzero((lengths >= least) & (lengths <= most))
    if not len(allowed):  # all that the model can say is too short, or too long
        return [(int(np.clip(len(request.source), least, most)), 0.0)]
    best = allowed[np.argsort(-levels[allowed], kind="stable")[: config.beam]]
    return [(int(lengths[place]), float(levels[place])) for place in best]


def _refined(
    model: MaskPredict,
    sizes: Sequence[int],
    encoded: Encoded,
    memory: tuple[KeyValues, ...],
    rounds: int,
    symbols: Symbols,
) -> tuple[Int[Tensor, "rows time"], Float[Tensor, "rows time"]]:
    """Tokens and log-probabilities of outputs of these sizes, after so many rounds.

    In round t of T, the N·(T - t)/T tokens of lowest probability are hidden and guessed anew (equations 1 to 4).
    """
    blank = Sequences.pad([[symbols.end] * size for size in sizes], symbols.end).to(encoded.states.device)
    states = model.decode(blank, blank.present, encoded, memory).states
    tokens, levels = guessed(model, states, None if blank.full else blank.present, symbols)
    for time in range(1, rounds):
        counts = [size * (rounds - time) // rounds for size in sizes]
        if not any(counts):
            break
        unsure = levels.masked_fill(~blank.present, torch.inf).argsort(dim=1, stable=True)[:, : max(counts)]
        again = torch.arange(max(counts), device=tokens.device) < torch.tensor(counts, device=tokens.device)[:, None]
        hidden = torch.zeros_like(blank.present).scatter(1, unsure, again)
        target = Sequences(tokens, blank.lengths, blank.longest, blank.full)
        states = model.decode(target, hidden, encoded, memory).states
        others = states.gather(1, unsure[..., None].expand(-1, -1, states.shape[2]))
        for old, new in zip((tokens, levels), guessed(model, others, again, symbols), strict=True):
            old.scatter_(1, unsure, new.where(again, old.gather(1, unsure)))
    return tokens, levels

"""Mask-predict: outputs of several lengths are guessed, and what is least sure is hidden and guessed again."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headway.models.maskpredict import MaskPredict
from headway.models.model import Encoded
from headway.search.config import DecodingConfig
from headway.search.drafts import guessed, ranked, repeated
from headway.search.graphs import placed, replayed
from headway.search.hypothesis import Hypothesis
from headway.search.request import Request, Symbols
from headway.sequences import Sequences


def write_by_masks(
    model: MaskPredict, source: Sequences, requests: Sequence[Request], config: DecodingConfig, symbols: Symbols
) -> list[list[Hypothesis]]:
    """The outputs for every source, best first (Ghazvininejad et al. 2019, section 4).

    The host asks twice what was computed, however many rounds there are: the lengths, which it decides, and outputs.
    """
    states, known = replayed(_read, model, source.tokens, source.lengths, full=source.full)
    levels, device = known.cpu().numpy(), source.tokens.device
    chosen = [likeliest_lengths(levels[place], config, request) for place, request in enumerate(requests)]
    blank = [[symbols.end] * length for row in chosen for length, _ in row]
    blanks = placed(blank, symbols.end, device, model.config.longest)
    parents = [place for place, row in enumerate(chosen) for _ in row]
    read = repeated(Encoded(source, states), parents, len(blanks.tokens))
    outputs = replayed(
        _refined,
        model,
        blanks.tokens,
        blanks.lengths,
        read.source.tokens,
        read.source.lengths,
        read.states,
        full=(blanks.full, source.full),
        rounds=config.iterations,
        symbols=symbols,
    )
    written = zip(*(each.tolist() for each in outputs), strict=True)
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


def _read(
    model: MaskPredict, tokens: Int[Tensor, "batch source"], lengths: Int[Tensor, " batch"], *, full: bool
) -> tuple[Float[Tensor, "batch source dim"], Float[Tensor, "batch lengths"]]:
    """The states of sources, and the log-probabilities of all lengths."""
    encoded = model.encode(Sequences(tokens, lengths, tokens.shape[1], full))
    return encoded.states, model.lengths(encoded)


def _refined(
    model: MaskPredict,
    drafts: Int[Tensor, "rows time"],
    lengths: Int[Tensor, " rows"],
    source: Int[Tensor, "rows source"],
    source_lengths: Int[Tensor, " rows"],
    states: Float[Tensor, "rows source dim"],
    *,
    full: tuple[bool, bool],
    rounds: int,
    symbols: Symbols,
) -> tuple[Int[Tensor, "rows time"], Float[Tensor, "rows time"]]:
    """Tokens and log-probabilities of outputs of these lengths, after so many rounds.

    In round t of T, the N·(T - t)/T tokens of lowest probability are hidden and guessed anew (equations 1 to 4).
    """
    blank = Sequences(drafts, lengths, drafts.shape[1], full[0])
    encoded = Encoded(Sequences(source, source_lengths, source.shape[1], full[1]), states)
    memory = model.remember(encoded)
    first = model.decode(blank, blank.present, encoded, memory).states
    tokens, levels = guessed(model, first, None if blank.full else blank.present, symbols)
    for time in range(1, rounds):
        most, counts = blank.longest * (rounds - time) // rounds, lengths * (rounds - time) // rounds
        if not most:
            break
        unsure = levels.masked_fill(~blank.present, torch.inf).argsort(dim=1, stable=True)[:, :most]
        again = torch.arange(most, device=tokens.device) < counts[:, None]
        hidden = torch.zeros_like(blank.present).scatter(1, unsure, again)
        target = Sequences(tokens, lengths, blank.longest, blank.full)
        found = model.decode(target, hidden, encoded, memory).states
        others = found.gather(1, unsure[..., None].expand(-1, -1, found.shape[2]))
        for old, new in zip((tokens, levels), guessed(model, others, again, symbols), strict=True):
            old.scatter_(1, unsure, new.where(again, old.gather(1, unsure)))
    return tokens, levels

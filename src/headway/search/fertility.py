"""How a model with fertilities writes: the likeliest fertilities, their average, or the best of several draws."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int

from headway.errors import ConfigError
from headway.models.fertility import FertilityTransformer
from headway.models.model import Encoded
from headway.search.config import DecodingConfig
from headway.search.drafts import guessed, ranked
from headway.search.hypothesis import Hypothesis
from headway.search.request import Request, Symbols
from headway.search.sampling import uniform
from headway.sequences import Sequences


def write_by_fertilities(
    model: FertilityTransformer,
    source: Sequences,
    requests: Sequence[Request],
    config: DecodingConfig,
    symbols: Symbols,
) -> list[list[Hypothesis]]:
    """The outputs for every source, best first (Gu et al. 2018, section 4).

    The host asks twice what was computed: the fertilities, which it decides, and the outputs.
    """
    if config.shortest_ratio or config.shortest_extra:
        raise ConfigError("shortest: the fertilities of a fertility model alone say how long its outputs are")
    encoded = model.encode(source)
    levels = model.fertilities(encoded).cpu().numpy()
    chosen = [
        fertilities(levels[place, : len(request.source) + 1], config, request) for place, request in enumerate(requests)
    ]
    end = symbols.end if symbols.source_end is None else symbols.source_end
    tokens = [
        np.repeat((*request.source, end), row).tolist()
        for request, rows in zip(requests, chosen, strict=True)
        for row in rows
    ]
    copies = Sequences.pad(tokens, end).to(source.tokens.device)
    states = model.decode(copies, repeated(encoded, [len(rows) for rows in chosen])).states
    written = zip(
        *(each.tolist() for each in guessed(model, states, None if copies.full else copies.present, symbols)),
        strict=True,
    )
    found = []
    for place, rows in enumerate(chosen):
        drafts = []
        for row, (output, chances) in zip(rows, written):  # noqa: B905  # there are more for the next sentence
            length, chance = int(row.sum()), levels[place, np.arange(len(row)), row].sum()
            drafts.append((output[:length], chances[:length], float(chance)))
        found.append(ranked(drafts, config))
    return found


def fertilities(
    levels: Float[np.ndarray, "source fertilities"], config: DecodingConfig, request: Request
) -> list[Int[np.ndarray, " source"]]:
    """The fertilities of one source to write by, none twice, given the log-probabilities of each.

    Outputs have at least one token, and at most as many as the settings allow.
    """
    if config.fertilities == "average":
        average = (np.exp(levels) * np.arange(levels.shape[1])).sum(1)
        rows = [np.floor(average + 0.5).astype(np.int64)]
    else:
        rows = [levels.argmax(1)]
    if config.fertilities == "noisy":
        rows += list(_drawn(levels, config, request))
    fitted = [_fitted(row, levels, max(1, request.limit(config))) for row in rows]
    return [row for place, row in enumerate(fitted) if not any((row == other).all() for other in fitted[:place])]


def _drawn(
    levels: Float[np.ndarray, "source fertilities"], config: DecodingConfig, request: Request
) -> Int[np.ndarray, "beam source"]:
    """As many draws as the beam has room for beside the likeliest, by numbers that belong to the sentence alone."""
    heated = levels.astype(np.float64) / config.temperature
    cumulated = np.exp(heated - heated.max(1, keepdims=True)).cumsum(1)
    seeds = np.array([request.seed], np.uint64)
    numbers = np.stack([uniform(seeds, config.beam - 1, step)[0] for step in range(len(levels))], 1)
    bars = numbers[..., None] * cumulated[:, -1:]
    return (cumulated <= bars).sum(-1)


def _fitted(
    row: Int[np.ndarray, " source"], levels: Float[np.ndarray, "source fertilities"], limit: int
) -> Int[np.ndarray, " source"]:
    """The fertilities, if need be cut where the output is long enough; one token that may becomes one at least."""
    if row.sum() > limit:
        row = np.diff(np.minimum(row.cumsum(), limit), prepend=0)
    if not row.any():
        row = np.eye(len(row), dtype=np.int64)[levels[:, 1].argmax()]
    return row


def repeated(encoded: Encoded, times: Sequence[int]) -> Encoded:
    """Every source as often as it is said."""
    if all(count == 1 for count in times):
        return encoded
    source = encoded.source
    rows = torch.repeat_interleave(torch.tensor(times)).to(source.tokens.device)
    tokens, lengths, states = (each.index_select(0, rows) for each in (source.tokens, source.lengths, encoded.states))
    return Encoded(Sequences(tokens, lengths, source.longest, source.full), states)

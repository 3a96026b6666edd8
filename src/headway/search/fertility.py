"""How a model with fertilities writes: the likeliest fertilities, their average, or the best of several draws."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from headway.errors import ConfigError
from headway.models.fertility import FertilityTransformer
from headway.models.model import Encoded
from headway.search.config import DecodingConfig
from headway.search.drafts import guessed, ranked, repeated
from headway.search.graphs import placed, replayed
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
    device, most = source.tokens.device, model.config.longest
    states, known = replayed(_read, model, source.tokens, source.lengths, full=source.full)
    levels = known.cpu().numpy()
    chosen = [
        fertilities(levels[place, : len(request.source) + 1], config, request) for place, request in enumerate(requests)
    ]
    end = symbols.end if symbols.source_end is None else symbols.source_end
    tokens = [
        np.repeat((*request.source, end), row).tolist()
        for request, rows in zip(requests, chosen, strict=True)
        for row in rows
    ]
    copies = placed(tokens, end, device, most)
    parents = [place for place, rows in enumerate(chosen) for _ in rows]
    read = repeated(Encoded(source, states), parents, len(copies.tokens))
    outputs = replayed(
        _written,
        model,
        copies.tokens,
        copies.lengths,
        read.source.tokens,
        read.source.lengths,
        read.states,
        full=(copies.full, source.full),
        symbols=symbols,
    )
    written = zip(*(each.tolist() for each in outputs), strict=True)
    found = []
    for place, rows in enumerate(chosen):
        drafts = []
        for row, (output, chances) in zip(rows, written):  # noqa: B905  # there are more for the next sentence
            length, chance = int(row.sum()), levels[place, np.arange(len(row)), row].sum()
            drafts.append((output[:length], chances[:length], float(chance)))
        found.append(ranked(drafts, config))
    return found


def _read(
    model: FertilityTransformer, tokens: Int[Tensor, "batch source"], lengths: Int[Tensor, " batch"], *, full: bool
) -> tuple[Float[Tensor, "batch source dim"], Float[Tensor, "batch source fertilities"]]:
    """The states of sources, and the log-probabilities of all fertilities."""
    encoded = model.encode(Sequences(tokens, lengths, tokens.shape[1], full))
    return encoded.states, model.fertilities(encoded)


def _written(
    model: FertilityTransformer,
    copied: Int[Tensor, "batch time"],
    lengths: Int[Tensor, " batch"],
    source: Int[Tensor, "batch source"],
    source_lengths: Int[Tensor, " batch"],
    states: Float[Tensor, "batch source dim"],
    *,
    full: tuple[bool, bool],
    symbols: Symbols,
) -> tuple[Int[Tensor, "batch time"], Float[Tensor, "batch time"]]:
    """The likeliest tokens, given the copies of the source, and their log-probabilities."""
    copies = Sequences(copied, lengths, copied.shape[1], full[0])
    encoded = Encoded(Sequences(source, source_lengths, source.shape[1], full[1]), states)
    return guessed(model, model.decode(copies, encoded).states, None if copies.full else copies.present, symbols)


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

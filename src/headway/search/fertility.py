"""How a model with fertilities writes: the likeliest fertilities, their average, or the best of several draws."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headway.models.fertility import FertilityTransformer, copied
from headway.search.config import DecodingConfig
from headway.search.drafts import guessed, ranked, repeated
from headway.search.graphs import replayed, replays, rounded
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
    """The outputs for every source, best first (Gu et al. 2018, section 4)."""
    if config.fertilities != "noisy" and replays(source.tokens):
        return write_unasked(model, source, requests, config, symbols)
    return write_as_decided(model, source, requests, config, symbols)


def write_as_decided(
    model: FertilityTransformer,
    source: Sequences,
    requests: Sequence[Request],
    config: DecodingConfig,
    symbols: Symbols,
) -> list[list[Hypothesis]]:
    """The host decides on fertilities, so that it asks twice what was computed: these, and the outputs."""
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
    parents = [place for place, rows in enumerate(chosen) for _ in rows]
    states = model.decode(copies, repeated(encoded, parents, len(tokens))).states
    outputs = guessed(model, states, None if copies.full else copies.present, symbols)
    written = zip(*(each.tolist() for each in outputs), strict=True)
    found = []
    for place, rows in enumerate(chosen):
        drafts = []
        for row, (output, chances) in zip(rows, written):  # noqa: B905  # there are more for the next sentence
            length, chance = int(row.sum()), levels[place, np.arange(len(row)), row].sum()
            drafts.append((output[:length], chances[:length], float(chance)))
        found.append(ranked(drafts, config))
    return found


def write_unasked(
    model: FertilityTransformer,
    source: Sequences,
    requests: Sequence[Request],
    config: DecodingConfig,
    symbols: Symbols,
) -> list[list[Hypothesis]]:
    """The same from one graph, so that the host asks once; nothing is drawn.

    Outputs that are not much longer than their sources have room at first, and if need be the longest are given it.
    """
    limits = [max(1, request.limit(config)) for request in requests]
    limits += [1] * (len(source.tokens) - len(requests))
    most = rounded(max(limits), model.config.longest)
    for room in (min(most, source.longest * 5 // 4 + 4), most):
        (found,) = replayed(
            _unasked,
            model,
            source.tokens,
            source.lengths,
            torch.tensor(limits),
            room=room,
            average=config.fertilities == "average",
            symbols=symbols,
        )
        told = found[: len(requests)].tolist()
        if all(length <= room for length, *_ in told):
            break
    drafts = ((int(length), chance, rest) for length, chance, *rest in told)
    return [
        ranked([([int(token) for token in rest[:length]], rest[room : room + length], chance)], config)
        for length, chance, rest in drafts
    ]


def _unasked(
    model: FertilityTransformer,
    tokens: Int[Tensor, "batch source"],
    lengths: Int[Tensor, " batch"],
    limits: Int[Tensor, " batch"],
    *,
    room: int,
    average: bool,
    symbols: Symbols,
) -> tuple[Float[Tensor, "batch told"]]:
    """Length and log-probability of the fertilities for every source, then tokens, then their log-probabilities.

    In double precision, which has room for every token.
    """
    encoded = model.encode(Sequences(tokens, lengths, tokens.shape[1], False))
    levels = model.fertilities(encoded)
    rows = decided(levels, limits, average=average)
    totals = rows.sum(1)
    copies = Sequences(copied(tokens, rows, room), totals, room, False)
    written, chances = guessed(model, model.decode(copies, encoded).states, copies.present, symbols)
    chance = levels.gather(2, rows[..., None])[..., 0].sum(1)
    return (torch.cat((totals[:, None].double(), chance[:, None], written, chances), 1),)


def decided(
    levels: Float[Tensor, "batch source fertilities"], limits: Int[Tensor, " batch"], *, average: bool
) -> Int[Tensor, "batch source"]:
    """`fertilities` without its draws, for all sources at once and without asking the device."""
    if average:
        rows = ((levels.exp() * torch.arange(levels.shape[2], device=levels.device)).sum(2) + 0.5).long()
    else:
        rows = levels.argmax(2)
    ends = rows.cumsum(1).minimum(limits[:, None])
    rows = torch.cat((ends[:, :1], ends.diff(dim=1)), 1)
    alone = torch.zeros_like(rows).scatter(1, levels[..., 1].argmax(1, keepdim=True), 1)
    return rows.where(ends[:, -1:] > 0, alone)


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

"""What a model thinks of outputs that are handed to it: log-probabilities by teacher forcing."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from headway.errors import ConfigError, DataError
from headway.models.ctc import Ctc
from headway.models.model import Model, autoregressive
from headway.nn.rows import left_unread
from headway.search import Scoring
from headway.search.ctc import read_slots
from headway.sequences import Sequences
from headway.translator import Translator

CELLS = {"cpu": 4096, "cuda": 1 << 16}
"""Cells of the longer side read in one batch, by kind of device."""
LOGITS = {"cpu": 1 << 22, "cuda": 1 << 27}
"""Logits held at a time, in single precision."""

Tokens = tuple[Sequence[int], Sequence[int]]
"""A source and a target as token ids, neither with its end symbol."""


@dataclass(frozen=True)
class Scored:
    """What the model gives one target after its source."""

    log_probability: float
    """The sum over all tokens and the end symbol."""
    score: float
    """What a search would rank the target by: the log-probability after the penalties of the decoding settings."""
    token_log_probabilities: tuple[float, ...]
    """One for each token, and a last one for the end symbol; none where both sides are blank."""


@dataclass(frozen=True)
class Tally:
    """What several texts come to; the end of each counts as a token, a word and a character."""

    texts: int = 0
    tokens: int = 0
    words: int = 0
    """As white space divides them."""
    characters: int = 0
    log_probability: float = 0.0

    def with_text(self, text: str, scored: Scored) -> "Tally":
        """One text more."""
        return Tally(
            self.texts + 1,
            self.tokens + len(scored.token_log_probabilities),
            self.words + len(text.split()) + 1,
            self.characters + len(text) + 1,
            self.log_probability + scored.log_probability,
        )

    @property
    def perplexity(self) -> float:
        """How many tokens the model chose between, as it were: e to the mean surprise a token."""
        return self._perplexity(self.tokens)

    @property
    def word_perplexity(self) -> float:
        """The same a word, by which models of different tokens can be compared."""
        return self._perplexity(self.words)

    @property
    def bits_per_character(self) -> float:
        """The surprise a character, in bits."""
        return -self.log_probability / math.log(2.0) / max(self.characters, 1)

    def _perplexity(self, units: int) -> float:
        return math.exp(min(-self.log_probability / max(units, 1), 700.0))  # what a float holds


def tally(translator: Translator, texts: Sequence[str]) -> Tally:
    """What a language model gives texts, all of them together."""
    total = Tally()
    for text, scored in zip(texts, score(translator, [("", text) for text in texts]), strict=True):
        total = total.with_text(text, scored)
    return total


def score(translator: Translator, pairs: Sequence[tuple[str, str]], *, tags: Sequence[str] = ()) -> list[Scored]:
    """Score every target given its source, in order and whatever else is scored with it.

    `tags` are put before every source. A blank source is read as its end symbol alone, a blank target is the end symbol
    alone; a pair of two blanks gets zeros, unless the model reads no source: then a blank target is a text like any
    other, and sources are not looked at. A pair that is longer than the model knows is a `DataError`.
    """
    tokenized = tokenize(translator, pairs, tags=tags)
    for number, each in enumerate(tokenized, start=1):
        problem = too_long(translator, each)
        if problem:
            raise DataError(f"pair {number}: {problem}; split it or leave it out")
    return score_tokens(translator, tokenized)


def tokenize(translator: Translator, pairs: Sequence[tuple[str, str]], *, tags: Sequence[str] = ()) -> list[Tokens]:
    """The token ids of every pair, the source after its tags; a blank text has none."""
    sources = translator.tokenize([source for source, _ in pairs], tags=tags)
    targets = translator.target.encode([target for _, target in pairs])
    return [
        (source, ids if target.strip() else [])
        for source, ids, (_, target) in zip(sources, targets, pairs, strict=True)
    ]


def too_long(translator: Translator, pair: Tokens) -> str | None:
    """Say which side of a pair has more tokens than the model knows; None where both fit."""
    longest = translator.model.config.longest - 1
    for side, ids in zip(("source", "target"), pair, strict=True):
        if len(ids) > longest:
            return f"{len(ids)} {side} tokens, the model knows {longest}"
    if isinstance(translator.model, Ctc) and (lacking := translator.model.config.lacking(*pair)):
        return f"{len(pair[1])} target tokens, {lacking} more than its slots can write"
    return None


def score_tokens(translator: Translator, pairs: Sequence[Tokens]) -> list[Scored]:
    """Score token ids as they are; see `score`."""
    scored = [Scored(0.0, 0.0, ())] * len(pairs)
    cells = CELLS.get(translator.device.type, CELLS["cpu"])
    for batch in batches(pairs, cells, blank=not translator.model.config.reads_source):
        found = _score_batch(translator, [pairs[index] for index in batch])
        for index, each in zip(batch, found, strict=True):
            scored[index] = each
    return scored


def batches(pairs: Sequence[Tokens], room: int, *, squared: bool = False, blank: bool = False) -> Iterator[list[int]]:
    """Indices of pairs that are not blank on both sides, or with `blank` of all, of like length together.

    A batch of more than one has at most `room` cells on its longer side, or with `squared` as many weights.
    """
    longer = [max(map(len, pair)) for pair in pairs]
    order = sorted((index for index, length in enumerate(longer) if length or blank), key=lambda index: longer[index])
    batch: list[int] = []
    for index in order:
        width = longer[index] + 1
        if batch and (len(batch) + 1) * (width * width if squared else width) > room:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def padded(translator: Translator, pairs: Sequence[Tokens]) -> tuple[Sequences, Sequences]:
    """What encoder and decoder read of a batch: sources with their end symbols, targets after their start symbols."""
    sources = Sequences.pad([[*source, translator.source.end] for source, _ in pairs], translator.source.padding)
    given = Sequences.pad([[translator.target.start, *target] for _, target in pairs], translator.target.padding)
    return sources.to(translator.device), given.to(translator.device)


@torch.inference_mode()
def _score_batch(translator: Translator, pairs: Sequence[Tokens]) -> list[Scored]:
    if isinstance(translator.model, Ctc):
        return _score_slots(translator, translator.model, pairs)
    model, decoding, end = autoregressive(translator.model, "score"), translator.decoding, translator.target.end
    source, given = padded(translator, pairs)
    decoded = model.decode(given, model.encode(source), need_weights=decoding.coverage_penalty > 0)
    labels = torch.tensor([token for _, target in pairs for token in (*target, end)], device=translator.device)
    values = log_probabilities(model, decoded.states[given.present], labels).double().cpu()
    lengths = [len(target) + 1 for _, target in pairs]
    parts = [part.tolist() for part in values.split(lengths)]
    unread = None
    if decoding.coverage_penalty:
        if not decoded.cross_weights:
            told = f"coverage_penalty: this {model.config.architecture} model does not look at a source"
            raise ConfigError(f"{told}; set decoding.coverage_penalty to 0")
        unread = _unread(decoded.cross_weights[-1].mean(1), source, given)[:, None].double().cpu()
    totals = torch.tensor([[sum(part)] for part in parts], dtype=torch.float64)
    scoring = Scoring(decoding.length_penalty, decoding.coverage_penalty)
    scores = scoring.score(totals, torch.tensor(lengths)[:, None], unread)[:, 0].tolist()
    return [Scored(sum(part), each, tuple(part)) for part, each in zip(parts, scores, strict=True)]


def _score_slots(translator: Translator, model: Ctc, pairs: Sequence[Tokens]) -> list[Scored]:
    """The same for a model that writes all tokens at once: the sum over all ways to do so."""
    parts = read_slots(model, padded(translator, pairs)[0], [target for _, target in pairs])
    scoring = Scoring(translator.decoding.length_penalty)
    return [Scored(sum(part), sum(part) / scoring.penalty(len(part)), tuple(part)) for part in parts]


def log_probabilities(
    model: Model, states: Float[Tensor, "tokens dim"], labels: Int[Tensor, " tokens"]
) -> Float[Tensor, " tokens"]:
    """The log-probability of every label, in single precision, from a bounded number of logits at a time."""
    size = max(1, LOGITS.get(states.device.type, LOGITS["cpu"]) // len(model.output.weight))
    parts = zip(states.split(size), labels.split(size), strict=True)
    return -torch.cat([F.cross_entropy(model.output.wide(part), label, reduction="none") for part, label in parts])


def _unread(
    weights: Float[Tensor, "batch target source"], source: Sequences, given: Sequences
) -> Float[Tensor, " batch"]:
    """How little of the sources was read while the targets were written, as a search keeps account of it."""
    coverage = (weights.float() * given.present[:, :, None]).sum(1, keepdim=True)
    return left_unread(coverage, ~source.present[:, None])[:, 0]

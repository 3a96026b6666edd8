"""Judging a model while it is trained."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from headway.data.batches import Batch
from headway.data.pairs import Pair
from headway.data.preparation import Prepared
from headway.data.store import encode_pairs
from headway.data.tokenizer import Tokenizer
from headway.evaluation.yardstick import Yardstick
from headway.models.model import Model
from headway.objectives import Objective
from headway.search import DecodingConfig, Request
from headway.sequences import Sequences
from headway.training.trainer import Validation
from headway.translator import Translator

BRIEF = DecodingConfig(beam=1, limit_ratio=1.5, limit_extra=10)
"""Greedy, and never long: a model that has not yet learnt to stop would take most of the time."""
DRAWN = DecodingConfig(sample=True, top_p=0.9, limit_extra=60)
"""The same for texts that go on from a beginning."""
COUNTED = 100_000
"""Pairs whose target tokens are counted at most."""
GIVEN = 8
"""Tokens of such a beginning at most."""


@dataclass(frozen=True)
class Validator:
    """Judges a model on the validation pairs: loss on all, BLEU, chrF and samples on some.

    A language model has nothing to translate: it is judged by its loss, and samples are texts that it goes on with.
    """

    source: Tokenizer
    target: Tokenizer
    pairs: list[Pair]
    batches: list[Batch]
    device: torch.device
    translated: int
    """Pairs translated for BLEU and chrF at most."""
    samples: int
    """Translations shown."""
    objective: Objective
    """Its surprise is the validation loss."""

    def __call__(self, model: Model, check: Callable[[], None]) -> Validation:
        """Validate; `check` is called between batches and may raise to stop."""
        scores = {"loss": self.loss(model, check)}
        if not model.config.reads_source:
            return Validation(scores | {"perplexity": math.exp(min(scores["loss"], 700.0))}, self._texts(model, check))
        pairs = self.translated_pairs
        translator = Translator(model, self.source, self.target, BRIEF)
        sentences = [ids for pair in pairs for ids in translator.tokenize([pair.source], tags=pair.tags)]
        found = translator.search([translator.request(ids) for ids in sentences], check=check)
        outputs = [translator.detokenize(each[0].tokens) if each else "" for each in found]
        scores |= self._yardstick(outputs)
        samples = [
            line
            for pair, output in list(zip(pairs, outputs, strict=True))[: self.samples]
            for line in (f"  source     {pair.source}", f"  reference  {pair.target}", f"  output     {output}")
        ]
        constant = len(set(outputs)) == 1 < len({pair.target for pair in pairs})
        return Validation(scores, samples, constant)

    def _texts(self, model: Model, check: Callable[[], None]) -> list[str]:
        """The beginnings of some validation lines, and how the model goes on with them."""
        translator = Translator(model, self.source, self.target, DRAWN)
        lines = self.target.encode([pair.target for pair in self.pairs[: self.samples]])
        given = [tuple(ids[: min(len(ids) // 2, GIVEN, translator.longest // 2)]) for ids in lines]
        found = translator.search([Request((), ids, seed=number) for number, ids in enumerate(given)], check=check)
        return [
            line
            for ids, (text, *_) in zip(given, found, strict=True)
            for line in (
                f"  beginning  {self.target.decode(ids)}",
                f"  output     {translator.detokenize(text.tokens)}",
            )
        ]

    @cached_property
    def translated_pairs(self) -> list[Pair]:
        """Those that are translated, spread over all: a corpus may be sorted, or be several in turn."""
        return spread(self.pairs, self.translated)

    @cached_property
    def _yardstick(self) -> Yardstick:
        return Yardstick([pair.target for pair in self.translated_pairs])

    def loss(self, model: Model, check: Callable[[], None]) -> float:
        """Nats a target token, over all validation pairs."""
        surprise, units = 0.0, 0
        for batch in self.batches:
            check()
            loss = self.objective(model, batch.to(self.device))
            surprise, units = surprise + float(loss.surprise), units + loss.units
        return surprise / max(units, 1)


T = TypeVar("T")


def spread(items: Sequence[T], most: int) -> list[T]:
    """At most so many of the items, at equal distances."""
    count = min(most, len(items))
    return [items[number * len(items) // count] for number in range(count)]


def validation_batches(prepared: Prepared, longest: int, cells: int = 4096, most: int | None = None) -> list[Batch]:
    """The validation pairs as padded batches, those of like length together; longer ones than the model knows not.

    Of more than `most` pairs, so many are taken, spread over all.
    """
    source, target = prepared.source, prepared.target
    sides = zip(*encode_pairs(prepared.split.valid, (source, target)), strict=True)
    pairs = [(place, *pair) for place, pair in enumerate(sides) if max(map(len, pair)) < longest]
    if most is not None:
        pairs = spread(pairs, most)
    groups: list[list[_Placed]] = [[]]
    for pair in sorted(pairs, key=lambda pair: max(map(len, pair[1:]))):
        if (len(groups[-1]) + 1) * (max(map(len, pair[1:])) + 1) > cells and groups[-1]:
            groups.append([])
        groups[-1].append(pair)
    return [_batch(prepared, group) for group in groups if group]


def log_frequencies(prepared: Prepared) -> NDArray[np.float64]:
    """The log-probability of every target token by its count in training plus one; a large corpus is sampled."""
    store, target = prepared.store, prepared.target
    pairs = np.arange(0, len(store), max(1, -(-len(store) // COUNTED)))
    tokens, _ = store.gather("target", pairs)
    counts = np.bincount(tokens, minlength=target.size).astype(np.float64)
    counts[target.end] += len(pairs)
    return np.asarray(np.log((counts + 1) / (counts.sum() + target.size)))


def unigram_loss(prepared: Prepared, batches: list[Batch]) -> float:
    """Nats per validation token of a unigram model: a model that is no better has not learned to translate."""
    target, logs = prepared.target, log_frequencies(prepared)
    labels = [batch.labels[batch.labels != target.padding].numpy() for batch in batches]
    return -float(logs[np.concatenate(labels)].mean()) if labels else math.inf


_Placed = tuple[int, list[int], list[int]]
"""A validation pair as ids, and its place among all."""


def _batch(prepared: Prepared, group: list[_Placed]) -> Batch:
    source, target = prepared.source, prepared.target
    read = Sequences.pad([[*left, source.end] for _, left, _ in group], source.padding)
    given = Sequences.pad([[target.start, *right] for _, _, right in group], target.padding)
    labels = Sequences.pad([[*right, target.end] for _, _, right in group], target.padding).tokens
    linked = None
    if prepared.valid_alignment is not None:
        places = np.array([place for place, _, _ in group])
        linked = torch.from_numpy(prepared.valid_alignment.mask(places, given.longest, read.longest))
    return Batch(read, given, labels, sum(len(right) + 1 for _, _, right in group), linked)

"""Judging a model while it is trained."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch

from headway.data.batches import Batch
from headway.data.pairs import Pair
from headway.data.preparation import Prepared
from headway.data.tokenizer import Tokenizer
from headway.evaluation.yardstick import Yardstick
from headway.models.catalog import Model
from headway.objectives import LabelSmoothedLikelihood
from headway.search import DecodingConfig
from headway.sequences import Sequences
from headway.training.trainer import Validation
from headway.translator import Translator

BRIEF = DecodingConfig(beam=1, limit_ratio=1.5, limit_extra=10)
"""Greedy, and never long: a model that has not yet learnt to stop would take most of the time."""


@dataclass(frozen=True)
class Validator:
    """Judges a model on the validation pairs: loss on all, BLEU, chrF and samples on some."""

    source: Tokenizer
    target: Tokenizer
    pairs: list[Pair]
    batches: list[Batch]
    device: torch.device
    translated: int
    """Pairs translated for BLEU and chrF at most."""
    samples: int
    """Translations shown."""

    def __call__(self, model: Model, check: Callable[[], None]) -> Validation:
        """Validate; `check` is called between batches and may raise to stop."""
        scores = {"loss": self.loss(model, check)}
        pairs = self.pairs[: self.translated]
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
        return Validation(scores, samples)

    @cached_property
    def _yardstick(self) -> Yardstick:
        return Yardstick([pair.target for pair in self.pairs[: self.translated]])

    def loss(self, model: Model, check: Callable[[], None]) -> float:
        """Nats a target token, over all validation pairs."""
        surprise, units, objective = 0.0, 0, LabelSmoothedLikelihood()
        for batch in self.batches:
            check()
            loss = objective(model, batch.to(self.device))
            surprise, units = surprise + float(loss.surprise), units + loss.units
        return surprise / max(units, 1)


def validation_batches(prepared: Prepared, longest: int, cells: int = 4096) -> list[Batch]:
    """The validation pairs as padded batches, those of like length together; longer ones than the model knows not."""
    source, target = prepared.source, prepared.target
    valid = prepared.split.valid
    sources = zip(valid, source.encode([pair.source for pair in valid]), strict=True)
    tagged = [source.tagged(pair.tags) + ids for pair, ids in sources]
    sides = zip(tagged, target.encode([pair.target for pair in valid]), strict=True)
    pairs = sorted((pair for pair in sides if max(map(len, pair)) < longest), key=lambda pair: max(map(len, pair)))
    groups: list[list[tuple[list[int], list[int]]]] = [[]]
    for pair in pairs:
        if (len(groups[-1]) + 1) * (max(map(len, pair)) + 1) > cells and groups[-1]:
            groups.append([])
        groups[-1].append(pair)
    return [
        Batch(
            Sequences.pad([[*left, source.end] for left, _ in group], source.padding),
            Sequences.pad([[target.start, *right] for _, right in group], target.padding),
            Sequences.pad([[*right, target.end] for _, right in group], target.padding).tokens,
            sum(len(right) + 1 for _, right in group),
        )
        for group in groups
        if group
    ]

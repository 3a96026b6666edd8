"""Outputs put in another order by what a second model thinks of them: a language model, or another translator.

Texts go from one model to the other, so that no two of them need one vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headway.models.ctc import Ctc
from headway.models.model import autoregressive
from headway.scoring import Tokens, score_tokens, tokenize, too_long
from headway.search import Hypothesis, Scoring
from headway.translation import Translation
from headway.translator import Translator


@dataclass(frozen=True)
class Rescorer:
    """A model that is asked about the outputs of another."""

    model: Translator
    weight: float = 1.0
    """What its log-probability counts for."""

    def __post_init__(self) -> None:
        if not isinstance(self.model.model, Ctc):  # of others the probability of a text is known token by token alone
            autoregressive(self.model.model, "rescore")


def rescore(
    found: Sequence[Translation], rescorers: Sequence[Rescorer], *, own: float = 1.0, length_penalty: float = 0.0
) -> list[Translation]:
    """The same outputs, for every source by `own`·score + Σ weight·log p(text) / penalty, best first.

    The score is that of the search, and each rescorer's log-probability is divided by the length penalty of the search,
    so that both count alike in outputs of any length. With `own` 0 the rescorers alone decide, as in noisy parallel
    decoding (Gu et al. 2018). An output that is too long for a rescorer stands after all others.
    """
    pieces = [piece for each in found for piece in each.passages or (each,)]
    values = [_values(pieces, rescorer) for rescorer in rescorers]
    scoring, ordered, place = Scoring(length_penalty), [], 0
    for piece in pieces:
        count = len(piece.hypotheses)
        given = [
            [None if value is None else rescorer.weight * value for value in each[place : place + count]]
            for each, rescorer in zip(values, rescorers, strict=True)
        ]
        ordered.append(_reordered(piece, given, own, scoring))
        place += count
    rest = iter(ordered)
    return [_joined(each, [next(rest) for _ in each.passages or (each,)]) for each in found]


def shortened(translation: Translation, most: int) -> Translation:
    """The same output with no more than so many hypotheses."""
    if translation.passages or len(translation.hypotheses) <= most:
        return translation
    return translation.with_hypotheses(translation.hypotheses[:most])


def _joined(whole: Translation, pieces: list[Translation]) -> Translation:
    return whole.with_passages(pieces) if whole.passages else pieces[0]


def _reordered(
    piece: Translation, given: Sequence[Sequence[float | None]], own: float, scoring: Scoring
) -> Translation:
    """The hypotheses of one piece by their new scores; those that some rescorer cannot read come last."""
    known: list[Hypothesis] = []
    unknown: list[Hypothesis] = []
    for place, each in enumerate(piece.hypotheses):
        values = [values[place] for values in given]
        told = [value for value in values if value is not None]
        penalty = scoring.penalty(len(each.tokens) + each.finished)
        score = own * each.score + sum(told) / penalty
        (known if len(told) == len(values) else unknown).append(replace(each, score=score))
    order = [*sorted(known, key=lambda each: (not each.finished, -each.score)), *unknown]
    return piece.with_hypotheses(order)


def _values(pieces: Sequence[Translation], rescorer: Rescorer) -> list[float | None]:
    """The log-probability of every hypothesis of every piece, one after the other; None of what is too long."""
    tokens = [pair for piece in pieces for pair in _read(piece, rescorer.model)]
    fits = [place for place, pair in enumerate(tokens) if too_long(rescorer.model, pair) is None]
    values: list[float | None] = [None] * len(tokens)
    for place, scored in zip(fits, score_tokens(rescorer.model, [tokens[place] for place in fits]), strict=True):
        values[place] = scored.log_probability
    return values


def _read(piece: Translation, model: Translator) -> list[Tokens]:
    """What the rescorer reads of a piece: the source, where it has one, with the tags it knows, and each output."""
    texts = (str(piece), *piece.alternatives)[: len(piece.hypotheses)]
    source = piece.source if model.model.config.reads_source else ""
    tags = [tag for tag in piece.tags if tag in model.source.tags]
    return tokenize(model, [(source, text) for text in texts], tags=tags)

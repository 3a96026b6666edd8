"""BLEU in its usual variants, chrF and exact matches of one system's outputs, with their signatures."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from headway.evaluation.parallel import References, reference_lists

SUSPICIOUS = 0.5
"""From this share of outputs ending in ' .' on, a text is probably tokenised."""


@dataclass(frozen=True)
class Score:
    """One figure between 0 and 100 and the signature that tells others how to reproduce it."""

    name: str
    value: float
    signature: str
    detail: str = ""


@dataclass(frozen=True)
class ScoreCard:
    """The scores of one system, the headline first; figures of unlike signatures are never comparable."""

    sentences: int
    scores: tuple[Score, ...]
    exact: float
    """Percentage of outputs that equal one of their references, blanks at the ends aside."""
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Score:
        return next(score for score in self.scores if score.name == name)

    def to_json(self) -> dict[str, Any]:
        """The card as plain numbers, strings, lists and dictionaries."""
        return asdict(self) | {"scores": [asdict(score) for score in self.scores], "notes": list(self.notes)}

    def lines(self) -> list[str]:
        """The card as an aligned table, one score to a line."""
        rows = [
            (score.name, score.value, "  ".join(filter(None, (score.signature, score.detail)))) for score in self.scores
        ]
        rows.append(("exact match", self.exact, f"{self.sentences} sentences"))
        width = max(len(name) for name, _, _ in rows)
        return [f"{name:<{width}}  {value:6.2f}  {rest}" for name, value, rest in rows] + list(self.notes)


def score(hypotheses: Sequence[str], references: References, *, tokenized: bool = False) -> ScoreCard:
    """Score outputs against one reference each, or against several lists of references.

    Every usual variant stands side by side; where the text is already `tokenized`, BLEU that splits at blanks alone
    comes first.
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    lists = reference_lists(references, len(hypotheses))
    variants = [("BLEU", "13a"), ("BLEU tokenised", "none")]
    metrics: dict[str, Any] = {}
    for name, tokenize in reversed(variants) if tokenized else variants:
        # force: sacreBLEU's own warning about tokenised text would come once a variant; our note says it once.
        metrics[name] = BLEU(tokenize=tokenize, force=True)
        metrics[f"{name} lower-cased"] = BLEU(tokenize=tokenize, lowercase=True, force=True)
    metrics |= {"chrF": CHRF(), "chrF++": CHRF(word_order=2)}
    scores = tuple(_measure(name, metric, hypotheses, lists) for name, metric in metrics.items())
    return ScoreCard(len(hypotheses), scores, _exact(hypotheses, lists), () if tokenized else _notes(hypotheses))


def _measure(name: str, metric: Any, hypotheses: Sequence[str], references: list[list[str]]) -> Score:
    result = metric.corpus_score(list(hypotheses), references)
    detail = f"brevity penalty {result.bp:.3f}, length ratio {result.ratio:.3f}" if "BLEU" in name else ""
    return Score(name, float(result.score), str(metric.get_signature()), detail)


def _exact(hypotheses: Sequence[str], references: list[list[str]]) -> float:
    matches = sum(
        hypothesis.strip() in {reference.strip() for reference in choices}
        for hypothesis, *choices in zip(hypotheses, *references, strict=True)
    )
    return 100 * matches / len(hypotheses)


def _notes(hypotheses: Sequence[str]) -> tuple[str, ...]:
    spaced = sum(hypothesis.rstrip().endswith(" .") for hypothesis in hypotheses)
    if spaced < SUSPICIOUS * len(hypotheses):
        return ()
    return (
        f"note: {spaced} of {len(hypotheses)} outputs end in ' .': the text looks tokenised; say so or detokenise it",
    )

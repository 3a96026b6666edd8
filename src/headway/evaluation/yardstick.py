"""BLEU and chrF against the same references again and again, as while a model is trained."""

from collections.abc import Sequence
from typing import Any, Literal

from headway.evaluation.parallel import reference_lists


class Yardstick:
    """The headline BLEU and chrF of `score`, or one of them, in a fraction of its time.

    References are looked through once. Of the time for a thousand sentences BLEU takes a third, chrF the rest.
    """

    def __init__(self, references: Sequence[str], names: Sequence[Literal["bleu", "chrf"]] = ("bleu", "chrf")) -> None:
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF

        self.references = list(references)
        given: dict[str, Any] = {"references": [self.references]}
        self._metrics = {name: BLEU(force=True, **given) if name == "bleu" else CHRF(**given) for name in names}

    def __call__(self, hypotheses: Sequence[str]) -> dict[str, float]:
        """The scores by name, of one output for each reference."""
        reference_lists(self.references, len(hypotheses))
        return {name: float(each.corpus_score(list(hypotheses), None).score) for name, each in self._metrics.items()}

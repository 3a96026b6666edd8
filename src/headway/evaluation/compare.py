"""Whether one system is really better than another: paired bootstrap resampling."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from headway.errors import ConfigError
from headway.evaluation.parallel import References, reference_lists

LEVEL = 0.05
"""A difference is called significant below this probability of having come by chance."""


@dataclass(frozen=True)
class Difference:
    """Two systems under one metric; the intervals are half the width of the 95 % range around each bootstrap mean."""

    metric: str
    signature: str
    a: float
    a_interval: float
    b: float
    b_interval: float
    p_value: float

    @property
    def delta(self) -> float:
        """By how much B is better than A."""
        return self.b - self.a

    @property
    def significant(self) -> bool:
        """Whether chance is an unlikely explanation."""
        return self.p_value < LEVEL

    def line(self) -> str:
        """The finding in plain words."""
        figures = (
            f"A {self.a:.2f} ± {self.a_interval:.2f}, B {self.b:.2f} ± {self.b_interval:.2f}, p = {self.p_value:.3f}"
        )
        if not self.significant:
            return f"{self.metric}: no significant difference ({figures})"
        better = "B" if self.delta > 0 else "A"
        return f"{self.metric}: {better} is better by {abs(self.delta):.2f} ({figures})"


@dataclass(frozen=True)
class Comparison:
    """Two systems on the same references, metric by metric."""

    sentences: int
    samples: int
    differences: tuple[Difference, ...]

    def __getitem__(self, metric: str) -> Difference:
        return next(difference for difference in self.differences if difference.metric == metric)

    def to_json(self) -> dict[str, Any]:
        """The comparison as plain numbers, strings, lists and dictionaries."""
        differences = [asdict(d) | {"delta": d.delta, "significant": d.significant} for d in self.differences]
        return asdict(self) | {"differences": differences}

    def lines(self) -> list[str]:
        """One sentence for each metric, then how it was tested."""
        tested = (
            f"paired bootstrap, {self.samples} samples of {self.sentences} sentences, significant below p = {LEVEL}"
        )
        return [*(difference.line() for difference in self.differences), tested]


def compare(
    hypotheses_a: Sequence[str],
    hypotheses_b: Sequence[str],
    references: References,
    *,
    samples: int = 1000,
    seed: int = 12345,
) -> Comparison:
    """Test the difference in BLEU and in chrF by paired bootstrap resampling (Koehn 2004).

    Both systems are measured by the same metrics on the same references, and drawn in the same samples. Equal scores
    have a p-value of 1: that nothing differs needs no explanation.
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.significance import PairedTest

    if samples < 1 or seed < 1:
        raise ConfigError(f"evaluation: samples is {samples} and seed {seed}; both must be 1 or more")
    reference_lists(references, len(hypotheses_a), "outputs of A")
    lists = reference_lists(references, len(hypotheses_b), "outputs of B")
    systems: list[tuple[str, Sequence[str]]] = [("A", list(hypotheses_a)), ("B", list(hypotheses_b))]
    metrics = {"BLEU": BLEU(force=True), "chrF": CHRF()}
    with _sacrebleu_seed(seed):
        signatures, results = PairedTest(systems, metrics, lists, test_type="bs", n_samples=samples, n_jobs=1)()
    tested = [name for name in results if name != "System"]  # in our order, but chrF is called by its beta there: chrF2
    differences = [
        _difference(ours, str(signatures[name]), *results[name]) for ours, name in zip(metrics, tested, strict=True)
    ]
    return Comparison(len(hypotheses_a), samples, tuple(differences))


def _difference(metric: str, signature: str, a: Any, b: Any) -> Difference:
    p_value = float(b.p_value) if a.score != b.score else 1.0
    return Difference(metric, signature, float(a.score), float(a.ci), float(b.score), float(b.ci), p_value)


@contextmanager
def _sacrebleu_seed(seed: int) -> Iterator[None]:
    """Set the seed the only way sacreBLEU offers, and put back what was there."""
    before = os.environ.get("SACREBLEU_SEED")
    os.environ["SACREBLEU_SEED"] = str(seed)
    try:
        yield
    finally:
        del os.environ["SACREBLEU_SEED"]
        if before is not None:
            os.environ["SACREBLEU_SEED"] = before

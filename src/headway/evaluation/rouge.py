"""ROUGE of summaries (Lin 2004): shared words, shared pairs of words, and the longest common subsequence."""

import re
from collections import Counter
from collections.abc import Sequence

from headway.evaluation.parallel import References, reference_lists

_WORD = re.compile(r"[^\W_]+")


def rouge(hypotheses: Sequence[str], references: References) -> dict[str, float]:
    """ROUGE-1, ROUGE-2 and ROUGE-L as percentages: the F1 of every output, then the mean over all.

    Words are runs of letters and digits, lower-cased and not stemmed; of several references the best one counts.
    """
    lists = [[_words(line) for line in lines] for lines in reference_lists(references, len(hypotheses))]
    totals = {"ROUGE-1": 0.0, "ROUGE-2": 0.0, "ROUGE-L": 0.0}
    for hypothesis, *choices in zip(hypotheses, *lists, strict=True):
        words = _words(hypothesis)
        found = [(_shared(words, choice, 1), _shared(words, choice, 2), _ordered(words, choice)) for choice in choices]
        for name, each in zip(totals, zip(*found, strict=True), strict=True):
            totals[name] += max(each)
    return {name: 100 * total / len(hypotheses) for name, total in totals.items()}


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _shared(words: list[str], reference: list[str], order: int) -> float:
    grams = [Counter(zip(*(each[start:] for start in range(order)), strict=False)) for each in (words, reference)]
    return _f1((grams[0] & grams[1]).total(), grams[0].total(), grams[1].total())


def _ordered(words: list[str], reference: list[str]) -> float:
    before = [0] * (len(reference) + 1)
    for word in words:
        row = [0]
        for place, other in enumerate(reference):
            row.append(before[place] + 1 if word == other else max(before[place + 1], row[-1]))
        before = row
    return _f1(before[-1], len(words), len(reference))


def _f1(common: int, found: int, wanted: int) -> float:
    return 2 * common / (found + wanted) if common else 0.0

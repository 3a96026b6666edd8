"""Edits between outputs and references: how many tokens are wrong."""

from collections.abc import Sequence

from headway.evaluation.parallel import References, reference_lists


def distance(one: Sequence[str], other: Sequence[str]) -> int:
    """The fewest insertions, deletions and replacements that turn one sequence into the other (Levenshtein 1966)."""
    before = list(range(len(other) + 1))
    for place, item in enumerate(one, start=1):
        row = [place]
        for number, wanted in enumerate(other):
            row.append(min(before[number + 1] + 1, row[-1] + 1, before[number] + (item != wanted)))
        before = row
    return before[-1]


def token_error_rate(hypotheses: Sequence[str], references: References) -> float:
    """Edits to a hundred reference tokens, as white space divides them; of several references the nearest counts.

    It may be over 100. Of references equally near the longest counts.
    """
    lists = reference_lists(references, len(hypotheses))
    edits = tokens = 0
    for hypothesis, *choices in zip(hypotheses, *lists, strict=True):
        words = hypothesis.split()
        nearest = min((distance(words, choice.split()), -len(choice.split())) for choice in dict.fromkeys(choices))
        edits, tokens = edits + nearest[0], tokens - nearest[1]
    return 100 * edits / max(tokens, 1)

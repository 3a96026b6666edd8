"""How well texts agree with one another: chrF of every text against every other, for minimum-Bayes-risk decoding."""

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float, Int

from headway.errors import DataError

ORDER = 6
"""The longest n-grams, in characters."""
BETA = 2.0
"""How many times as much recall weighs as precision."""

_AT_ONCE = 1 << 22
"""Cells of texts by n-grams that are held at once."""


def agreement(texts: Sequence[str]) -> Float[np.ndarray, "texts texts"]:
    """The sentence chrF of every text (row) against every text as its reference (column), from 0 to 100.

    It is sacreBLEU's default (Popović 2015): white space removed, and orders for which either text is too short are
    left out. The n-grams of a text are counted once, not once for every other.
    """
    stripped = ["".join(text.split()) for text in texts]
    lengths = np.array([len(text) for text in stripped], np.int64)
    precision, recall, orders = np.zeros((3, len(texts), len(texts)))
    for order, grams in enumerate(_grams(stripped), start=1):
        totals = np.maximum(lengths - order + 1, 0)
        comparable = (totals[:, None] > 0) & (totals > 0)
        matches = _matches(grams, np.repeat(np.arange(len(texts)), totals), len(texts))
        precision += matches / np.maximum(totals, 1)[:, None]
        recall += matches / np.maximum(totals, 1)
        orders += comparable
    precision, recall = (each / np.maximum(orders, 1) for each in (precision, recall))
    weighted = BETA**2 * precision + recall
    scores = (1 + BETA**2) * precision * recall / np.where(weighted > 0, weighted, 1.0)
    return 100 * scores


def consensus(texts: Sequence[str], weights: Sequence[float] | None = None) -> list[int]:
    """The places of the texts by their expected agreement with all of them, highest first; of equal ones the earlier.

    With `weights`, such as probabilities, some count for more as references: the first is then the choice of
    minimum-Bayes-risk decoding (Eikema and Aziz 2020; Freitag et al. 2022).
    """
    shares = np.ones(len(texts)) if weights is None else np.asarray(weights, np.float64)
    if len(shares) != len(texts):
        raise DataError(f"consensus: {len(shares)} weights for {len(texts)} texts; give one for each")
    if not texts:
        return []
    if not (np.isfinite(shares).all() and shares.min() >= 0 and shares.sum() > 0):
        raise DataError("consensus: a weight is negative or not finite, or all are 0; give probabilities")
    expected = (agreement(texts) * (shares / shares.sum())).sum(axis=1)
    ranked = np.argsort(-expected.round(9), kind="stable")  # rounded: the order of a sum must not decide
    return [int(place) for place in ranked]


def _grams(texts: Sequence[str]) -> Iterator[Int[np.ndarray, " tokens"]]:
    """For every order the n-grams of all texts in a row: a number for each, equal where they are."""
    codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), np.dtype("<u4"))
    letters = np.unique(codes, return_inverse=True)[1].astype(np.int64)
    ends = np.repeat(np.cumsum([len(text) for text in texts]), [len(text) for text in texts])
    left = ends - np.arange(len(letters))  # characters to the end of the text
    grams = letters.copy()
    for order in range(1, ORDER + 1):
        whole = left >= order
        yield grams[whole]
        following = np.append(letters, np.zeros(order, np.int64))[order:]
        grams = np.unique(grams * (len(letters) + 1) + following, return_inverse=True)[1].astype(np.int64)


def _matches(
    grams: Int[np.ndarray, " tokens"], owners: Int[np.ndarray, " tokens"], count: int
) -> Float[np.ndarray, "texts texts"]:
    """How many n-grams every two texts have in common, each as often as it stands in both.

    The k-th occurrence of an n-gram counts as a thing of its own: what two sets of such things share is the number.
    """
    order = np.lexsort((owners, grams))
    grams, owners = grams[order], owners[order]
    changes = np.append(True, (np.diff(grams) != 0) | (np.diff(owners) != 0))[: len(grams)]
    starts = np.flatnonzero(changes)
    occurrence = np.arange(len(grams)) - np.repeat(starts, np.diff(np.append(starts, len(grams))))
    things = np.unique(grams * (len(grams) + 1) + occurrence, return_inverse=True)[1]
    found = np.zeros((count, count))
    width = max(1, _AT_ONCE // max(1, count))
    for first in range(0, int(things.max(initial=-1)) + 1, width):
        here = (things >= first) & (things < first + width)
        table = np.zeros((count, min(width, int(things.max()) + 1 - first)), np.float32)
        table[owners[here], things[here] - first] = 1.0
        found += table @ table.T
    return found

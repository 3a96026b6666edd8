"""Connectionist temporal classification by brute force: every path there is."""

import math
from collections import defaultdict
from itertools import groupby, product


def collapsed(path, blank):
    """Equal neighbours are one, and then blanks are none."""
    return tuple(label for label, _ in groupby(path) if label != blank)


def all_outputs(log_probabilities, blank):
    """The log-probability of every output that slots, a list of log-probabilities each, can write."""
    totals = defaultdict(float)
    for path in product(range(blank + 1), repeat=len(log_probabilities)):
        worth = sum(slot[label] for slot, label in zip(log_probabilities, path, strict=True))
        totals[collapsed(path, blank)] += math.exp(worth)
    return {output: math.log(total) for output, total in totals.items() if total > 0.0}

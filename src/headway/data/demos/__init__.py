"""Corpora made on the spot, for a first run that needs no download."""

from collections.abc import Callable

from headway.data.demos.dates import dates
from headway.data.demos.demo import Demo, Pair
from headway.data.demos.phrases import phrases

DEMOS: dict[str, Callable[..., Demo]] = {"phrases": phrases, "dates": dates}

__all__ = ["DEMOS", "Demo", "Pair", "dates", "phrases"]

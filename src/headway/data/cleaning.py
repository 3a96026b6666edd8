"""Which pairs of a corpus to train on."""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from headway.config import Settings
from headway.data.pairs import Pair
from headway.data.text import hashed


class CleaningConfig(Settings):
    """Which pairs are left out of training; nothing is, but empty ones, unless it is asked for."""

    drop_empty: bool = True
    """Leave out pairs of which one side is empty or white space only."""
    longest_words: PositiveInt | None = None
    """Leave out pairs of which one side has more words than this, as white space divides them."""
    longest_characters: PositiveInt | None = None
    """Leave out pairs of which one side has more characters than this."""
    longest_ratio: Annotated[float, Field(ge=1)] | None = None
    """Leave out pairs of which one side has more than this many times the characters of the other."""
    drop_duplicates: bool = False
    """Leave out a pair that came before, source and target alike; takes about 0.7 GB of memory for 10 million pairs."""
    unicode: Literal["keep", "nfc"] = "keep"
    """Leave the text as it is, or bring it to Unicode's composed form NFC before anything else."""


def clean(
    pairs: Iterable[Pair], config: CleaningConfig, counts: Counter[str], *, alone: bool = False
) -> Iterator[Pair]:
    """Hand on the pairs that `config` keeps, in order, and count in `counts` why each other one was left out.

    Those of a corpus that has targets `alone` are judged by them.
    """
    seen: set[int] = set()
    for given in pairs:
        pair = _composed(given) if config.unicode == "nfc" else given
        reason = _fault(pair._replace(source=pair.target) if alone else pair, config)
        if reason is None and config.drop_duplicates:
            key = hashed(pair.source, pair.target, *pair.tags)
            if key in seen:
                reason = "duplicate"
            seen.add(key)
        if reason is None:
            yield pair
        else:
            counts[reason] += 1


def _composed(pair: Pair) -> Pair:
    source, target = (unicodedata.normalize("NFC", text) for text in (pair.source, pair.target))
    return pair._replace(source=source, target=target)


def _fault(pair: Pair, config: CleaningConfig) -> str | None:
    source, target = pair.source, pair.target
    shorter, longer = sorted((len(source), len(target)))
    if config.drop_empty and (not source or source.isspace() or not target or target.isspace()):
        return "empty"
    if config.longest_characters is not None and longer > config.longest_characters:
        return "too long"
    if config.longest_words is not None and max(len(source.split()), len(target.split())) > config.longest_words:
        return "too long"
    if config.longest_ratio is not None and longer > config.longest_ratio * shorter:
        return "ratio"
    return None

"""Dates as people write them in many languages, to ISO 8601: `lundi 14 septembre 2026` becomes `2026-09-14`."""

import re
from collections.abc import Callable
from datetime import date, timedelta
from functools import cache
from random import Random
from typing import Literal

from headway.data.demos.demo import Demo, Pair, divide
from headway.errors import ConfigError

Width = Literal["full", "long", "medium"]
LOCALES = (
    "en_US", "en_GB", "fr", "de", "es", "it", "pt", "nl", "sv", "da", "fi", "pl", "cs", "ro", "tr", "id", "el", "ru",
)  # fmt: skip
WIDTHS: tuple[Width, ...] = ("full", "long", "medium")
FIRST, LAST = date(1900, 1, 1), date(2099, 12, 31)
EXAMPLE = date(2026, 9, 14)


def dates(*, train: int = 30000, valid: int = 500, test: int = 1000, seed: int = 1) -> Demo:
    """Make the dates demo; no day of test or valid occurs in train, in any language."""
    write = writers()
    days = (LAST - FIRST).days + 1

    def draw(random: Random) -> Pair:
        day = FIRST + timedelta(days=random.randrange(days))
        return Pair(random.choice(write)(day), day.isoformat())

    example = Pair(_writer("fr", "full")(EXAMPLE), EXAMPLE.isoformat())
    splits = divide("dates", draw, example=example, train=train, valid=valid, test=test, seed=seed)
    return Demo(
        "dates",
        *splits,
        example=example.source,
        baseline_name="the numbers in the text, in their order, joined by hyphens",
        baseline=lambda text: "-".join(re.findall(r"\d+", text)),
    )


def writers() -> list[Callable[[date], str]]:
    """List the ways to write a date: every locale and width that spells the month and gives four digits to the year."""
    try:
        import babel  # noqa: F401  # tried before anything is made
    except ImportError:
        raise ConfigError("the dates demo needs babel; pip install 'headway[dates]'") from None
    return [_writer(locale, width) for locale in LOCALES for width in WIDTHS if _spells_month(locale, width)]


def _spells_month(locale: str, width: Width) -> bool:
    from babel.dates import get_date_format

    return re.search("MMM|LLL", get_date_format(width, locale).pattern) is not None


@cache
def _writer(locale: str, width: Width) -> Callable[[date], str]:
    from babel import Locale
    from babel.dates import get_date_format

    pattern, language = get_date_format(width, locale), Locale.parse(locale)
    # Some languages set a narrow no-break space, which nobody types.
    return lambda day: re.sub(r"\s", " ", pattern.apply(day, language))

import subprocess
import sys
from datetime import date, timedelta

import pytest

from headway.data.demos import DEMOS, dates
from headway.data.demos.dates import FIRST, LAST, LOCALES, writers


@pytest.fixture(scope="module")
def demo():
    return dates()


def test_the_example_is_a_french_date_in_test(demo):
    assert demo.example == "lundi 14 septembre 2026"
    assert demo.test[0] == ("lundi 14 septembre 2026", "2026-09-14")


def test_a_written_date_stands_for_one_day_in_all_languages():
    days = [date(2024, 1, 1) + timedelta(days=number) for number in range(366)]
    meanings: dict[str, date] = {}
    for day in days:
        for write in writers():
            assert meanings.setdefault(write(day), day) == day


def test_every_date_spells_its_month_and_year(demo):
    for source, target in demo.train:
        day = date.fromisoformat(target)
        assert str(day.year) in source and str(day.day) in source
        assert any(letter.isalpha() for letter in source)
        assert source == " ".join(source.split(" ")) and "\u202f" not in source


def test_there_are_far_more_than_a_hundred_thousand_dates():
    assert len(LOCALES) >= 12
    day = date(2026, 9, 14)
    assert len({write(day) for write in writers()}) * ((LAST - FIRST).days + 1) > 1_000_000


def test_the_digits_alone_never_make_the_date(demo):
    assert demo.baseline("lundi 14 septembre 2026") == "14-2026"
    assert not any(demo.baseline(pair.source) == pair.target for pair in demo.test)


def test_babel_is_loaded_only_when_dates_are_made():
    code = "import sys, headway.data.demos; sys.exit('babel' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_dates_are_among_the_demos():
    assert DEMOS["dates"] is dates


def test_dates_are_the_days_of_two_centuries():
    assert (date(1900, 1, 1), date(2099, 12, 31)) == (FIRST, LAST)

"""What an experiment leaves: text, JSON and a page."""

import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from headway.errors import ConfigError, FolderError, HeadwayError
from headway.reproduce.drawing import Axis
from headway.reproduce.report import Plot, Report, Table, shown, writable

TABLE = Table(
    "Scores", ("model", "what", "BLEU"), [("a", "first <one>", 41.234), ("long name", "second", None)], "A note."
)
PLOT = Plot(
    "Curve",
    "length",
    "seconds",
    {"measured": [(1.0, 2.0), (10.0, 30.0)]},
    {"theory": [(1.0, 1.0), (10.0, 100.0)]},
    log_x=True,
    log_y=True,
)
REPORT = Report("trial", "A trial", "Why?", "Because.", [TABLE], [PLOT], "headway reproduce trial", 90.0)


def test_words_begin_at_the_left_and_numbers_end_at_the_right():
    lines = TABLE.text().splitlines()
    assert lines == [
        "Scores",
        "model      what         BLEU",
        "a          first <one>  41.2",
        "long name  second          –",
        "A note.",
    ]


@pytest.mark.parametrize(
    ("cell", "text"),
    [(None, "–"), ("41.2 ± 0.3", "41.2 ± 0.3"), (1234567, "1,234,567"), (0.0, "0"), (0.01234, "0.0123"),
     (1234.5, "1,234"), (1e-9, "1.00e-09"), (float("inf"), "inf"), (-3.14159, "-3.14")],
)  # fmt: skip
def test_numbers_are_shown_by_three_figures(cell, text):
    assert shown(cell) == text


def test_a_row_that_does_not_fit_the_columns_is_refused():
    with pytest.raises(ValueError, match="a row of 1 cells under 2 columns"):
        Table("t", ("a", "b"), [("x",)])


def test_the_page_is_whole_needs_no_network_and_escapes_what_it_shows():
    page = REPORT.html()
    assert page.count("<section>") == 2
    assert "first &lt;one&gt;" in page
    assert not re.search(r"(src|href)=", page)
    assert "headway reproduce trial</code>, 1.5 minutes" in page


def test_a_plot_is_valid_svg_with_a_line_for_every_name():
    tree = ElementTree.fromstring(PLOT.svg())  # our own
    lines = [each for each in tree.iter() if each.tag.endswith("polyline")]
    assert len(lines) == 4  # two lines, and the same two in the legend
    assert {each.attrib["class"] for each in lines} == {"measured", "theory"}
    texts = [each.text for each in tree.iter() if each.tag.endswith("text")]
    assert {"length", "seconds", "measured", "theory", "1", "10"} <= set(texts)


@pytest.mark.parametrize(
    "lines", [{}, {"none": []}, {"one": [(3.0, 3.0)]}, {"zero": [(0.0, 0.0), (1.0, float("nan"))]}]
)
@pytest.mark.parametrize("logarithmic", [False, True])
def test_a_plot_of_little_or_nothing_is_still_a_plot(lines, logarithmic):
    ElementTree.fromstring(Plot("p", "x", "y", lines, log_x=logarithmic, log_y=logarithmic).svg())  # ours


def test_a_plot_is_linear_unless_told_otherwise():
    lines = {"measured": [(1.0, 2.0), (100.0, 2000.0)]}
    plain = Plot("p", "x", "y", lines).svg()
    assert plain == Plot("p", "x", "y", lines, log_x=False, log_y=False).svg()
    assert len({plain, Plot("p", "x", "y", lines, log_x=True).svg(), Plot("p", "x", "y", lines, log_y=True).svg()}) == 3


def test_ticks_are_round_and_inside():
    axis = Axis.over([0.0, 37.0], 0.0, 100.0, logarithmic=False)
    assert axis.ticks() == [0, 10, 20, 30]
    assert axis.place(0.0) == 0.0
    assert Axis(0.0, 50.0, 0.0, 1.0, logarithmic=False).ticks() == [0, 10, 20, 30, 40, 50]
    assert Axis(0.0, 90.0, 0.0, 1.0, logarithmic=False).ticks() == [0, 20, 40, 60, 80]
    assert Axis.over([64.0, 8192.0], 0.0, 1.0, logarithmic=True).ticks() == [100, 200, 500, 1000, 2000, 5000]


def test_page_and_numbers_are_written_beside_each_other(tmp_path):
    page = REPORT.save(writable(tmp_path / "pages", "trial"))
    assert page.read_text(encoding="utf-8") == REPORT.html()
    found = json.loads((tmp_path / "pages" / "trial" / "trial.json").read_text(encoding="utf-8"))
    assert found["tables"][0]["rows"][0] == ["a", "first <one>", 41.234]
    assert found["plots"][0]["lines"]["measured"] == [[1.0, 2.0], [10.0, 30.0]]


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        writable(tmp_path / "file" / "below", "trial")
    with pytest.raises(HeadwayError, match="cannot be written"):
        REPORT.save(tmp_path / "file" / "below")


def test_a_report_replaces_an_earlier_one_but_nothing_that_somebody_changed(tmp_path):
    page = REPORT.save(tmp_path)
    assert REPORT.save(tmp_path) == page
    page.write_text("my own")
    for work in (lambda: writable(tmp_path, "trial"), lambda: REPORT.save(tmp_path)):
        with pytest.raises(FolderError, match=r"trial\.html: .*move .*elsewhere"):
            work()
    assert page.read_text() == "my own"


def test_points_of_no_order_are_not_joined():
    tree = ElementTree.fromstring(replace(PLOT, joined=False).svg())  # our own
    assert len([each for each in tree.iter() if each.tag.endswith("polyline")]) == 2  # of the legend
    assert len([each for each in tree.iter() if each.tag.endswith("circle")]) == 4

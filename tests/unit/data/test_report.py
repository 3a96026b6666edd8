import json
from dataclasses import asdict

import pytest

from headway.data.pairs import Files
from headway.data.report import Lengths, Odd, Outlier, Overlap, survey
from headway.errors import DataError


@pytest.fixture
def corpus(tmp_path):
    def write(sources, targets, name="train"):
        paths = tmp_path / f"{name}.en", tmp_path / f"{name}.de"
        for path, lines in zip(paths, (sources, targets), strict=True):
            path.write_bytes(b"".join(line if isinstance(line, bytes) else line.encode() + b"\n" for line in lines))
        return Files(*paths)

    return write


def test_lengths_are_told_with_the_line_of_the_longest(corpus):
    report = survey(corpus(["a", "b c", "d e f g", "h"], ["x"] * 4))
    assert report.pairs == 4
    assert asdict(report.source.words) == pytest.approx(asdict(Lengths(2.0, 1.5, 3.7, 4, 3)))
    assert report.source.characters.longest == 7
    assert report.target.words == Lengths(1.0, 1.0, 1.0, 1, 1)


def test_empty_and_white_space_lines_are_counted_by_side(corpus):
    report = survey(corpus(["", " ", "a", "\t\u3000"], ["x", "", "", ""]))
    assert (report.source.empty, report.source.blank) == (1, 2)
    assert (report.target.empty, report.target.blank) == (3, 0)
    assert any("3 source and 3 target lines are blank" in warning for warning in report.warnings())


def test_repeated_pairs_sources_and_targets_are_counted(corpus):
    report = survey(corpus(["a", "a", "a", "b"], ["x", "x", "y", "x"]))
    assert (report.repeated, report.source.repeated, report.target.repeated) == (1, 2, 2)


def test_copies_are_counted_but_not_empty_ones(corpus):
    assert survey(corpus(["a", "b", "", " "], ["a", "x", "", " "])).copied == 1


def test_length_outliers_are_measured_against_the_corpus_and_the_worst_three_shown(corpus):
    sources = ["x" * 20] * 50 + ["x" * 20, "x" * 200, "x" * 20, "x" * 90, "x"]
    targets = ["y" * 40] * 50 + ["y" * 900, "y" * 4, "y" * 500, "y" * 20, "y" * 12]
    report = survey(corpus(sources, targets))
    assert report.outliers == 4
    assert {pair.line for pair in report.worst} == {51, 52, 53}
    assert Outlier(51, 20, 900) in report.worst


def test_an_empty_side_is_no_length_outlier(corpus):
    assert survey(corpus(["a" * 30] * 9 + ["a" * 400], ["b" * 30] * 9 + [""])).outliers == 0


@pytest.mark.parametrize(
    ("character", "kind"),
    [
        ("\0", "NUL characters"),
        ("\x07", "control characters"),
        ("\x85", "control characters"),
        ("\r", "control characters"),
        ("\ufffd", "replacement characters (U+FFFD)"),
        ("\u200b", "invisible formatting characters"),
        ("\ufeff", "byte order marks inside the text"),
        ("\ue000", "private-use characters"),
        ("\u0378", "unassigned characters"),
        ("\u2028", "line separators"),
    ],
)
def test_odd_characters_are_counted_by_line_with_the_first(corpus, character, kind):
    odd = f"a{character}b{character}c"
    report = survey(corpus(["fine", odd, "fine", odd], ["x"] * 4))
    assert report.source.odd == (Odd(kind, 2, 2),)
    assert report.target.odd == ()
    assert any(kind in warning for warning in report.warnings())


def test_ordinary_text_of_many_scripts_is_not_odd(corpus):
    report = survey(corpus(["Où ça\u00a0? «\u202foui\u202f»", "日本語。", "مرحبا", "😀 नमस्ते"], ["a", "b", "c", "d"]))
    assert report.source.odd == ()
    assert not any("odd" in warning or "hold" in warning for warning in report.warnings())


def test_lines_not_in_nfc_are_counted(corpus):
    report = survey(corpus(["e\u0301", "é"], ["x", "y"]))
    assert report.source.not_composed == 1
    assert report.target.not_composed == 0


def test_literal_control_symbols_are_counted(corpus):
    report = survey(corpus(["a <s> b", "</S>", "<pad><pad>", "▁x", "a < s > b", "<b>"], ["x"] * 6))
    assert report.source.symbols == 4


def test_lines_that_are_not_utf8_are_counted_and_line_numbers_stay_true(corpus):
    report = survey(corpus([b"\xff\n", "a", b"b\xff\n", "longest line"], ["x", "y", "z", "z"]))
    assert (report.pairs, report.not_utf8) == (2, 2)
    assert report.source.words.longest_line == 4


def test_a_corpus_without_any_utf8_is_reported_first(corpus):
    report = survey(corpus([b"\xff\n"], ["x"]))
    assert report.pairs == 0
    assert report.warnings()[0].startswith("no pair can be read")
    assert report.lines()


def test_train_test_overlap_is_the_first_warning_with_its_count(corpus):
    train = corpus(["a", "b", "c", ""], ["A", "B", "C", ""])
    test = corpus(["a", "a", "b", "z"], ["A", "other", "B", "Z"], "test")
    report = survey(train, test)
    assert report.overlap == Overlap(tested=4, sources=3, pairs=2)
    assert report.warnings()[0].startswith("3 of 4 test sources stand in the corpus, 2 with their target")
    assert any("3 of 4 sources" in line for line in report.lines())


def test_without_overlap_there_is_no_warning_of_it(corpus):
    report = survey(corpus(["a"], ["A"]), corpus(["b"], ["B"], "test"))
    assert report.overlap == Overlap(1, 0, 0)
    assert report.warnings() == []


def test_a_sound_corpus_gives_no_warning(corpus):
    report = survey(corpus(["Good morning.", "Thank you."], ["Guten Morgen.", "Danke schön."]))
    assert report.warnings() == []
    assert not any(line.startswith("warning") for line in report.lines())


def test_the_report_is_plain_json(corpus):
    train = corpus(["a\0", "", "a b " * 40, "same", "size"], ["A", "x", "y", "four", "long"])
    report = survey(train, train)
    tree = json.loads(json.dumps(report.to_json()))
    assert tree["pairs"] == 5
    assert tree["worst"] == [{"line": 3, "source_characters": 160, "target_characters": 1}]
    assert tree["source"]["odd"] == [{"kind": "NUL characters", "lines": 1, "first_line": 1}]
    assert tree["warnings"] == report.warnings()


def test_people_read_one_line_for_each_finding(corpus):
    told = survey(corpus(["a\0", "e\u0301"], ["A", "x"])).lines()
    assert told[0] == "pairs: 2"
    assert "source: NUL characters: 1 lines, first in line 1" in told
    assert all("\n" not in line and "np." not in line for line in told)


def test_files_that_cannot_be_read_are_refused(corpus, tmp_path):
    with pytest.raises(DataError, match="has 2 lines"):
        survey(corpus(["a", "b"], ["x"]))
    with pytest.raises(DataError, match="no such file"):
        survey(corpus(["a"], ["x"]), Files(tmp_path / "none.tsv"))


def test_progress_is_told_now_and_then(corpus):
    told = []
    survey(corpus(["a"] * 20_001, ["x"] * 20_001), progress=told.append)
    assert told == [10_000, 20_000]

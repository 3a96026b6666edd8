"""`headway reproduce`."""

import json

import pytest


def test_it_prints_a_table_and_leaves_a_page(headway, tmp_path):
    done = headway("reproduce", "extrapolation", "--seeds", "1", "--effort", "0.01", "--out", tmp_path / "pages")
    assert done.code == 0
    assert "Symbols right in their place" in done.out
    assert (tmp_path / "pages" / "extrapolation" / "extrapolation.html").is_file()
    found = json.loads((tmp_path / "pages" / "extrapolation" / "extrapolation.json").read_text(encoding="utf-8"))
    assert [row[0] for row in found["tables"][0]["rows"]] == ["sinusoidal", "learned", "rotary", "relative", "alibi"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("extrapolation", "--seeds", "0"), "--seeds 0"),
        (("extrapolation", "--effort", "0"), "--effort 0"),
        (("nothing",), "nothing"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(headway, arguments, said):
    done = headway("reproduce", *arguments)
    assert done.code == 2
    assert said in done.only_complaint


def test_a_folder_that_cannot_be_written_is_refused_before_the_work(headway, tmp_path, monkeypatch):
    from headway.reproduce import EXPERIMENTS

    (tmp_path / "file").write_text("")
    monkeypatch.setitem(EXPERIMENTS, "ladder", None)  # which would break down if it were called
    assert "cannot be written" in headway("reproduce", "ladder", "--out", tmp_path / "file" / "below").only_complaint

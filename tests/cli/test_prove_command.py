"""`headway prove`."""

import io
import json

import pytest
from rich.console import Console

from headway.cli.prove import show
from headway.proof import CHECKS, Finding, Proof, subject


@pytest.fixture(autouse=True)
def brief(monkeypatch):
    """Short outputs: a proof in a moment."""
    monkeypatch.setattr(subject, "LONGEST_OUTPUT", 5)


def test_a_sound_model_passes_in_a_line_for_each_check(headway, model_folder, tmp_path):
    (tmp_path / "text").write_text("le chat\n\n  \nun chien mange tout .\n")
    outcome = headway("prove", model_folder, "--text", tmp_path / "text", "--device", "cpu")
    assert [line.split()[:2] for line in outcome.lines] == [["pass", name] for name in CHECKS]
    assert "2 sentences alone" in outcome.out
    options = ("--text", tmp_path / "text", "--device", "cpu", "--json")
    assert headway("prove", model_folder, *options).json["sentences"] == 2


def test_at_most_a_hundred_thousand_sentences_can_be_asked_for(headway, model_folder, tmp_path):
    (tmp_path / "text").write_text("le chat\n")
    options = ("--text", tmp_path / "text", "--device", "cpu", "--json", "--sentences")
    assert headway("prove", model_folder, *options, 100_000).json["passed"] is True
    told = headway("prove", model_folder, *options, 100_001).only_complaint
    assert "--sentences 100001: give at least 1, and at most 100000" in told


def test_json_says_the_same_of_a_run_folder(headway, model_folder, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "best").symlink_to(model_folder)
    found = headway("prove", tmp_path / "run", "--sentences", 2, "--json", "--device", "cpu").json
    assert found["passed"] is True
    assert found["sentences"] == 2
    assert [check["name"] for check in found["checks"]] == list(CHECKS)
    assert 0 <= found["checks"][-2]["measured"] < 1e-4


@pytest.mark.parametrize(
    ("options", "told"),
    [(["--sentences", 0], "--sentences"), (["--text", "nowhere"], "nowhere: no such file"),
     (["--device", "abacus"], "abacus"), (["--sentences", "many"], "many"),
     (["--sentences", "1.5"], "'1.5' is not a whole number")],
)  # fmt: skip
def test_a_mistake_is_one_line(options, told, headway, model_folder):
    assert told in headway("prove", model_folder, *options).only_complaint


def test_a_text_of_blanks_is_refused(headway, model_folder, tmp_path):
    (tmp_path / "text").write_text("\n \n")
    assert "every line is blank" in headway("prove", model_folder, "--text", tmp_path / "text").only_complaint


def test_what_is_not_a_model_is_refused(headway, tmp_path):
    assert "no such folder" in headway("prove", tmp_path / "nowhere").complaint
    assert "MANIFEST.json" in headway("prove", tmp_path).complaint


def test_on_a_terminal_the_table_has_colours_and_shows_names_as_they_are(monkeypatch):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120)
    monkeypatch.setattr("rich.console.Console", lambda **options: console)
    show(Proof("m", 1, 0.0, {"cache": Finding("[a] and b", "far apart", False), "greedy": Finding("c", "d", True)}))
    assert "\x1b[1;31mFAIL" in screen.getvalue()
    assert "\x1b[32mpass" in screen.getvalue()
    assert "[a] and b" in screen.getvalue()


def test_a_proof_tells_what_failed_and_can_be_read_by_programs():
    findings = {
        "folder": Finding("x", "y", None),
        "cache": Finding("a", "b\nc", False),
        "greedy": Finding("d", "e", True),
    }
    proof = Proof("here", 3, 1.0, findings)
    assert not proof.passed
    assert proof.complaint() == "here: 1 of 3 checks failed: cache"
    assert proof.lines() == ["not run  folder  y    x", "FAIL     cache   b c  a", "pass     greedy  e    d"]
    assert json.loads(json.dumps(proof.to_json()))["failed"] == ["cache"]

"""The tables of reliability are made from results, never typed."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def report():
    found = importlib.util.spec_from_file_location("reliability", ROOT / "docs" / "reliability.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_the_tables_in_the_readme_and_the_docs_are_those_of_the_results(report):
    assert report.main(["--check"]) == 0


def test_a_table_that_is_out_of_date_would_be_noticed(report, tmp_path, monkeypatch, capsys):
    results = tmp_path / "reliability.jsonl"
    line = report.results()[0]
    results.write_text(f"{report.RESULTS.read_text()}{json.dumps(line | {'count': 10**9})}\n")
    monkeypatch.setattr(report, "RESULTS", results)
    assert report.main(["--check"]) == 1
    assert "README.md" in capsys.readouterr().err


def test_every_result_that_is_shown_is_of_a_test_that_exists_and_all_cases_passed(report):
    files = "\n".join(path.read_text() for path in Path(__file__).parent.glob("test_g*.py"))
    tests = {name.replace("_", " ") for name in re.findall(r"^def test_(\w+)", files, re.MULTILINE)}
    counted = Path(__file__).with_name("conftest.py").read_text()
    tests |= set(re.findall(r"Tally\(\"G\d+\", \"(.+)\"\)", counted))  # goals of which every test is a case
    for line in report.results():
        assert line["what"] in tests
        assert line["passed"] == line["count"] > 0
    assert {line["goal"] for line in report.results()} == set(report.GOALS)


def test_every_goal_has_its_test_file_and_its_result(report):
    for goal in report.GOALS:
        assert list(Path(__file__).parent.glob(f"test_{goal.lower()}_*.py"))

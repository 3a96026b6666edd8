"""The table of changed places says what was found."""

import subprocess
import sys

from pages import ROOT


def test_the_table_of_changes_that_tests_notice_is_up_to_date():
    command = [sys.executable, "tests/mutants.py", "--table", "tests/mutants.jsonl"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert (ROOT / "docs" / "mutants.md").read_text(encoding="utf-8") == found

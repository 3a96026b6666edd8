"""Every architecture and method still learns as it did: short curves, held against stored ones."""

import json
from pathlib import Path

import pytest

import same_results

GOLDEN = json.loads(Path(__file__).with_name("golden.json").read_text(encoding="utf-8"))
CASES = dict(same_results.cases([1]))


def test_every_case_has_its_curve():
    assert GOLDEN.keys() == CASES.keys()


@pytest.mark.parametrize("name", CASES)
def test_the_first_updates_lose_what_they_lost(name, tmp_path):
    losses = same_results.trained(tmp_path, CASES[name], 8)
    assert losses == pytest.approx(GOLDEN[name]["losses"], rel=1e-3)

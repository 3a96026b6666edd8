"""The benchmark of busy and limited machines, at a tiny setting."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import busy_machine

TINY = ["--rounds", "1", "--updates", "1", "--lines", "2", "--chunk", "1", "--longest", "4", "--busy", "1",
        "--pairs", "200", "--batch-tokens", "256"]  # fmt: skip


def test_the_benchmark_measures_training_and_decoding_by_the_real_commands(monkeypatch, capfd):
    monkeypatch.setattr(sys, "argv", ["busy_machine.py", *TINY, "--cases", "busy"])
    busy_machine.main()
    told, training, decoding, last = map(json.loads, capfd.readouterr().out.splitlines())
    assert "chosen by Headway" in told["waiting"]
    assert training["updates_per_second"] > 0 and decoding["lines_per_second"] > 0
    assert training["busy_processes"] == decoding["busy_processes"] == 1
    assert last["seconds"] > 0


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no affinity")
def test_a_process_enters_its_limits_before_it_becomes_the_command(tmp_path):
    words = [sys.executable, "-c", "import os; print(len(os.sched_getaffinity(0)), os.getpid())"]
    limited = subprocess.run([*busy_machine.before("affinity", None), *words], capture_output=True, check=True)
    assert limited.stdout.split()[0] == b"1"
    member = subprocess.run([*busy_machine.before("quota", tmp_path), *words], capture_output=True, check=True)
    assert (tmp_path / "cgroup.procs").read_bytes() == member.stdout.split()[1]


def test_a_goal_is_the_median_ratio_of_rounds_taken_together():
    speeds = {"quiet": [10.0, 20.0, 40.0], "busy": [5.0, 9.0, 8.0], "spinning": [10.0, 20.0, 10.0]}
    *cases, busy, price = busy_machine.report("decoding", speeds, 2)
    assert [line["lines_per_second"] for line in cases] == [20.0, 8.0, 10.0]
    assert (busy["ratio"], busy["lowest"], busy["highest"], busy["met"]) == (0.45, 0.2, 0.5, True)
    assert (price["ratio"], price["at_least"], price["met"]) == (1.0, 0.98, True)


@pytest.mark.parametrize(
    ("case", "expected"),
    [("quiet", {}), ("busy", {}), ("quota", {}), ("one-thread", {"OMP_NUM_THREADS": "1"}),
     ("spinning", {"GOMP_SPINCOUNT": "300000"}), ("busy-spinning", {"GOMP_SPINCOUNT": "300000"}),
     ("spin-1000", {"GOMP_SPINCOUNT": "1000"}), ("busy-spin-1000", {"GOMP_SPINCOUNT": "1000"})],
)  # fmt: skip
def test_no_variable_of_the_caller_reaches_a_case(case, expected, monkeypatch):
    given = {"OMP_NUM_THREADS": "3", "OMP_WAIT_POLICY": "ACTIVE", "KMP_BLOCKTIME": "1", "HEADWAY_CHOSEN": "x"}
    monkeypatch.setattr(os, "environ", given)
    assert busy_machine.environment_of(case) == expected


def test_a_control_group_that_cannot_be_made_is_told_with_its_reason(tmp_path):
    (tmp_path / "cgroup.subtree_control").write_text("memory pids\n")
    with busy_machine.control_group(tmp_path) as group:
        assert group.endswith("the cpu controller is not enabled")
    with busy_machine.control_group(tmp_path / "missing") as group:
        assert group.endswith("No such file or directory")
    assert [path.name for path in tmp_path.iterdir()] == ["cgroup.subtree_control"]

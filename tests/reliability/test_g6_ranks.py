"""G6: one of two processes that train together is killed: both recover unaided, and the model is the same."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from runs import journal, result, saved_step

from headway.disk import lock_folder

LONG = {
    "training__steps": 240, "training__validate_every": 80, "training__save_every": 10, "training__accumulate": 1,
    "training__patience": 100,
}  # fmt: skip


def ranks(launcher: int) -> dict[int, int]:
    """The processes a launcher has started, by rank."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == launcher:
                rank = re.search(rb"(?:^|\0)RANK=(\d+)\0", (folder / "environ").read_bytes())
                found |= {int(rank[1]): int(folder.name)} if rank else {}
        except (OSError, ValueError):  # it has just ended
            continue
    return found


def lines(out: Path) -> int:
    path = out / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


class Launch:
    """Two processes under the launcher, and kills among them."""

    def __init__(self, arguments: list[str], log: Path) -> None:
        self.log, self.kills = log, 0
        with log.open("w") as file:
            command = [sys.executable, "-m", "headway", *arguments]
            self.process = subprocess.Popen(command, stderr=file, env=os.environ | {"OMP_NUM_THREADS": "1"})

    def wait_for(self, condition, seconds: float = 600.0):
        """What the condition gives as soon as that is something; nothing if the launch ends before."""
        until = time.monotonic() + seconds
        while not (value := condition()):
            assert time.monotonic() < until, self.log.read_text()[-3000:]
            if self.process.poll() is not None:
                return None
            time.sleep(0.02)
        return value

    def both(self, gone: set[int]) -> dict[int, int] | None:
        """Two processes, none of them one of those that are to go."""
        found = ranks(self.process.pid)
        return found if len(found) == 2 and not gone & set(found.values()) else None

    def kill(self, out: Path, chance) -> float | None:
        """Kill one of the two, while they train or while they start; the seconds until two new ones were there."""
        found = self.wait_for(lambda: self.both(set()))
        before = lines(out)
        if chance.random() < 0.8 and self.wait_for(lambda: lines(out) != before) is None:
            return None
        time.sleep(chance.uniform(0, 0.4))
        found = self.both(set())
        if found is None or self.process.poll() is not None:
            return None
        os.kill(found[chance.choice((0, 1))], signal.SIGKILL)
        killed, self.kills = time.monotonic(), self.kills + 1
        again = self.wait_for(lambda: self.both(set(found.values())))
        return None if again is None else time.monotonic() - killed


@pytest.mark.skipif(sys.platform != "linux", reason="ranks are found in /proc")
def test_processes_whose_launcher_is_killed_as_they_begin_end_too_and_the_run_goes_on(runs, tmp_path):
    out = tmp_path / "run"
    settings = LONG | {"training__steps": 1_000_000}
    launch = Launch(runs.arguments(out, "--processes", "2", **settings), tmp_path / "log")
    found = launch.wait_for(lambda: launch.both(set()))  # torch is not loaded yet
    launch.process.kill()
    launch.process.wait()
    until = time.monotonic() + 120.0
    while any(Path(f"/proc/{number}/stat").exists() for number in found.values()):
        assert time.monotonic() < until, launch.log.read_text()[-3000:]
        time.sleep(0.05)
    ended = runs.train(out, **LONG | {"training__steps": 3 + saved_step(out)})
    assert ended.code == 0, ended.err


@pytest.mark.skipif(sys.platform != "linux", reason="ranks are found in /proc")
def test_processes_whose_launcher_is_killed_save_and_let_go_of_the_folder(runs, tally, tmp_path):
    out, tally.count = tmp_path / "run", 1
    launch = Launch(runs.arguments(out, "--processes", "2", **LONG | {"training__steps": 1_000_000}), tmp_path / "log")
    found = launch.wait_for(lambda: lines(out) > 5 and launch.both(set()))
    launch.process.kill()
    launch.process.wait()
    until = time.monotonic() + 300.0
    while any(Path(f"/proc/{number}/stat").exists() for number in found.values()):
        assert time.monotonic() < until, launch.log.read_text()[-3000:]
        time.sleep(0.05)
    (step,) = re.findall(r"^headway: stopped at step (\d+); --resume", launch.log.read_text(), re.MULTILINE)
    assert saved_step(out) == int(step)
    with lock_folder(out):
        tally.passed = 1


@pytest.mark.skipif(sys.platform != "linux", reason="ranks are found in /proc")
def test_two_processes_of_which_one_is_killed_recover_unaided_and_end_as_if_nothing_had_been(
    runs, chance, tally, tmp_path
):
    whole, number = tmp_path / "whole", 0
    assert [each.code for each in runs.train_by_two(runs.arguments(whole, **LONG))] == [0, 0]
    wanted = result(whole)
    left = tally.expect(5, 50)
    while left:
        number += 1
        out = tmp_path / f"run-{number}"
        launch = Launch(runs.arguments(out, "--processes", "2", **LONG), tmp_path / f"log-{number}")
        while launch.kills < left and (seconds := launch.kill(out, chance)) is not None:
            tally.saw(seconds_to_restart=seconds)
        assert launch.process.wait(600) == 0, launch.log.read_text()[-3000:]
        assert result(out) == wanted
        left -= launch.kills
        tally.passed += launch.kills


def test_one_process_and_two_with_the_same_batches_have_the_same_loss_to_five_places(runs, tally, tmp_path):
    settings = {"model__dropout": 0.0, "tokenizer__dropout": 0.0, "training__steps": 20}
    one, two = tmp_path / "one", tmp_path / "two"
    assert runs.train(one, **settings, training__accumulate=2).code == 0
    ended = runs.train_by_two(runs.arguments(two, **settings, training__accumulate=1))
    assert [each.code for each in ended] == [0, 0], ended
    rows = [[line["train/loss"] for line in journal(out) if "train/loss" in line] for out in (one, two)]
    assert len(rows[0]) == 20
    tally.expect(1)
    for left, right in zip(*rows, strict=True):
        tally.saw(difference=abs(left - right))
    assert tally.worst["difference"] < 1e-5
    tally.passed = 1

"""The reliability goals in large: thousands of kills, signals, damaged files and sentences instead of tens.

    python benchmarks/soak.py >> docs/reliability.jsonl && python docs/reliability.py
    python benchmarks/soak.py --goals G1,G4 --hours 8

One JSON line a result, as soon as it is there; what pytest says goes to standard error. A round is all the chosen goals
once; with --hours, rounds with other random numbers follow until that time is over. Exit code 1 if any case failed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import BinaryIO

from peers.origin import show

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests" / "reliability"
GOALS = ["G1", "G2", "G3", "G4", "G5", "G6", "G7", "G8", "G9", "G10", "G16"]


def files(goals: list[str]) -> list[Path]:
    """The test file of every goal."""
    return [path for goal in goals for path in TESTS.glob(f"test_{goal.lower()}_*.py")]


def hand_on(lines: BinaryIO, seed: int) -> None:
    """Print the results that were written since, with where they come from; a line half written waits."""
    while (line := lines.readline()).endswith(b"\n"):
        show({"seed": seed, **json.loads(line)})
    lines.seek(-len(line), os.SEEK_CUR)


def soak(goals: list[str], seed: int, workers: int, figures: Path) -> bool:
    """One round; whether all went well."""
    command = [sys.executable, "-m", "pytest", "-m", "", *map(str, files(goals))]
    command += ["-n", str(workers), "--dist", "worksteal"] if workers > 1 else []
    environment = os.environ | {"HEADWAY_SOAK": "1", "HEADWAY_FIGURES": str(figures), "HEADWAY_SEED": str(seed)}
    figures.touch()
    with figures.open("rb") as lines:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=sys.stderr)
        while process.poll() is None:
            time.sleep(1.0)
            hand_on(lines, seed)
        hand_on(lines, seed)
    return process.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--goals", default=",".join(GOALS), help="such as G1,G4; all by default")
    parser.add_argument("--hours", type=float, default=0.0, help="how long new rounds are begun; one round by default")
    parser.add_argument("--workers", type=int, default=2, help="processes that test side by side")
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    options = parser.parse_args()
    goals = options.goals.upper().split(",")
    if unknown := [goal for goal in goals if goal not in GOALS]:
        parser.error(f"--goals: no such goal: {', '.join(unknown)}; there are {', '.join(GOALS)}")
    until, seed, good = time.monotonic() + 3600 * options.hours, options.seed, True
    with tempfile.TemporaryDirectory() as folder:
        while True:
            good &= soak(goals, seed, options.workers, Path(folder) / f"round-{seed}.jsonl")
            seed += 1
            if time.monotonic() >= until:
                return not good


if __name__ == "__main__":
    sys.exit(main())

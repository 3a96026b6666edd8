"""Trainings in processes of their own, each on cores of its own, whose results are kept and not measured again."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import headway
from peers.origin import COMMIT, today

Line = dict[str, Any]
STOPPED = (130, 143, -2, -15)
"""Exit codes of a process that the user has stopped."""


@dataclass(frozen=True)
class Trial:
    """One training: what is asked for, the command that does it, and the folder of all it leaves."""

    folder: Path
    request: Line
    """A result is used again only where its request is the same."""
    command: list[str]
    """Trains into `folder/run`."""
    finished: str = "best"
    """What is in `folder/run` once training has ended well."""

    @property
    def run(self) -> Path:
        return self.folder / "run"

    def result(self) -> Line:
        """What is known by now: nothing, or the result that was kept for the same request."""
        kept = _read(self.folder / "result.json")
        return kept["result"] if kept.get("request") == self.request else {}

    def keep(self, result: Line) -> Line:
        """Keep what was found, beside the request."""
        partial = self.folder / "result.partial"
        partial.write_text(json.dumps({"request": self.request, "result": result}), encoding="utf-8")
        partial.replace(self.folder / "result.json")
        return result

    @property
    def log(self) -> Path:
        return self.folder / "log.txt"

    @property
    def trained(self) -> bool:
        return _read(self.folder / "request.json") == self.request and (self.run / self.finished).exists()

    def lacks(self, parts: Iterable[str]) -> bool:
        """Whether it has to be trained for these parts of its result; one that failed is not tried again."""
        result = self.result()
        return "failed" not in result and not self.trained and any(part not in result for part in parts)

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def begin(self) -> None:
        """Remove what an earlier training, unfinished or of another request, has left, and write the request down."""
        self.remove()
        self.folder.mkdir(parents=True)
        (self.folder / "request.json").write_text(json.dumps(self.request), encoding="utf-8")

    def problem(self) -> str:
        """The last line of a failed training's log."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "no output")


def train_together(trials: Sequence[Trial], threads: int, *, pin: bool) -> None:
    """Train all of them at once, each on `threads` cores of its own where there are as many, and keep the results.

    A process that runs alone is faster than one beside others: the times of trials can be compared only if as many ran
    at once.
    """
    for trial in trials:
        trial.begin()
    for place, status, seconds in run_together([(each.command, each.log) for each in trials], threads, pin=pin):
        found: Line = {"command_seconds": round(seconds, 1), "code": code(), "commit": COMMIT, "date": today()}
        if status:
            found["failed"] = trials[place].problem()
        trials[place].keep(found)


def run_together(
    commands: Sequence[tuple[list[str], Path]], threads: int, *, pin: bool
) -> Iterator[tuple[int, int, float]]:
    """Run commands at once, each with a log: the place, exit code and seconds of each as it ends."""
    began = time.perf_counter()
    running: dict[int, subprocess.Popen[bytes]] = {}
    try:
        for place, (command, log) in enumerate(commands):
            with log.open("ab") as file, pinned(_cores(place, len(commands), threads, pin)):
                environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
                running[place] = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=environment)
        while running:
            time.sleep(0.05)
            for place in [place for place, process in running.items() if process.poll() is not None]:
                status = running.pop(place).returncode
                if status in STOPPED:
                    raise KeyboardInterrupt
                yield place, status, time.perf_counter() - began
    finally:
        for process in running.values():  # the user stops us
            process.terminate()
            process.wait()


def _cores(place: int, count: int, threads: int, pin: bool) -> set[int] | None:
    """The cores of one of several processes; None where there are too few, or where it does not matter."""
    if not pin or not hasattr(os, "sched_getaffinity"):
        return None
    allowed = sorted(os.sched_getaffinity(0))
    return set(allowed[place * threads : (place + 1) * threads]) if count * threads <= len(allowed) else None


@contextmanager
def pinned(cores: set[int] | None):
    """Processes started meanwhile run on these cores alone."""
    if cores is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def train_command(source: Path, target: Path, out: Path, time: str, device: str, settings: dict[str, Any]) -> list[str]:
    """`headway train` with the settings, as a user types it."""
    command = [sys.executable, "-m", "headway", "train", "--source", str(source), "--target", str(target)]
    command += ["--out", str(out), "--time", time, "--device", device]
    return command + [word for name, value in settings.items() for word in ("--set", f"{name}={json.dumps(value)}")]


def translate_command(run: Path, given: Path, output: Path, device: str) -> list[str]:
    """`headway translate` as it is by default, in one process."""
    command = [sys.executable, "-m", "headway", "translate", str(run), "--input", str(given), "--output", str(output)]
    return [*command, "--device", device, "--workers", "1"]


def described_run(run: Path) -> Line:
    """What a finished run says of itself: its settings, its updates, and how the model was judged."""
    config = tomllib.loads((run / "config.toml").read_text(encoding="utf-8"))
    journal = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    finals = {name: value for line in journal for name, value in line.items() if name.startswith("final/")}
    return {
        "updates": journal[-1]["step"],
        "validations": sum("valid/loss" in line for line in journal),
        **finals,
        **{name: config[name] for name in ("model", "tokenizer", "training")},
    }


@cache
def code() -> str:
    """A short fingerprint of the library's source."""
    root, found = Path(headway.__file__).parent, hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        found.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return found.hexdigest()[:12]


def stop_on_sigterm() -> None:
    """End as after Ctrl-C, so that no training is left behind."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def _read(path: Path) -> Line:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}

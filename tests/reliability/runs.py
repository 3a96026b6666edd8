"""Runs of `headway train` in forked processes: how they are started, watched, hit and compared."""

import json
import os
import re
import select
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forks import Ended, Forks, Trial

from headway.folders import sha256, verify_folder

SETTINGS: dict[str, Any] = {
    "data.held_out": 6, "tokenizer.vocabulary": 280, "tokenizer.dropout": 0.1,
    "model.dim": 8, "model.heads": 2, "model.hidden": 8, "model.encoder_layers": 1, "model.decoder_layers": 1,
    "model.longest": 64, "model.dropout": 0.1, "training.steps": 12, "training.batch_tokens": 256,
    "training.accumulate": 2, "training.validate_every": 4, "training.average": 2, "training.samples": 0,
    "training.validation_sentences": 1, "training.log_every": 1,
}  # fmt: skip
"""A run of a moment in which every part of the state counts: dropout, BPE-dropout, accumulation, epochs, averaging."""
CLOCKS = {"time", "train/tokens_per_second", "seconds", "validating"}
"""What may differ between two runs that are the same."""
OF_VALIDATION = {"validated", "best", "stale", "known_loss"}
"""What is found anew after a resume if a step was saved before it was validated; the journal and the model show it."""


@dataclass
class Watched:
    """A run whose phases are heard through a pipe."""

    trial: Trial
    handle: int
    phases: list[str] = field(default_factory=list)
    ended: bool = False
    """It has closed its end of the pipe."""
    _rest: bytes = b""

    def hear(self, seconds: float) -> Iterator[str]:
        """The phases it enters, for so many seconds or until it ends."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self.ended:
            if select.select([self.handle], [], [], min(left, 0.01))[0]:
                yield from self._read()

    def _read(self) -> Iterator[str]:
        content = os.read(self.handle, 65536)
        if not content:  # nobody has opened the other end yet, or nobody will again
            self.ended = bool(self.phases)
            time.sleep(0.001)
        *whole, self._rest = (self._rest + content).split(b"\n")
        for line in whole:
            self.phases.append(line.decode())
            yield self.phases[-1]

    def wait(self, seconds: float = 600.0) -> Ended:
        """Its end, everything heard."""
        ended = self.trial.wait(seconds)
        while select.select([self.handle], [], [], 0)[0] and not self.ended and list(self._read()):
            pass
        os.close(self.handle)
        return ended

    @property
    def step(self) -> int:
        """The last update heard of, 0 before the first."""
        return max((int(phase[5:]) for phase in self.phases if re.fullmatch(r"step \d+", phase)), default=0)


@dataclass
class Runs:
    """Starts `headway train` on a small corpus, each time in a process of its own."""

    forks: Forks
    corpus: Path
    folder: Path
    _count: int = 0

    def arguments(self, out: Path, *options: str, resume: bool | None = None, **settings: Any) -> list[str]:
        """The command line; resumes where there is something to resume, unless told otherwise."""
        named = SETTINGS | {name.replace("__", "."): value for name, value in settings.items()}
        sets = [part for name, value in named.items() for part in ("--set", f"{name}={value}")]
        files = ["--source", self.corpus / "source", "--target", self.corpus / "target", "--out", out]
        again = (out / "config.toml").exists() if resume is None else resume
        given = ["train", *files, "--device", "cpu", *sets, *options, *(["--resume"] if again else [])]
        return [str(each) for each in given]

    def train(self, out: Path, *options: str, **settings: Any) -> Ended:
        """Train to the end."""
        return self.forks.run("trials.command", self._logs(), arguments=self.arguments(out, *options, **settings))

    def train_by_two(self, arguments: list[str], trial: str = "trials.one_of_two", **given: Any) -> list[Ended]:
        """Train to the end by two processes that torchrun might have started."""
        with socket.socket() as listening:
            listening.bind(("localhost", 0))
            store = str(listening.getsockname()[1])
        given |= {"arguments": arguments, "store": store}
        trials = [self.forks.start(trial, self._logs(), rank=rank, **given) for rank in (0, 1)]
        return [each.wait(600.0) for each in trials]

    def watch(self, trial: str, arguments: list[str], **given: Any) -> Watched:
        """Start a trial that tells of its phases."""
        logs = self._logs()
        pipe = logs / "phases"
        os.mkfifo(pipe)
        handle = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        started = self.forks.start(f"trials.{trial}", logs, arguments=arguments, pipe=str(pipe), **given)
        return Watched(started, handle)

    def _logs(self) -> Path:
        self._count += 1
        logs = self.folder / f"logs-{self._count}"
        logs.mkdir()
        return logs


def checkpoint(folder: Path) -> dict[str, Any]:
    """Everything a checkpoint holds, as digests, but for the clock."""
    verify_folder(folder)
    progress = json.loads((folder / "progress.json").read_text())
    tensors = {path.name: sha256(path) for path in sorted(folder.glob("*.safetensors"))}
    return tensors | {"progress": {name: value for name, value in progress.items() if name not in CLOCKS}}


def checkpoints(out: Path) -> dict[str, Any]:
    """All checkpoints of a run."""
    found = {path.name: checkpoint(path) for path in sorted((out / "checkpoints").iterdir())}
    for each in found.values():
        each["progress"] = {name: value for name, value in each["progress"].items() if name not in OF_VALIDATION}
    return found


def saved_step(out: Path) -> int:
    """The newest checkpoint that has its final name, 0 where there is none."""
    numbers = (path.name[5:] for path in (out / "checkpoints").glob("step-*"))
    return max((int(number) for number in numbers if number.isdecimal()), default=0)


def journal(out: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl, but for the clock."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name not in CLOCKS} for line in lines]


def result(out: Path) -> dict[str, Any]:
    """All that a finished run leaves that must not depend on how often it was broken off."""
    model = {path.name: sha256(path) for path in sorted((out / "best").iterdir()) if path.name != "MANIFEST.json"}
    verify_folder(out / "best")
    return {"checkpoints": checkpoints(out), "model": model, "journal": journal(out)}

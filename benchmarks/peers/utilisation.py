"""How busy a GPU is while Headway trains from files, and whether it would be faster with every batch at hand."""

import argparse
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from peers.gpu_work import Clock, named, show
from peers.training_gpu import Memory, loop


class Sampler:
    """The share of time in which the GPU was computing, ten times a second, as its driver tells."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.samples, self.over = device, [], threading.Event()
        self.way, self._read = self._reader()
        self.thread = threading.Thread(target=self._sample, daemon=True)

    def _reader(self) -> tuple[str, Any]:
        if self.device.type != "cuda":
            return "none", lambda: None
        try:
            torch.cuda.utilization(self.device)
        except Exception:  # noqa: BLE001  # neither its package nor its library need be there
            question = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
            number = str(self.device.index or 0)

            def ask() -> int | None:
                try:
                    told = subprocess.run([*question, "-i", number], capture_output=True, text=True, check=True).stdout
                    return int(told)
                except (OSError, ValueError, subprocess.CalledProcessError):
                    return None

            return "nvidia-smi", ask
        return "nvml", lambda: torch.cuda.utilization(self.device)

    def _sample(self) -> None:
        while not self.over.wait(0.1):
            if (share := self._read()) is not None:
                self.samples.append(share)

    def __enter__(self) -> "Sampler":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()


class _EnoughError(Exception):
    """The time of a measurement is over."""


class Watch:
    """A screen that lets a run warm up, then go on for some seconds."""

    def __init__(self, seconds: float, device: torch.device) -> None:
        self.seconds, self.clock, self.steps, self.first = seconds, Clock(device), 0, 0
        self.warm_up = self.elapsed = 0.0
        self.sampler: Sampler | None = None
        self.trainer: Any = None

    def say(self, line: str) -> None:
        print(line, file=sys.stderr)

    def working(self, what: str, done: int, total: int | None) -> None:
        del what, done, total

    def updated(self, update: Any) -> None:
        step = self.trainer.progress.step  # updates are told of in groups, when all of a group are done
        if self.sampler is None:
            if update.step < 100:
                return
            self.warm_up, self.first = self.clock(), step
            self.sampler = Sampler(self.clock.device).__enter__()
        elif time.perf_counter() - self.clock.began >= self.seconds:
            self.elapsed, self.steps = self.clock(), step - self.first
            self.sampler.__exit__()
            raise _EnoughError


def utilisation(options: argparse.Namespace, device: torch.device) -> None:
    """Train from real files for a while, then on some of the same batches from memory, as fast as it goes."""
    from headway.assemble import trainer_of
    from headway.beginning import begin, resumed
    from headway.config import validated
    from headway.recipe import Recipe
    from headway.training.parallel import ALONE
    from headway.training.signals import Stopper

    tree = {
        "data": {"folder": str(options.data), "source": options.source, "target": options.target},
        "model": {"preset": options.preset, "longest": 128},
        "training": {"steps": 1 << 30, "schedule": "inverse_sqrt", "warmup": 4000, "validate_every": 1 << 30},
    }
    with tempfile.TemporaryDirectory(prefix="headway-benchmark-") as name:
        watch, out = Watch(options.utilisation, device), Path(name) / "run"
        recipe = validated(Recipe, tree, "benchmark")
        begin(recipe, out, device=device, screen=watch)
        preparing = watch.clock()
        trainer = trainer_of(*resumed(recipe, out, watch), out, device, watch, ALONE, Stopper())
        units: list[int] = []
        watch.trainer = trainer
        trainer.feed = Counted(trainer.feed, units)
        with trainer.journal:
            with suppress(_EnoughError):
                trainer.fit()
            assert watch.sampler is not None
            tokens = sum(units[watch.first : watch.first + watch.steps])
            speed = tokens / watch.elapsed
            _, batches = trainer.feed.feed.epoch(0, 0)
            work = Memory(list(islice(batches, 200)))
            ahead = from_memory(trainer, work, options.utilisation / 4, device)
    samples = sorted(watch.sampler.samples) or [float("nan")]
    show(
        utilisation=statistics.mean(samples) if len(watch.sampler.samples) else None,
        lowest_tenth=samples[len(samples) // 10] if len(watch.sampler.samples) else None,
        samples=len(watch.sampler.samples),
        by=watch.sampler.way,
        model=options.preset,
        device=named(device),
        seconds=round(watch.elapsed, 1),
        steps=watch.steps,
        tokens_per_second=round(speed),
        tokens_per_second_from_memory=round(ahead),
        ratio=round(speed / ahead, 3),
        preparing_seconds=round(preparing, 1),
        warm_up_seconds=round(watch.warm_up, 1),
    )


@dataclass
class Counted:
    """A feed that notes how many target tokens its batches have."""

    feed: Any
    units: list[int]

    def epoch(self, number: int, start: int, *, rank: int = 0, world: int = 1) -> tuple[int, Any]:
        length, batches = self.feed.epoch(number, start, rank=rank, world=world)
        return length, self._noted(batches)

    def _noted(self, batches: Any) -> Any:
        for batch in batches:
            self.units.append(batch.units)
            yield batch


def from_memory(trainer: Any, work: Memory, seconds: float, device: torch.device) -> float:
    """Target tokens a second of the same trainer where every batch is there already."""
    trainer.feed, trainer.on_update = work, lambda _: None
    trainer.checkpoints.prune = lambda *_: None
    trainer.progress = replace(trainer.progress, epoch=0, position=0)
    count, clock = len(work.batches), Clock(device)
    loop(trainer, trainer.progress.step, count)
    rounds = max(1, round(seconds / clock()))
    loop(trainer, trainer.progress.step, rounds * count)
    return rounds * sum(batch.units for batch in work.batches) / clock()

"""What safety costs: deterministic kernels, and checkpoints written beside training. JSON lines on standard output.

python benchmarks/training_costs.py --data FOLDER --device cuda --preset tiny base

FOLDER holds tok/train.lc.norm.tok.{en,de} of Multi30k. Arms take turns in one process; medians and the spread.
"""

import argparse
import statistics
import tempfile
import time
from itertools import islice
from pathlib import Path

import torch

from headway.assemble import choose_device, trainer_of
from headway.beginning import begin, resumed
from headway.cli.terminal import Terminal
from headway.config import validated
from headway.recipe import Recipe
from headway.training.background import Background
from headway.training.checkpoint import Snapshot
from headway.training.parallel import ALONE
from headway.training.signals import Stopper
from peers.origin import show

UPDATES, ROUNDS = 10, 7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--device")
    parser.add_argument("--preset", nargs="+", default=["tiny"])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    for preset in given.preset:
        with tempfile.TemporaryDirectory() as folder, Terminal() as screen:
            report(given, preset, Path(folder), screen)


def report(given, preset, folder, screen):
    tree = {
        "data": {"folder": str(given.data), "source": "tok/train.lc.norm.tok.en", "target": "tok/train.lc.norm.tok.de"},
        "model": {"preset": preset, "longest": 128},
        "training": {"steps": 100_000, "warmup": 4000},
    }
    device, recipe = choose_device(given.device), validated(Recipe, tree, "benchmark")
    begin(recipe, folder / "run", device=device, screen=screen)
    trainer = trainer_of(*resumed(recipe, folder / "run", screen), folder / "run", device, screen, ALONE, Stopper())
    _, batches = trainer.feed.epoch(0, 0)
    held = list(islice(batches, UPDATES))
    facts = {"device": torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {given.threads} threads"}
    facts |= {"preset": preset, "updates": UPDATES, "rounds": ROUNDS}
    for _ in range(3):
        timed(trainer, held)  # warm-up
    with trainer.journal:
        deterministic(trainer, held, facts)
        saving(trainer, held, facts)


def timed(trainer, held):
    began = time.monotonic()
    for batch in held:
        trainer.update([batch])
    if trainer.device.type == "cuda":
        torch.cuda.synchronize()
    return (time.monotonic() - began) / len(held)


def deterministic(trainer, held, facts):
    arms = {False: [], True: []}
    for _ in range(ROUNDS):
        for arm, seconds in arms.items():
            torch.use_deterministic_algorithms(arm)
            timed(trainer, held[:3])
            seconds.append(timed(trainer, held))
    torch.use_deterministic_algorithms(False)
    ratios = [slow / fast for fast, slow in zip(arms[False], arms[True], strict=True)]
    report_spread("deterministic", facts, seconds_an_update=arms[False], deterministic_seconds=arms[True], ratio=ratios)


def saving(trainer, held, facts):
    background, plain, beside, copied, written = Background(), [], [], [], []
    for index in range(ROUNDS):
        plain.append(timed(trainer, held))
        began = time.monotonic()
        step = trainer.progress.step + 1000 * (index + 1)
        progress = type(trainer.progress)(step=step)
        snapshot = Snapshot.take(trainer.model, trainer.optimiser, progress)
        copied.append(time.monotonic() - began)
        began = time.monotonic()
        trainer.checkpoints.write(snapshot)
        written.append(time.monotonic() - began)
        other = Snapshot(snapshot.files, type(progress)(step=step + 1))
        background.start(lambda other=other: trainer.checkpoints.write(other))
        began = time.monotonic()
        updates = 0
        while updates < 2 or background.busy:
            trainer.update([held[updates % len(held)]])
            updates += 1
        if trainer.device.type == "cuda":
            torch.cuda.synchronize()
        spent = time.monotonic() - began
        background.wait()
        beside.append(spent - updates * plain[-1])
        trainer.checkpoints.prune(step + 1, set())
    size = sum(path.stat().st_size for path in trainer.checkpoints.path(step + 1).iterdir())
    figures = {"seconds_to_copy": copied, "seconds_to_write": written, "seconds_lost_beside": beside}
    report_spread("saving", {**facts, "bytes": size}, **figures)


def report_spread(what, facts, **figures):
    told = {
        name: {"median": statistics.median(values), "least": min(values), "most": max(values)}
        for name, values in figures.items()
    }
    show({"what": what, **facts, **told})


if __name__ == "__main__":
    main()

"""Do short trainings with default learning rate, warm-up and initialisation all learn: sixty of them, every size.

    python benchmarks/stability.py                                           # about 45 minutes on two CPU cores
    python benchmarks/stability.py --device cuda                             # all cells, more updates
    python benchmarks/stability.py --source train.en --target train.de --side-by-side 2 --threads 1
    python benchmarks/stability.py --presets tiny --batches 1024 --steps 60 150
    python benchmarks/stability.py --plan                                    # the trainings, none of them done

A training has a preset, a place of the norm, a batch size, a number of updates and a seed. Learning rate, warm-up,
schedule, initialisation and dropout are what the library chooses for these. Each is to end with a validation loss below
that of a unigram model: the frequencies of the training set's target tokens, end symbols included, with one added to
every count, in nats a token on the same validation tokens. A model that has learnt nothing but these frequencies ends
there; one that diverged, or whose learning rate stayed too low, ends above.

The corpus is the built-in French-English one, or the user's, of which Headway holds out the validation pairs. On a CPU
there are fewer updates where they are expensive, and none of 25,000 tokens of the preset base; `--scale` changes all
numbers of updates. One JSON line a training, then a summary; exit code 1 if any training fails or does not end below.
"""

import argparse
import json
import math
import multiprocessing
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch

from headway.assemble import choose_device, train
from headway.beginning import stored_recipe
from headway.config import validated
from headway.data.demos import DEMOS
from headway.data.preparation import reopen
from headway.errors import HeadwayError
from headway.recipe import Recipe
from headway.screen import Silent
from headway.validation import unigram_loss, validation_batches
from peers.origin import show
from peers.trials import Line

PRESETS, NORMS, BATCHES = ("tiny", "small", "base"), ("pre", "post"), (1024, 4096, 25_000)
Plan = dict[tuple[str, int], dict[int, int]]
"""By preset and batch size: for every number of updates, how many seeds."""
PLANS: dict[str, Plan] = {
    "cpu": {
        ("tiny", 1024): {60: 2, 150: 2, 500: 1},
        ("tiny", 4096): {40: 2, 80: 2, 150: 1},
        ("tiny", 25_000): {20: 1, 30: 1, 40: 1},
        ("small", 1024): {60: 2, 150: 2, 300: 1},
        ("small", 4096): {20: 2, 40: 2, 60: 1},
        ("small", 25_000): {20: 1},
        ("base", 1024): {20: 2, 40: 2, 60: 1},
        ("base", 4096): {20: 1},
    },
    "cuda": {
        (preset, batch): {60: 1, 150: 2 if batch == min(BATCHES) else 1, 500: 1}
        for preset, batch in product(PRESETS, BATCHES)
    },
}
"""Sixty trainings each, with both places of the norm."""
PAIRS, HELD_OUT = 6000, 200
"""Training and validation pairs of the built-in corpus."""


@dataclass(frozen=True)
class Cell:
    """One training."""

    preset: str
    norm: str
    batch_tokens: int
    steps: int
    seed: int


@dataclass(frozen=True)
class Work:
    """What all trainings share: the corpus, where runs are written, and what they run on."""

    data: dict[str, Any]
    folder: Path
    device: str
    threads: int


def cells(options: argparse.Namespace) -> Iterator[Cell]:
    """Every training that is asked for: those of the plan, or all combinations where updates are given."""
    plan = PLANS[torch.device(options.device).type]
    for preset, batch in product(options.presets, options.batches):
        planned = dict.fromkeys(options.steps, 1) if options.steps else plan.get((preset, batch), {})
        for steps, seeds in planned.items():
            updates = max(1, round(steps * options.scale))
            for norm, seed in product(options.norms, options.seeds or range(1, seeds + 1)):
                yield Cell(preset, norm, batch, updates, seed)


def measure(cell: Cell, work: Work) -> Line:
    """Train once and compare the validation loss at the end with that of the unigram model."""
    torch.set_num_threads(work.threads)
    out = work.folder / "-".join(map(str, asdict(cell).values()))
    tree = {
        "data": work.data,
        "model": {"preset": cell.preset, "norm": cell.norm},
        "training": {
            "seed": cell.seed,
            "steps": cell.steps,
            "batch_tokens": cell.batch_tokens,
            "validate_every": cell.steps,
            "validation_sentences": 1,
            "samples": 0,
        },
    }
    line, began = asdict(cell), time.perf_counter()
    try:
        train(validated(Recipe, tree, "benchmark"), out, device=choose_device(work.device), screen=Silent())
    except HeadwayError as error:  # such as a loss that is not finite
        return {**line, "failed": str(error), "below": False}
    recipe, loss, unigram = losses(out)
    shutil.rmtree(out)  # checkpoints of sixty runs would fill a disk
    return {
        **line,
        "loss": round(loss, 3),
        "unigram": round(unigram, 3),
        "below": loss < unigram,
        "learning_rate": recipe.training.learning_rate,
        "warmup": recipe.training.warmup,
        "seconds": round(time.perf_counter() - began, 1),
    }


def losses(out: Path) -> tuple[Recipe, float, float]:
    """The recipe of a finished run, its last validation loss, and that of the unigram model."""
    recipe = stored_recipe(out)
    prepared = reopen(recipe.data, out / "data")
    assert recipe.model is not None and prepared is not None  # it was trained
    journal = (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    found = [loss for loss in map(_validated, journal) if loss is not None]
    return recipe, found[-1], unigram_loss(prepared, validation_batches(prepared, recipe.model.longest))


def _validated(entry: str) -> float | None:
    """The validation loss of a line of the journal; one that was not finite is written as null there."""
    values = json.loads(entry)
    if "valid/loss" not in values:
        return None
    return math.inf if values["valid/loss"] is None else float(values["valid/loss"])


def results(todo: list[Cell], work: Work, side_by_side: int) -> Iterator[Line]:
    """One line a training, in processes of their own where several run at once."""
    if side_by_side == 1:
        yield from (measure(cell, work) for cell in todo)
        return
    with ProcessPoolExecutor(side_by_side, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(measure, todo, [work] * len(todo))


def corpus(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The settings of the data: the user's files, or the built-in corpus written out."""
    if options.source is not None:
        return {"source": str(options.source.resolve()), "target": str(options.target.resolve())}
    demo = DEMOS["phrases"](train=options.pairs, valid=min(HELD_OUT, options.pairs), test=1)
    files = {}
    for part, prefix in (("train", ""), ("valid", "valid_")):
        for side in ("source", "target"):
            path = folder / f"{part}.{side}"
            lines = "".join(f"{getattr(pair, side)}\n" for pair in getattr(demo, part))
            path.write_text(lines, encoding="utf-8")
            files[f"{prefix}{side}"] = str(path)
    return files


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--source", type=Path, help="a corpus in place of the built-in one")
    found.add_argument("--target", type=Path)
    found.add_argument("--pairs", type=int, default=PAIRS, help="training pairs of the built-in corpus")
    found.add_argument("--presets", nargs="+", choices=PRESETS, default=list(PRESETS))
    found.add_argument("--norms", nargs="+", choices=NORMS, default=list(NORMS))
    found.add_argument("--batches", type=int, nargs="+", default=list(BATCHES))
    found.add_argument("--steps", type=int, nargs="+", help="updates of every combination, in place of the plan")
    found.add_argument("--scale", type=float, default=1.0, help="times as many updates as planned")
    found.add_argument("--seeds", type=int, nargs="+", help="by default 1, and 2 for some cheap ones")
    found.add_argument("--side-by-side", type=int, default=1, help="trainings at once")
    found.add_argument("--threads", type=int, default=2, help="of every training")
    found.add_argument("--device", default="cpu")
    found.add_argument("--plan", action="store_true", help="show the trainings and their updates, no more")
    return found


def main() -> int:
    options = parser().parse_args()
    if (options.source is None) != (options.target is None):
        parser().error("--source and --target belong together")
    todo = list(cells(options))
    if options.plan:
        for cell in todo:
            show(asdict(cell))
        return 0
    with tempfile.TemporaryDirectory(prefix="headway-stability-") as name:
        folder = Path(name)
        work = Work(corpus(options, folder), folder, options.device, options.threads)
        lines = []
        for line in results(todo, work, options.side_by_side):
            show(line, options.device)
            lines.append(line)
    below = sum(line["below"] for line in lines)
    told = {"summary": "stability", "trainings": len(lines), "below_unigram": below}
    show({**told, "threads": options.threads, "side_by_side": options.side_by_side}, options.device)
    return 0 if below == len(lines) else 1


if __name__ == "__main__":
    sys.exit(main())

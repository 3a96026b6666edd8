"""What experiments have in common: how large they are, a corpus, and models trained on it by the real loop."""

import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from headway.assemble import train
from headway.config import validated
from headway.crew import Crew, affordable
from headway.recipe import Recipe
from headway.reproduce.report import Report
from headway.screen import Silent
from headway.translator import Translator, load

Task = TypeVar("Task")
Result = TypeVar("Result")
Say = Callable[[str], None]
Texts = Sequence[tuple[str, str]]
"""Sources, each with its target."""


@dataclass(frozen=True)
class Scale:
    """How large an experiment is, and where it works."""

    folder: Path
    """For corpora and runs, which the next try may not find there."""
    device: torch.device
    seeds: tuple[int, ...] = (1, 2, 3)
    effort: float = 1.0
    """How many times as long as the small setting models are trained."""

    def steps(self, small: int) -> int:
        """Updates, where the small setting takes this many."""
        return max(10, round(small * self.effort))


Experiment = Callable[[Scale, Say], Report]


@dataclass(frozen=True)
class Corpus:
    """Pairs to learn from and pairs to be judged by, as files where the training loop finds them."""

    folder: Path

    @classmethod
    def written(cls, folder: Path, train: Texts, valid: Texts) -> "Corpus":
        """Write the files."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, pairs in (("train", train), ("valid", valid)):
            for side, place in (("source", 0), ("target", 1)):
                text = "".join(f"{pair[place]}\n" for pair in pairs)
                (folder / f"{name}.{side}").write_text(text, encoding="utf-8")
        return cls(folder)

    def fitted(self, scale: Scale, name: str, seed: int, settings: Mapping[str, Mapping[str, Any]]) -> Translator:
        """A model trained on the corpus, as the groups of a recipe in `settings` say."""
        data = {
            "folder": str(self.folder),
            "source": "train.source",
            "target": "train.target",
            "valid_source": "valid.source",
            "valid_target": "valid.target",
        }
        training = {"samples": 0, "average": 1, "seed": seed, "metric": "loss", "validation_sentences": 50}
        tree = {**settings, "data": data, "training": {**training, **settings.get("training", {})}}
        out = scale.folder / f"{name}-{seed}"
        train(validated(Recipe, tree, "reproduce"), out, device=scale.device, screen=Silent())
        return load(out, device=scale.device)


def each(work: Callable[[Task], Result], tasks: Sequence[Task], scale: Scale) -> Iterator[Result]:
    """The results of all tasks, in order; on a CPU as many at a time as there are cores, since small models use one."""
    workers = min(len(tasks), affordable()) if scale.device.type == "cpu" else 1
    if workers < 2:
        yield from map(work, tasks)
        return
    with Crew[Task, Result](_on_one_core, work, workers=workers) as crew:
        yield from crew.answers(iter(tasks))


def _on_one_core(work: Callable[[Task], Result]) -> Callable[[Task], Result]:
    torch.set_num_threads(1)
    return work


def letters(draw: random.Random, length: int, alphabet: Sequence[str]) -> str:
    """Random symbols with blanks between."""
    return " ".join(draw.choices(alphabet, k=length))


def interval(values: Sequence[float]) -> str:
    """The mean of several seeds with its standard deviation; of one seed, the value."""
    mean = statistics.fmean(values)
    return f"{mean:.1f}" if len(values) == 1 else f"{mean:.1f} ± {statistics.stdev(values):.1f}"


def repeated(scale: Scale) -> str:
    """How often every model was trained, and what the tables then show."""
    count = len(scale.seeds)
    return "One seed" if count == 1 else f"Mean and standard deviation over {count} seeds"

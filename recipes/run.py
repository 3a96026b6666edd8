"""Trains recipes with several seeds, scores them on their test sets and writes what was found to result.json.

python recipes/run.py multi30k-en-de --data DATA --out RUNS
python recipes/run.py cmudict scan-simple --data DATA --out RUNS --archives ARCHIVES --seeds 1 2 3 --device cuda
python recipes/run.py aeslc --data DATA --out RUNS --only validation --set training.r_drop=1 --results TRIED

DATA holds a folder for each corpus, named as its archive; those that are missing are unpacked from ARCHIVES. What is
found stands in recipes/NAME/result.json, or under --results, after every seed; a seed that is there already, measured
by the same recipe and settings on the same hardware, is not run again. One JSON line a seed goes to standard output.
Where other processes use the device meanwhile, say how many with --beside: seconds are then no times of a run alone.
"""

import argparse
import hashlib
import json
import math
import os
import platform
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measures import BASELINES, MEASURES, Material, Scores
from tasks import RECIPES, Sample, named, prepared, read_sample, unpacked

from headway.errors import ConfigError, HeadwayError

if TYPE_CHECKING:
    import torch

    from headway.recipe import Recipe
    from headway.training.trainer import Update

LIBRARIES = ("headway", "torch", "tokenizers", "sacrebleu")
"""What a result may depend on."""
VALIDATION = "validation"
"""What the set is called that every choice is made on."""


class Clock:
    """Follows a run for its times: when its loop began, made the first update, and ended."""

    def __init__(self) -> None:
        self.began = self.first = self.ended = 0.0

    def say(self, line: str) -> None:
        """Show a line, and take the time of those that begin and end the loop."""
        if line.startswith("training on "):
            self.began = time.time()
        if line.startswith("training ends"):
            self.ended = time.time()
        sys.stderr.write(f"{line}\n")

    def working(self, what: str, done: int, total: int | None) -> None:
        """Show nothing: the work is a matter of seconds."""

    def updated(self, _: "Update") -> None:
        """Take the time of the first update."""
        self.first = self.first or time.time()


class Runner:
    """One recipe: its data, its settings, and where its runs and results stand."""

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        from headway.assemble import choose_device
        from headway.cli.recipes import overrides, read_recipe

        self.name, self.task, self.options = name, named(name), options
        self.out, self.results = options.out / name, options.results / name / "result.json"
        self.device = choose_device(options.device)
        began = time.perf_counter()
        folder = unpacked(self.task, options.data, options.archives)
        self.folder = prepared(name, folder, self.out / "prepared")
        self.preparing = time.perf_counter() - began
        changes = overrides(options.set, data__folder=self.folder.resolve())
        self.recipe = read_recipe(RECIPES / name / "recipe.toml", changes)
        self.tests = {
            test: read_sample(self.folder, files)
            for test, files in self.task.tests.items()
            if test in (options.only or self.task.tests)
        }
        if unknown := set(options.only or ()) - self.tests.keys():
            told = f"--only {' '.join(sorted(unknown))}: no such test set"
            raise ConfigError(f"{told}; {name} has {', '.join(self.task.tests)}")

    def run(self) -> None:
        """Measure every seed that was not measured yet."""
        from headway.beginning import begin

        found = self.before()
        wanted = [seed for seed in self.options.seeds if all(run["seed"] != seed for run in found["runs"])]
        if not wanted:
            return
        material = self.material()
        found.pop("ensemble", None)  # of fewer seeds
        found["baselines"] = {each: self.baseline(each, material) for each in self.task.baselines}
        first, clock = self.out / "begun", Clock()
        began = time.perf_counter()
        begin(self.recipe, first, device=self.device, screen=clock)
        if not self.options.beside:
            found["seconds_of_preparation"] = round(self.preparing + time.perf_counter() - began, 2)
        for seed in wanted:
            run = self.trained(seed, first, material)
            found["runs"] = sorted([*found["runs"], run], key=lambda each: each["seed"])
            self.write({**found, **summed(found["runs"])})
            self.show({key: value for key, value in run.items() if key != "curve"})
        folders = [self.out / f"seed-{run['seed']}" for run in found["runs"]]
        if self.options.ensemble and len(folders) > 1 and all(folder.is_dir() for folder in folders):
            found["ensemble"] = self.tested(folders, material)
            self.write({**found, **summed(found["runs"])})
            self.show({"ensemble": len(folders), "scores": found["ensemble"]})

    def write(self, found: dict[str, Any]) -> None:
        """Put down what is found so far."""
        self.results.parent.mkdir(parents=True, exist_ok=True)
        _write(self.results, json.dumps(found, indent=1, ensure_ascii=False) + "\n")

    def show(self, found: dict[str, Any]) -> None:
        """Print a line."""
        sys.stdout.write(json.dumps({"recipe": self.name, **found}, ensure_ascii=False) + "\n")
        sys.stdout.flush()

    def tested(self, folders: list[Path], material: Material) -> dict[str, Scores]:
        """The scores of a model, or of several that decode together."""
        import headway

        translator = headway.load(folders[0], device=self.device, ensemble=folders[1:])

        def outputs(sample: Sample) -> list[list[str]]:
            found = translator(sample.sources, tags=self.task.tags)
            return [[str(each), *map(str, each.alternatives)] for each in found]

        return self.scored(outputs, material)

    def before(self) -> dict[str, Any]:
        """What was found earlier by the same settings on the same hardware, or else the head of new results."""
        head = {
            "recipe": self.name,
            "commit": commit(),
            "date": datetime.now(UTC).date().isoformat(),
            "command": self.command(),
            "hardware": hardware(self.device),
            "versions": {each: str(import_module(each).__version__) for each in LIBRARIES}
            | {"python": platform.python_version()},
            "fingerprint": self.fingerprint(),
            "runs": [],
        }
        try:
            old = json.loads(self.results.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return head
        same = all(old.get(key) == head[key] for key in ("fingerprint", "hardware", "versions"))
        return old | {key: head[key] for key in ("commit", "date", "command")} if same else head

    def command(self) -> str:
        """The command, with the user's folders left to the reader."""
        words = [f"python recipes/run.py {self.name} --data DATA --out RUNS"]
        words += [f"--seeds {' '.join(map(str, self.options.seeds))}"]
        words += [f"--only {' '.join(self.options.only)}"] if self.options.only else []
        words += ["--ensemble"] * self.options.ensemble
        words += [f"--set {change}" for change in self.options.set]
        return " ".join(words)

    def fingerprint(self) -> str:
        """What tells results of other settings apart."""
        files = [RECIPES / self.name / each for each in ("recipe.toml", "task.toml", "prepare.py")]
        texts = [path.read_text(encoding="utf-8") for path in files if path.is_file()]
        return hashlib.sha256(json.dumps([texts, self.options.set, sorted(self.tests)]).encode()).hexdigest()

    def material(self) -> Material:
        """What scoring and baselines may know."""
        from headway.data.pairs import read_pairs

        training = [(pair.source, pair.target) for files in self.recipe.data.training() for pair in read_pairs(files)]
        validation = self.tests.get(VALIDATION) or read_sample(self.folder, self.task.tests[VALIDATION])
        right = {target for _, target in training} | {
            choice for sample in (validation, *self.tests.values()) for each in sample.references for choice in each
        }
        return Material(training, validation, frozenset(right))

    def baseline(self, name: str, material: Material) -> dict[str, Scores]:
        """The scores of what needs no model."""
        answer = BASELINES[name](material)
        return self.scored(lambda sample: [[each] for each in answer(sample.sources)], material)

    def scored(self, outputs: Callable[[Sample], list[list[str]]], material: Material) -> dict[str, Scores]:
        """The scores on every test set, rounded for reading."""
        measure = MEASURES[self.task.measure]
        scores = {test: measure(outputs(sample), sample, material) for test, sample in self.tests.items()}
        return {test: {name: round(value, 3) for name, value in each.items()} for test, each in scores.items()}

    def trained(self, seed: int, first: Path, material: Material) -> dict[str, Any]:
        """One seed from the prepared data to its scores."""
        from headway.assemble import train

        out, clock = self.out / f"seed-{seed}", Clock()
        recipe = seeded(first, out, seed)
        train(recipe, out, device=self.device, screen=clock, resume=True)
        trained = time.time()
        scores = self.tested([out], material)
        curve, final = journal(out / "metrics.jsonl", clock.began)
        return {
            "seed": seed,
            "scores": scores,
            "chosen_on": final,
            "updates": max((point["step"] for point in curve), default=0),
            "parameters": parameters(out / "best" / "model.safetensors"),
            "seconds": {
                "loop": round(clock.ended - clock.began, 2),
                "to_first_update": round(max(clock.first - clock.began, 0.0), 2),
                "closing": round(trained - clock.ended, 2),
                "testing": round(time.time() - trained, 2),
            },
            "beside": self.options.beside,
            "curve": curve,
        }


def seeded(first: Path, out: Path, seed: int) -> "Recipe":
    """Begin a run with this seed in `out` from what was prepared in `first`; its tokens are shared, not made again."""
    from headway.beginning import stored_recipe
    from headway.config import write_toml
    from headway.errors import FolderError

    if out.exists():
        raise FolderError(f"{out}: is there already; remove it, or choose another --out")
    stored = stored_recipe(first)
    recipe = stored.model_copy(update={"training": stored.training.model_copy(update={"seed": seed})})
    shutil.copytree(first / "data", out / "data", copy_function=os.link, ignore=shutil.ignore_patterns("plans"))
    _write(out / "config.toml", write_toml(recipe))
    return recipe


def journal(path: Path, began: float) -> tuple[list[dict[str, float]], Scores]:
    """Every validation with the seconds since the loop began, and what the finished model was chosen by."""
    curve: list[dict[str, float]] = []
    final: Scores = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        values = json.loads(line)
        valid = {name[6:]: value for name, value in values.items() if name.startswith("valid/")}
        final |= {name[6:]: value for name, value in values.items() if name.startswith("final/")}
        if valid:
            curve.append({"seconds": round(values["time"] - began, 2), "step": values["step"], **valid})
    return curve, final


def summed(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean and standard deviation over seeds of every score; with one seed there is no deviation."""
    tests = runs[0]["scores"]
    values = {
        test: {name: [run["scores"][test][name] for run in runs] for name in scores} for test, scores in tests.items()
    }
    return {
        "mean": {t: {name: round(statistics.mean(v), 3) for name, v in each.items()} for t, each in values.items()},
        "deviation": {
            t: {name: round(statistics.stdev(v), 3) if len(v) > 1 else None for name, v in each.items()}
            for t, each in values.items()
        },
    }


def parameters(path: Path) -> int:
    """How many numbers a model holds."""
    from safetensors import safe_open

    with safe_open(path, "pt") as weights:
        shapes = [weights.get_slice(name).get_shape() for name in weights.keys()]  # noqa: SIM118  # not a dictionary
    return sum(map(math.prod, shapes))


def commit() -> str:
    """The commit this runs from, as the benchmarks say it."""
    sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
    from peers.origin import COMMIT

    return COMMIT


def hardware(device: "torch.device") -> str:
    """The device in words."""
    import torch

    if device.type == "cuda":
        return f"one {torch.cuda.get_device_name(device)}"
    return f"CPU, {torch.get_num_threads()} thread{'s' * (torch.get_num_threads() > 1)}"


def _write(path: Path, text: str) -> None:
    from headway.folders import write_text

    write_text(path, text)


def main(arguments: list[str]) -> int:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", help="folders of recipes/")
    parser.add_argument("--data", type=Path, required=True, help="the folder of the corpora")
    parser.add_argument("--out", type=Path, required=True, help="a new folder for the runs")
    parser.add_argument("--archives", type=Path, help="where NAME.tar.xz of corpora stand that are not in --data")
    parser.add_argument("--results", type=Path, default=RECIPES, help="where NAME/result.json is written")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--only", nargs="+", help="score these test sets alone, such as validation")
    parser.add_argument("--ensemble", action="store_true", help="score all seeds together too")
    parser.add_argument("--beside", type=int, default=0, help="other processes on the device: no times are shown then")
    parser.add_argument("--device", help="cpu, cuda or cuda:N")
    parser.add_argument("--set", action="append", default=[], help="any setting, as in headway train")
    options = parser.parse_args(arguments)
    try:
        for name in options.names:
            Runner(name, options).run()
    except HeadwayError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

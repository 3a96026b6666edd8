"""How well `headway plan` foretells a run: plan, then really train, and compare; JSON lines.

    python benchmarks/forecast.py --data corpora/multi30k --source train.en --target train.de
    python benchmarks/forecast.py --device cuda --steps 1000 --presets tiny small base

Without a corpus, synthetic pairs are made. Plan and training take turns, each in a process of its own, `--repeats`
times; every line has both figures of one turn and the ratio of what happened to what was foretold. Peak memory is that
of the GPU or, on a CPU, of the whole training process. The machine must be quiet: another busy process makes an update
several times as slow, now the planned ones and then the real ones.
"""

import argparse
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from peers.origin import show

ENVIRONMENT = {"TOKENIZERS_PARALLELISM": "false", "PYTHONDONTWRITEBYTECODE": "1"}


def made_corpus(folder: Path, pairs: int) -> list[str]:
    """Synthetic pairs of 3 to 24 words in two files; returns the options that name them."""
    from data_scale import synthetic

    names = [folder / "synthetic.source", folder / "synthetic.target"]
    with names[0].open("w") as source, names[1].open("w") as target:
        for left, right in synthetic(pairs):
            source.write(f"{left}\n")
            target.write(f"{right}\n")
    return ["--source", str(names[0]), "--target", str(names[1])]


def child(arguments: list[str]) -> dict[str, Any]:
    """The last line of JSON that a process of this interpreter prints."""
    finished = subprocess.run(
        [sys.executable, *arguments], stdout=subprocess.PIPE, text=True, env=os.environ | ENVIRONMENT, check=True
    )
    found: dict[str, Any] = json.loads(finished.stdout.splitlines()[-1])
    return found


def really_train(arguments: list[str]) -> None:
    """Train as the command does, with a clock wherever updates are settled and at every validation; prints both."""
    import torch

    from headway.cli import main
    from headway.training.trainer import Trainer

    moments: list[tuple[float, int, int]] = []
    """When updates had become known, how many, and their target tokens; none at the end of a validation."""
    validations: list[float] = []
    settle, validate = Trainer._settle, Trainer._validate

    def timed_settle(self: Trainer) -> None:
        begun = [each.units for each in self._begun]
        settle(self)
        if begun:
            moments.append((time.monotonic(), len(begun), sum(begun)))

    def timed_validate(self: Trainer) -> None:
        begun = time.monotonic()
        validate(self)
        validations.append(time.monotonic() - begun)
        moments.append((time.monotonic(), 0, 0))

    Trainer._settle, Trainer._validate = timed_settle, timed_validate  # type: ignore[method-assign]  # to be timed
    begun = time.monotonic()
    try:
        main(["train", *arguments])
    except SystemExit as ended:
        if ended.code:
            raise
    finally:
        Trainer._settle, Trainer._validate = settle, validate  # type: ignore[method-assign]  # as they were
    wall = time.monotonic() - begun
    spans = [
        (after - before, done, units) for (before, *_), (after, done, units) in itertools.pairwise(moments) if done
    ]
    spent, done, units = (sum(each) for each in zip(*spans, strict=True))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        peak = torch.cuda.max_memory_allocated()
    result = {"seconds_per_update": spent / done, "tokens_per_second": units / spent}
    result |= {"peak": peak, "seconds": wall, "validations": len(validations)}
    print(json.dumps(result | {"seconds_per_validation": sum(validations) / len(validations)}), flush=True)


def compared(preset: str, corpus: list[str], options: argparse.Namespace) -> dict[str, Any]:
    """One turn: a plan, then the run."""
    settings = [f"model.preset={preset}", f"training.steps={options.steps}", *options.set]
    common = [*corpus, *(part for setting in settings for part in ("--set", setting))]
    common += ["--device", options.device] if options.device else []
    begun = time.monotonic()
    plan = child(["-m", "headway", "plan", "--json", *common])
    planning = time.monotonic() - begun
    with tempfile.TemporaryDirectory() as folder:
        real = child([__file__, "--really-train", *common, "--out", str(Path(folder) / "run")])
    told = {name: plan[name] for name in ("seconds_per_update", "tokens_per_second", "seconds")}
    told["seconds_per_validation"] = plan["seconds_per_validation"] + plan["seconds_per_checkpoint"]
    told["peak"] = sum(plan["memory"].values())
    line: dict[str, Any] = {"preset": preset, "planned_for": plan["machine"], "steps": options.steps}
    line |= {"planning_seconds": round(planning, 1), "timed_updates": plan["timed_updates"]}
    for name, value in told.items():
        line[name] = {"plan": round(value, 4), "real": round(real[name], 4), "ratio": round(real[name] / value, 3)}
    return line


def main() -> None:
    if sys.argv[1:2] == ["--really-train"]:
        really_train(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder of the corpus")
    parser.add_argument("--source", default="train.lc.norm.tok.en", help="its source file")
    parser.add_argument("--target", default="train.lc.norm.tok.de", help="its target file")
    parser.add_argument("--pairs", type=int, default=40_000, help="synthetic pairs, where no corpus is given")
    parser.add_argument("--presets", nargs="*", default=["tiny", "small"])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--device")
    parser.add_argument("--set", action="append", default=[], help="any other setting of the recipe")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.data:
            corpus = ["--source", str(options.data / options.source), "--target", str(options.data / options.target)]
        else:
            corpus = made_corpus(Path(folder), options.pairs)
        for _ in range(options.repeats):
            for preset in options.presets:
                show(compared(preset, corpus, options), options.device)


if __name__ == "__main__":
    main()

"""Translation quality for the same time on the same GPU: Headway beside Hugging Face's Marian, both from scratch.

    python benchmarks/quality_gpu.py --data tatoeba_en_de.tar.xz --seconds 60 --seeds 1 2 3
    python benchmarks/quality_gpu.py --data FOLDER --schedule linear --fractions 0.5 1

FOLDER, or the archive, holds train*.en, test.en and the same of .de. Both learn the same pairs, cut by the same joint
byte-level BPE, with a model of the preset `small` and its dropout, as many real target tokens a step, bf16, Adam, label
smoothing 0.1, clipping at 1, the same highest learning rate and a warm-up over the same share of the steps that fit
into the time. Marian runs eager or compiled, whichever a short trial finds faster, on batches sorted by length that
were laid on the GPU before. The clock starts after some steps in which things are compiled and captured, and stands
still while weights are copied aside. With `inverse_sqrt` one run gives the weights at every fraction of the time; with
`linear` every fraction is a run of its own that ends at a learning rate of zero. Afterwards all weights translate the
test set in bf16 with a beam of 5 (each system by its own search and its own length penalty): BLEU (13a) and chrF.

One JSON line a measurement; at last one with the means over the seeds, and the share of the time in which Headway
reaches what Marian reaches in all of it. `--device cpu --seconds 5 --preset tiny` on a small corpus tries it all.
"""

import argparse
import statistics
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from headway.beginning import begin, resumed
from headway.config import validated
from headway.recipe import Recipe
from headway.screen import Silent
from peers.gpu_work import named, show
from peers.quality import Headway, Marian, Task


def prepared_task(options: argparse.Namespace, scratch: Path, device: torch.device) -> Task:
    """Unpack, learn the tokenizer and build the token store."""
    data = options.data
    if data.is_file():
        with tarfile.open(data) as archive:
            archive.extractall(scratch / "corpus", filter="data")
        data = scratch / "corpus"
    (train,) = data.glob(f"train*.{options.source}")
    tree = {
        "data": {"folder": str(data), "source": train.name, "target": f"{train.stem}.{options.target}"},
        "model": {"preset": options.preset, "longest": 256},
        "training": {
            "steps": 1 << 30,
            "schedule": "inverse_sqrt",
            "warmup": 1000,
            "validate_every": 1 << 30,
            "save_every": 1 << 30,
            "log_every": 10,
            "batch_tokens": options.tokens,
        },
    }
    if options.vocabulary:
        tree["tokenizer"] = {"vocabulary": options.vocabulary}
    if options.learning_rate:
        tree["training"]["learning_rate"] = options.learning_rate
    recipe, out = validated(Recipe, tree, "benchmark"), scratch / "run"
    begin(recipe, out, device=device, screen=Silent())
    recipe, prepared = resumed(recipe, out, Silent())
    texts = [
        (data / f"test.{side}").read_text(encoding="utf-8").splitlines() for side in (options.source, options.target)
    ]
    kept = [side[: options.sentences] for side in texts]
    return Task(options.data.name.split(".")[0], recipe, prepared, scratch, *kept, device, options)


def scored(system: Headway | Marian, task: Task, seed: int) -> Iterator[dict[str, Any]]:
    """Train once a seed, then judge the weights of every moment."""
    import sacrebleu

    options = task.options
    fractions = sorted(
        options.peer_fractions if system.name == "marian" and options.peer_fractions else options.fractions
    )
    budget = system.train(seed, fractions, options.schedule)
    for found, weights in zip(budget.found, budget.weights, strict=True):
        began = time.perf_counter()
        outputs = system.translate(weights)
        scores = {
            "bleu": round(sacrebleu.corpus_bleu(outputs, [task.references]).score, 2),
            "chrf": round(sacrebleu.corpus_chrf(outputs, [task.references]).score, 2),
            "decode_seconds": round(time.perf_counter() - began, 1),
        }
        parameters = sum(weight.numel() for weight in system.model.parameters() if weight.requires_grad)
        line = {"system": system.name, "data": task.name, "model": options.preset, "seed": seed, **found, **scores}
        line |= {"sentences": len(outputs), "parameters": parameters, "schedule": options.schedule}
        line |= {"budget_seconds": options.seconds, "device": named(task.device), **system.told}
        show(**line)
        print(f"{system.name}: {outputs[0]!r} for {task.references[0]!r}", file=sys.stderr)
        yield line


def summary(lines: list[dict[str, Any]], task: Task) -> dict[str, Any]:
    """Means over the seeds, and how soon Headway reaches what Marian reaches in the end."""
    means: dict[str, dict[str, float]] = {}
    for measure in ("bleu", "chrf"):
        for system in ("headway", "marian"):
            groups: dict[float, list[float]] = {}
            for line in lines:
                if line["system"] == system:
                    groups.setdefault(line["fraction"], []).append(line[measure])
            means[f"{system}_{measure}"] = {
                str(moment): round(statistics.mean(group), 2) for moment, group in sorted(groups.items())
            }
    final = list(means["marian_bleu"].values())[-1:]
    reached = [moment for moment, score in means["headway_bleu"].items() if final and score >= final[0]]
    told = {"summary": "quality", "data": task.name, "model": task.options.preset, "seeds": task.options.seeds}
    share = float(reached[0]) if reached else None
    return {**told, "budget_seconds": task.options.seconds, **means, "share_of_time_to_equal": share}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a folder, or an archive of one")
    parser.add_argument("--source", default="en")
    parser.add_argument("--target", default="de")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--fractions", type=float, nargs="+", default=[0.25, 0.5, 1.0])
    parser.add_argument("--peer-fractions", type=float, nargs="+", help="the same for Marian")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--systems", nargs="+", choices=["headway", "marian"], default=["headway", "marian"])
    parser.add_argument("--schedule", choices=["inverse_sqrt", "linear"], default="inverse_sqrt")
    parser.add_argument("--warmup-share", type=float, default=0.1, help="of the steps that fit into the time")
    parser.add_argument("--learning-rate", type=float, help="the highest; Headway's default for the size")
    parser.add_argument("--peer-learning-rate", type=float, help="Marian's, if it should be another")
    parser.add_argument("--preset", choices=["tiny", "small", "base"], default="small")
    parser.add_argument("--vocabulary", type=int)
    parser.add_argument("--tokens", type=int, default=8192, help="of a batch")
    parser.add_argument("--sentences", type=int, help="of the test set, at most")
    parser.add_argument("--batch", type=int, default=512, help="sentences Marian translates at once")
    parser.add_argument("--way", choices=["eager", "compiled"], help="of Marian; by default the faster")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    device, lines = torch.device(options.device), []
    with tempfile.TemporaryDirectory(prefix="headway-benchmark-") as scratch:
        began = time.perf_counter()
        task = prepared_task(options, Path(scratch), device)
        print(f"prepared in {time.perf_counter() - began:.1f} s", file=sys.stderr)
        for kind in (Headway, Marian):
            if kind.name in options.systems:
                system = kind(task)
                for seed in options.seeds:
                    lines += scored(system, task, seed)
                del system
    show(**summary(lines, task))


if __name__ == "__main__":
    main()

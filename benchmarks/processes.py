"""One process with all threads against several that share them, on the same batches: JSON lines of tokens a second.

python benchmarks/processes.py --data FOLDER --processes 2 --preset small

FOLDER holds tok/train.lc.norm.tok.{en,de} of Multi30k. One process takes as many batches to an update as the others
together; arms take turns, each in processes of its own, `--repeats` times.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from peers.origin import show


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    together = str(given.processes)
    arms = {
        "one process": ["--set", f"training.accumulate={together}"],
        f"{together} processes, DDP": ["--processes", together],
        f"{together} processes, FSDP2": ["--processes", together, "--set", "training.sharded=true"],
    }
    found: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(given.repeats):
        for name, options in arms.items():
            found[name].append(speed(given, options))
    best = statistics.median(found["one process"])
    for name, speeds in found.items():
        middle = statistics.median(speeds)
        line = {
            "arm": name,
            "preset": given.preset,
            "tokens_per_second": round(middle),
            "ratio": round(middle / best, 3),
        }
        show(line | {"least": round(min(speeds)), "most": round(max(speeds))}, given.device)


def speed(given, options) -> float:
    """Target tokens a second between the fifth update and the last."""
    names = {"source": "tok/train.lc.norm.tok.en", "target": "tok/train.lc.norm.tok.de"}
    settings = {"model.preset": given.preset, "training.steps": given.steps, "training.validate_every": given.steps}
    settings |= {"training.validation_sentences": 1, "training.samples": 0, "training.log_every": 1}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        words = [sys.executable, "-m", "headway", "train", "--out", str(out), "--device", given.device, *options]
        words += [part for side, name in names.items() for part in (f"--{side}", str(given.data / name))]
        words += [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
        environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
        subprocess.run(words, check=True, env=environment, stderr=subprocess.DEVNULL)
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    speeds = [
        line["train/tokens_per_second"] for line in lines if line.get("train/tokens_per_second") and line["step"] > 5
    ]
    return statistics.median(speeds)


if __name__ == "__main__":
    main()

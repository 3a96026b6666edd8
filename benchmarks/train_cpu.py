"""Training speed on two CPU cores: Headway beside torch.nn.Transformer, Hugging Face Marian and JoeyNMT.

Make one environment for each peer that cannot live beside another (torch first, so that nothing else picks its build):

    python3 -m venv peers/main && peers/main/bin/pip install torch==2.13.0
    peers/main/bin/pip install transformers
    python3 -m venv peers/joey && peers/joey/bin/pip install torch==2.13.0
    peers/joey/bin/pip install joeynmt importlib_metadata

    python benchmarks/train_cpu.py --peers peers                # or, one by one: --python marian=path/to/python

Headway and torch.nn.Transformer run in this interpreter. Every system is a process of its own that waits for its turn:
one step each on the same batch, in random order, batch after batch, so that a slow moment of the machine hits all of
them alike. One JSON line a system: median target tokens per second over the repeats, lowest and highest, and the ratio
to the fastest peer. `torch-compiled` needs a C++ compiler and is left out, with a note, where it fails.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
from pathlib import Path

from peers.origin import show

WORKER = Path(__file__).parent / "peers" / "training.py"
ENVIRONMENTS = {"headway": None, "torch": None, "torch-compiled": None, "marian": "main", "joeynmt": "joey"}
ENVIRONMENT = {
    "OMP_WAIT_POLICY": "passive",  # spinning threads make every figure worthless as soon as another process runs
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONDONTWRITEBYTECODE": "1",
}
WARM_UP = 3


class Worker:
    """A system in its own process, idle until it is told a batch number."""

    def __init__(self, system: str, python: str, options: argparse.Namespace) -> None:
        command = [python, str(WORKER), system, "--batches", str(options.batches), "--dtype", options.dtype]
        self.system = system
        self.log = (options.logs / f"{system}.log").open("w")
        self.process = subprocess.Popen(
            [*command, "--threads", str(options.threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env=ENVIRONMENT | os.environ | {"OMP_NUM_THREADS": str(options.threads)},
        )

    def step(self, batch: int) -> dict[str, float] | None:
        """Train on one batch; None if the process is gone, and its log says why."""
        try:
            self.process.stdin.write(f"{batch}\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            return None
        return json.loads(answer) if answer else None

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        self.log.close()


def start(options: argparse.Namespace) -> list[Worker]:
    """Start and warm up every system that has an interpreter; a system that fails to start is reported and left out."""
    given = dict(entry.split("=", 1) for entry in options.python)
    workers = []
    for system, environment in ENVIRONMENTS.items():
        if options.systems and system not in options.systems:
            continue
        if system not in given and environment and not options.peers:
            continue
        python = (
            str(options.peers / environment / "bin" / "python") if environment and options.peers else sys.executable
        )
        worker = Worker(system, given.get(system, python), options)
        if all(worker.step(batch) for batch in range(WARM_UP)):
            workers.append(worker)
        else:
            show({"system": system, "failed": f"see {worker.log.name}"})
            worker.close()
    return workers


def measure(workers: list[Worker], options: argparse.Namespace) -> dict[str, list[float]]:
    """Target tokens per second of every system in every repeat over all batches."""
    order = random.Random(0)
    speeds: dict[str, list[float]] = {worker.system: [] for worker in workers}
    for _ in range(options.repeats):
        answers: dict[str, list[dict[str, float]]] = {worker.system: [] for worker in workers}
        for batch in range(options.batches):
            for worker in order.sample(workers, len(workers)):
                answer = worker.step(batch)
                if answer is None:
                    sys.exit(f"{worker.system} died; see {worker.log.name}")
                answers[worker.system].append(answer)
        for system, steps in answers.items():
            speeds[system].append(sum(step["tokens"] for step in steps) / sum(step["seconds"] for step in steps))
    return speeds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, help="folder with the environments `main` and `joey`")
    parser.add_argument("--python", action="append", default=[], metavar="SYSTEM=PATH")
    parser.add_argument("--systems", nargs="*", choices=ENVIRONMENTS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--logs", type=Path, default=Path("/tmp"), help="where the systems' own output goes")
    options = parser.parse_args()

    workers = start(options)
    speeds = measure(workers, options)
    best = max((statistics.median(speeds[name]) for name in speeds if name != "headway"), default=float("nan"))
    for system, repeats in speeds.items():
        middle = statistics.median(repeats)
        line = {"system": system, "dtype": options.dtype, "threads": options.threads, "repeats": options.repeats}
        line |= {"target_tokens_per_second": round(middle), "ratio_to_best_peer": round(middle / best, 3)}
        show(line | {"lowest": round(min(repeats)), "highest": round(max(repeats))})
    for worker in workers:
        worker.close()


if __name__ == "__main__":
    main()

"""Decoding speed on two CPU cores: Headway beside Marian's `generate`, OpenNMT-py, Eole, CTranslate2 and JoeyNMT.

Make one environment for each peer that cannot live beside another (torch in every command, so that nothing else picks
its build):

    python3 -m venv peers/main && peers/main/bin/pip install torch==2.13.0
    peers/main/bin/pip install torch==2.13.0 transformers ctranslate2 sentencepiece -e .
    python3 -m venv peers/onmt && peers/onmt/bin/pip install torch==2.13.0
    peers/onmt/bin/pip install --no-deps OpenNMT-py==3.5.1
    peers/onmt/bin/pip install torch==2.13.0 configargparse ctranslate2 fasttext-wheel flask pyahocorasick pyonmttok
    peers/onmt/bin/pip install torch==2.13.0 pyyaml rapidfuzz sacrebleu six spacy tensorboard waitress
    python3 -m venv peers/eole && peers/eole/bin/pip install torch==2.13.0
    peers/eole/bin/pip install torch==2.13.0 eole aiohttp
    python3 -m venv peers/joey && peers/joey/bin/pip install torch==2.13.0
    peers/joey/bin/pip install torch==2.13.0 joeynmt importlib_metadata

    python benchmarks/decode_cpu.py --peers peers                             # random weights, prescribed lengths
    python benchmarks/decode_cpu.py --peers peers --turns 1 --repeats 1       # a quick look
    python benchmarks/decode_cpu.py --peers peers --model RUN --text FILE     # a trained model, text to text

Random weights: 3 + 3 layers of 256 features, 4 heads, 1,024 hidden, a tied vocabulary of 8,000, fp32 (int8 where the
name says so). Every output has the length of its reference, which is checked: all systems take as many steps, Headway
one more in which it scores the end. With `--model`, the weights are those of a trained Headway model, outputs end where
it ends them, and all work from text to text: Headway, Headway on CTranslate2, and the same weights in Marian, whose
logits must agree to 1e-4 (for this, Marian needs Headway in its environment, as above).

Two cores serve in two ways, as one process with two threads or as two processes of one thread that share the sentences;
CTranslate2 does the second inside one process. Every process waits for its turn: the same sentences for each system in
random order, turn after turn, so that a slow moment of the machine hits all alike. One JSON line for each system,
arrangement and cell of beam and batch: median of the repeats in sentences per second, lowest and highest, and the
processor time of a sentence, which other work on the machine changes less. Then one line a cell: Headway's better
arrangement over each peer's better one. JoeyNMT, which keeps no cache and takes minutes, only runs when `--systems`
names it. On a machine that others use, set OMP_WAIT_POLICY=passive: threads that spin lose most.
"""

import argparse
import json
import os
import random
import select
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import which

from peers.origin import show

WORKER = Path(__file__).parent / "peers" / "decoding.py"
THREADS, PROCESSES, INSIDE = "1 process, 2 threads", "2 processes, 1 thread each", "1 process, 2 workers"
BOTH = (THREADS, PROCESSES)
FORCED = {
    "headway": ("", BOTH),
    "marian": ("main", BOTH),
    "opennmt": ("onmt", BOTH),
    "eole": ("eole", BOTH),
    "joeynmt": ("joey", BOTH),
    "ctranslate2": ("main", (INSIDE,)),
    "ctranslate2-int8": ("main", (INSIDE,)),
}
NATURAL = {
    "headway": ("", BOTH),
    "headway-ctranslate2": ("", BOTH),
    "headway-ctranslate2-int8": ("", BOTH),
    "marian": ("main", BOTH),
}
"""For each system its environment (none: this interpreter) and how it uses two cores."""
BY_NAME_ONLY = ("joeynmt",)
ENVIRONMENT = {"TOKENIZERS_PARALLELISM": "false", "PYTHONDONTWRITEBYTECODE": "1"}
PATIENCE = 300
"""Seconds until a system without an answer is given up."""

Cell = tuple[int, int]
"""Beam and batch."""


@dataclass(frozen=True)
class Contestant:
    """A system in one arrangement."""

    system: str
    arrangement: str


class GoneError(Exception):
    """A process ended or does not answer; its log says why."""


class Team:
    """The processes of one contestant, idle until they are told a turn."""

    def __init__(self, contestant: Contestant, python: str, options: argparse.Namespace) -> None:
        self.contestant = contestant
        parts = 2 if contestant.arrangement == PROCESSES else 1
        threads = 1 if contestant.arrangement == PROCESSES else 2
        self.log = (options.logs / f"{contestant.system} {contestant.arrangement}.log").open("w")
        command = [python, str(WORKER), contestant.system, "--turns", str(options.turns), "--threads", str(threads)]
        command += ["--models", str(options.models), "--parts", str(parts)]
        command += ["--model", str(options.model), "--text", str(options.text)] if options.model else []
        self.processes = [
            subprocess.Popen(
                [*command, "--part", str(part)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.log,
                text=True,
                env=ENVIRONMENT | os.environ | {"OMP_NUM_THREADS": str(threads)},
            )
            for part in range(parts)
        ]

    def answers(self) -> list[dict[str, float | str]]:
        """One line of every process."""
        lines = []
        for process in self.processes:
            ready, _, _ = select.select([process.stdout], [], [], PATIENCE)
            lines.append(process.stdout.readline() if ready else "")
        if not all(lines):
            raise GoneError
        return [json.loads(line) for line in lines]

    def take(self, cell: Cell, turn: int) -> dict[str, float]:
        """Decode the sentences of one turn; its time ends with the last process."""
        started = time.perf_counter()
        try:
            for process in self.processes:
                process.stdin.write(f"{cell[0]} {cell[1]} {turn}\n")
                process.stdin.flush()
            answers = self.answers()
        except BrokenPipeError:
            raise GoneError from None
        seconds = time.perf_counter() - started
        return {"seconds": seconds} | {name: sum(each[name] for each in answers) for name in answers[0]}

    def close(self) -> None:
        for process in self.processes:
            with suppress(BrokenPipeError):
                process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
            process.stdout.close()
        self.log.close()

    def give_up(self) -> None:
        failed(self.contestant.system, f"{self.contestant.arrangement}: see {self.log.name}")
        self.close()


def failed(system: str, why: str) -> None:
    show({"system": system, "failed": why})


def start(options: argparse.Namespace, cells: list[Cell]) -> tuple[list[Team], dict[str, str]]:
    """Start every system that has an interpreter and warm it up; one that fails is reported and left out."""
    given = dict(entry.split("=", 1) for entry in options.python)
    teams = []
    for system, (environment, arrangements) in (NATURAL if options.model else FORCED).items():
        if system not in options.systems if options.systems else system in BY_NAME_ONLY:
            continue
        if environment and system not in given and not options.peers:
            continue
        own = options.peers / environment / "bin" / "python" if environment and options.peers else sys.executable
        python = given.get(system, str(own))
        if which(python) is None:
            failed(system, f"{python}: no such interpreter")
            continue
        teams += [Team(Contestant(system, each), python, options) for each in arrangements]
    versions = {}
    for team in list(teams):
        try:
            versions[team.contestant.system] = str(team.answers()[0]["version"])
            for cell in cells:
                team.take(cell, 0)
        except GoneError:
            team.give_up()
            teams.remove(team)
    return teams, versions


def measure(
    teams: list[Team], options: argparse.Namespace, cells: list[Cell]
) -> dict[tuple[Cell, Contestant], list[dict[str, float]]]:
    """For every cell and contestant the sums over all turns, one for each repeat."""
    order, started = random.Random(0), time.perf_counter()
    sums: dict[tuple[Cell, Contestant], list[dict[str, float]]] = {}
    for repeat in range(options.repeats):
        if repeat and (time.perf_counter() - started) * (repeat + 1) / repeat > options.minutes * 60:
            break  # with one more it would take too long
        for cell in cells:
            for turn in range(options.turns):
                for team in order.sample(teams, len(teams)):
                    try:
                        answer = team.take(cell, turn)
                    except GoneError:
                        team.give_up()
                        teams.remove(team)
                        continue
                    repeats = sums.setdefault((cell, team.contestant), [])
                    if len(repeats) == repeat:
                        repeats.append(dict.fromkeys(answer, 0.0))
                    for name, value in answer.items():
                        repeats[-1][name] += value
    return {(cell, team.contestant): sums[cell, team.contestant] for team in teams for cell in cells}


def report(
    sums: dict[tuple[Cell, Contestant], list[dict[str, float]]], versions: dict[str, str], cells: list[Cell]
) -> None:
    """Print a line for every contestant and cell, then a line of ratios for every cell."""
    best: dict[tuple[Cell, str], float] = {}
    for (cell, contestant), repeats in sorted(sums.items(), key=lambda entry: cells.index(entry[0][0])):
        speeds = [each["sentences"] / each["seconds"] for each in repeats]
        middle = statistics.median(speeds)
        best[cell, contestant.system] = max(middle, best.get((cell, contestant.system), 0.0))
        line = {"system": contestant.system, "beam": cell[0], "batch": cell[1], "arrangement": contestant.arrangement}
        line |= {"sentences_per_second": round(middle, 1), "lowest": round(min(speeds), 1)}
        line |= {"highest": round(max(speeds), 1), "repeats": len(speeds), "sentences": int(repeats[0]["sentences"])}
        line |= {"tokens_per_sentence": round(repeats[0]["tokens"] / repeats[0]["sentences"], 1)}
        costs = [each["processor_seconds"] / each["sentences"] for each in repeats]
        line |= {"processor_milliseconds_per_sentence": round(1000 * statistics.median(costs), 2)}
        show(line | {"version": versions[contestant.system]})
    for cell in cells:
        if (cell, "headway") in best:
            peers = {name: speed for (of, name), speed in best.items() if of == cell and name != "headway"}
            ratios = {name: round(best[cell, "headway"] / speed, 2) for name, speed in peers.items()}
            show({"beam": cell[0], "batch": cell[1], "headway_over": ratios})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, help="folder with the environments `main`, `onmt`, `eole` and `joey`")
    parser.add_argument("--python", action="append", default=[], metavar="SYSTEM=PATH")
    parser.add_argument("--systems", nargs="*", choices=FORCED | NATURAL)
    parser.add_argument("--beams", nargs="*", type=int, default=[1, 4])
    parser.add_argument("--batches", nargs="*", type=int, help="default: 1 and 32; with --model 1 and 64 texts")
    parser.add_argument("--turns", type=int, default=3, help="of 12 sentences at batch 1, of two batches otherwise")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=6, help="fewer repeats where they would take longer than this")
    parser.add_argument("--model", type=Path, help="a Headway model or run folder; then --text too")
    parser.add_argument("--text", type=Path, help="sentences to translate, one a line")
    parser.add_argument("--models", type=Path, default=Path("/tmp/headway-peers"), help="random models, made once")
    parser.add_argument("--logs", type=Path, default=Path("/tmp"), help="where the systems' own output goes")
    options = parser.parse_args()
    if bool(options.model) != bool(options.text):
        parser.error("--model and --text go together")
    options.models = options.models.resolve()
    cells = [(beam, batch) for batch in options.batches or [1, 64 if options.model else 32] for beam in options.beams]

    teams, versions = start(options, cells)
    try:
        report(measure(teams, options, cells), versions, cells)
    finally:
        for team in teams:
            team.close()


if __name__ == "__main__":
    main()

"""Turns docs/reliability.jsonl, the results of real runs, into the tables of README.md and docs/reliability.md.

python docs/reliability.py            # writes them
python docs/reliability.py --check    # says whether they are up to date
"""

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "reliability.jsonl"
BEGIN, END = "<!-- begin: python docs/reliability.py -->", "<!-- end: python docs/reliability.py -->"

GOALS = {
    "G1": "SIGKILL at random times, resumed until the end: weights, optimiser, random state, data order, journal and "
    "model are those of an unbroken run, bit for bit",
    "G2": "SIGTERM and Ctrl-C in every phase: the current step is saved and the exit code is right; resumed, the run "
    "ends as if never stopped",
    "G3": "killed, or cut off from power, after every single file operation of saving and pruning: a checkpoint loads",
    "G4": "bits, blocks and lengths of checkpoint files changed, files exchanged or gone: noticed, named, the newest "
    "good one is taken",
    "G5": "a disk that is full, at every size: no checkpoint lost, one line names the path, the run goes on later",
    "G6": "one of two processes killed: both recover unaided, the model is that of an unbroken run; and one process "
    "has the loss of two",
    "G7": "NaN and infinity in loss, gradient, weights, optimiser, one batch of several: noticed at that step, weights "
    "unchanged, never in a checkpoint",
    "G8": "a sentence alone, in batches of 2, 7 and 32, shuffled, beside far longer ones, with and without a cache: "
    "the same tokens, scores within 1e-4; beam 1 is greedy, and an output read again has its score",
    "G9": "bad corpora, recipes, settings, command lines, streams and paths: one line, the right exit code, nothing "
    "left behind; as many lines out as in",
    "G10": "model folders and tokenizers made to harm: refused in one line, nothing executed or written, time and "
    "memory bounded",
    "G16": "random commands told to write where files, folders, links, pipes and sockets of the user's stand, with our "
    "own names and others: none is changed",
}
"""What is promised, in a line each."""
WORST = {
    "updates_lost": "{:.0f} updates done again",
    "seconds_to_exit": "{:.2f} s to exit",
    "seconds_to_restart": "{:.1f} s to restart",
    "difference": "{:.1g} apart in loss",
    "score_difference": "{:.0e} apart in score",
    "rescoring_difference": "{:.0e} apart when read again",
    "ties": "{:.0f} decided by rounding",
}
"""How the worst of each measurement is shown."""


def results() -> list[dict[str, Any]]:
    """Every result there is."""
    return [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines() if line.strip()]


def readme_table(found: list[dict[str, Any]]) -> str:
    """A row a goal: its cases in one build and in the soaks, each as many as promised, and the worst of all."""
    rows = ["| | what is done | in every build | in the soaks, the last of them | at worst |", "| --- " * 5 + "|"]
    for goal, told in GOALS.items():
        lines = [line for line in found if line["goal"] == goal]
        builds, soaks = ([line for line in lines if line["soak"] is soak] for soak in (False, True))
        soaked = f"{_kept(soaks)}, {max(line['date'] for line in soaks)}" if soaks else ""
        rows.append(f"| {goal} | {told} | {_kept(builds)} | {soaked} | {_worst(lines)} |")
    return "\n".join(rows)


def _kept(lines: list[dict[str, Any]]) -> str:
    """How many cases there were, and how many of them went as promised."""
    count, passed = _count(lines, "count"), _count(lines, "passed")
    return f"all of {count}" if count == passed else f"{passed} of {count}"


def page_table(found: list[dict[str, Any]]) -> str:
    """A row a test, its results in test runs and in soaks apart."""
    rows, kinds = [], dict.fromkeys((line["goal"], line["what"], line["soak"]) for line in found)
    for goal, what, soak in sorted(kinds):
        lines = [line for line in found if (line["goal"], line["what"], line["soak"]) == (goal, what, soak)]
        minutes = sum(line["seconds"] for line in lines) / 60
        cells = [goal, what, "soak" if soak else "test", _count(lines, "count"), _count(lines, "passed"), _worst(lines)]
        rows.append(f"| {' | '.join(cells)} | {minutes:.1f} | {max(line['date'] for line in lines)} |")
    head = "| | test | run | cases | as promised | at worst | minutes | last |"
    return "\n".join([head, "| --- " * 8 + "|", *rows])


def _count(lines: list[dict[str, Any]], key: str) -> str:
    return f"{sum(line[key] for line in lines):,}"


def _worst(lines: list[dict[str, Any]]) -> str:
    told = []
    for name, form in WORST.items():
        values = [line["worst"][name] for line in lines if name in line["worst"]]
        told += [form.format(max(values))] if values else []
    return ", ".join(told)


def pages() -> dict[Path, str]:
    """Every page with its table as it should be."""
    found, made = results(), {}
    tables = {ROOT / "README.md": readme_table(found), ROOT / "docs" / "reliability.md": page_table(found)}
    for path, table in tables.items():
        before, begin, rest = path.read_text(encoding="utf-8").partition(BEGIN)
        _, end, after = rest.partition(END)
        if not begin or not end:
            raise SystemExit(f"{path.name}: has no place for the table; put these two lines in: {BEGIN} {END}")
        made[path] = f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"
    return made


def main(arguments: list[str]) -> int:
    """Write the tables, or say whether they are up to date."""
    stale = {path: text for path, text in pages().items() if path.read_text(encoding="utf-8") != text}
    if "--check" in arguments:
        for path in stale:
            sys.stderr.write(f"{path.relative_to(ROOT)}: its table is not that of docs/reliability.jsonl\n")
        return bool(stale)
    for path, text in stale.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

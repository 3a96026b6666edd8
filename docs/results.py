"""Turns what runs have left into docs/results.md, its pictures and the tables of README.md and the recipes.

python docs/results.py            # writes them
python docs/results.py --check    # says whether the texts are up to date and every line says where it comes from

Read are recipes/NAME/task.toml and result.json, which recipes/run.py writes, and the JSON lines of
benchmarks in docs/results/*.jsonl, with remarks on them by hand; figures.jsonl has the rows of README.md (figures.py).
"""

import json
import statistics
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from figures import code, full_table, lacking, origin_of, read, short_table, when
from results_pictures import bars, curves, grown

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- begin: python docs/results.py -->", "<!-- end: python docs/results.py -->"
ORDER = ("multi30k", "tatoeba", "europarl", "cmudict", "sigmorphon2021", "sigmorphon2017", "codespell", "scan", "aeslc")
"""How the recipes stand on the page."""
SIZES = ("base", "small", "tiny")
"""How the models stand in tables of speed."""
AXES = {"length": "tokens of a sentence", "parameters": "parameters", "vocabulary": "vocabulary"}
"""What grows, in words."""
HEAD = """# Results

Written by `docs/results.py` from the JSON that runs leave: `result.json` of every recipe, by `recipes/run.py`, and the
lines of the benchmarks in `docs/results`. [All figures](#all-figures) of the README and more stand at the end. Every
choice was made on validation sets; test sets were only scored. `±` is the standard deviation over seeds; where there is
one seed, there is none. The loop is everything from the first batch to the last update, validations, checkpoints and
compilation included; preparation, from text files to tokens, stands apart. Seconds are shown only of runs that had the
device to themselves.
"""
BASELINE = {
    "copy": "the source itself",
    "lemma": "the lemma itself",
    "letters": "letter by letter",
    "nearest word": "the nearest word of the dictionary",
    "same words": "a training command of the same words",
    "first words": "the first words",
}
"""What needs no model, in words."""


@dataclass(frozen=True)
class Measured:
    """A recipe and what its runs have found."""

    name: str
    task: dict[str, Any]
    result: dict[str, Any]

    @property
    def best_baseline(self) -> tuple[str, float]:
        """The strongest of what needs no model, by the headline."""
        test, score = self.task["headline"]
        found = {name: scores[test][score] for name, scores in self.result["baselines"].items()}
        best = min if self.task.get("lower_is_better") else max
        name = best(found, key=found.__getitem__)
        return name, found[name]

    @property
    def reached(self) -> bool | None:
        """Whether the mean of the seeds reaches the goal, where there is one."""
        (test, score), goal = self.task["headline"], self.task.get("goal")
        mean = self.result["mean"][test][score]
        return None if goal is None else mean < goal if self.task.get("lower_is_better") else mean >= goal

    @property
    def alone(self) -> list[dict[str, Any]]:
        """The runs that shared the device with no other process: only theirs are times."""
        return [run for run in self.result["runs"] if not run["beside"]]


def measured(root: Path) -> list[Measured]:
    """Every recipe that has a result, in the order of the page."""
    found = []
    for path in (root / "recipes").glob("*/result.json"):
        task = tomllib.loads((path.parent / "task.toml").read_text(encoding="utf-8"))
        found.append(Measured(path.parent.name, task, json.loads(path.read_text(encoding="utf-8"))))
    return sorted(found, key=lambda each: (_place(each.name), each.name))


def _place(name: str) -> int:
    return next((place for place, start in enumerate(ORDER) if name.startswith(start)), len(ORDER))


def bench_lines(root: Path) -> list[dict[str, Any]]:
    """Every line the benchmarks have left."""
    paths = sorted((root / "docs" / "results").glob("*.jsonl"))
    return [line for path in paths for line in read(path)]


def with_spread(mean: float, deviation: float | None) -> str:
    """A mean with its deviation, where there is one."""
    return f"{mean:.2f}" if deviation is None else f"{mean:.2f} ± {deviation:.2f}"


def overview(found: list[Measured]) -> str:
    """A row a recipe."""
    head = "| task | score | published | goal | Headway | seeds | goal reached | without a model | loop, s |"
    rows = [head, "| --- " * 9 + "|"]
    for each in found:
        test, score = each.task["headline"]
        result, task = each.result, each.task
        name, baseline = each.best_baseline
        goal = "" if task.get("goal") is None else f"{'<' if task.get('lower_is_better') else '≥'} {task['goal']}"
        ours = with_spread(result["mean"][test][score], result["deviation"][test][score])
        cells = [f"[{task['title']}](../recipes/{each.name}/README.md)", f"{score}, {test}", task.get("published", "")]
        cells += [goal, f"**{ours}**", str(len(result["runs"])), {True: "yes", False: "no", None: ""}[each.reached]]
        cells += [f"{baseline:.2f} ({BASELINE[name]})"]
        cells += [f"{statistics.median(run['seconds']['loop'] for run in each.alone):.0f}" if each.alone else ""]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def unmeasured(root: Path) -> str:
    """The recipes without a result."""
    paths = sorted((root / "recipes").glob("*/task.toml"), key=lambda path: _place(path.parent.name))
    names = [path.parent.name for path in paths if not (path.parent / "result.json").is_file()]
    links = ", ".join(f"[{name}](../recipes/{name}/README.md)" for name in names)
    return f"Without a result of `recipes/run.py` so far: {links}.\n" if names else ""


def details(each: Measured) -> str:
    """Every test set and score of one recipe, its times and its command."""
    result, runs = each.result, each.result["runs"]
    seeds = " | ".join(f"seed {run['seed']}" for run in runs)
    names = list(result["baselines"])
    together = result.get("ensemble", {})
    heads = ["test set", "score", "mean", seeds, *(["all seeds together"] if together else [])]
    rows = [f"| {' | '.join([*heads, *(BASELINE[name] for name in names)])} |"]
    rows.append("| --- " * (3 + len(runs) + bool(together) + len(names)) + "|")
    for test, scores in result["mean"].items():
        for score, mean in scores.items():
            cells = [test, score, f"**{with_spread(mean, result['deviation'][test][score])}**"]
            cells += [f"{run['scores'][test][score]:.2f}" for run in runs]
            cells += [f"{together[test][score]:.2f}"] if together else []
            cells += [f"{result['baselines'][name][test][score]:.2f}" for name in names]
            rows.append(f"| {' | '.join(cells)} |")
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    told = (
        f"{runs[0]['parameters'] / 1e6:.1f} M parameters, {runs[0]['updates']:,} updates. "
        f"{when(result)}, {result['hardware']}, {versions}. {times(each)}"
    )
    return "\n".join([*rows, "", told, "", "```", result["command"], "```"])


def times(each: Measured) -> str:
    """The seconds of the runs that had the device to themselves, and which had not."""
    said = []
    if each.alone:
        keys = ("loop", "to_first_update", "testing")
        loop, first, testing = (statistics.median(run["seconds"][key] for run in each.alone) for key in keys)
        said += [
            f"Alone on the device ({seeds_of(each.alone)}): preparation {each.result['seconds_of_preparation']:.1f} s; "
            f"loop {loop:.1f} s, of which {first:.1f} s to the first update; decoding and scoring {testing:.1f} s."
        ]
    if shared := [run for run in each.result["runs"] if run["beside"]]:
        said += [
            f"Beside up to {max(run['beside'] for run in shared)} other processes on the device, and so without times: "
            f"{seeds_of(shared)}."
        ]
    return " ".join(said)


def seeds_of(runs: list[dict[str, Any]]) -> str:
    """The seeds in words."""
    return f"seed{'s' * (len(runs) > 1)} {', '.join(str(run['seed']) for run in runs)}"


def timed(lines: list[dict[str, Any]]) -> str:
    """What was learnt of a corpus within some seconds, for every system that was measured."""
    chosen = [line for line in lines if "fraction" in line]
    rows = ["| system | seed | seconds of training | updates | BLEU | chrF |", "| --- " * 6 + "|"]
    for line in chosen:
        cells = [line["system"], str(line["seed"]), f"{line['seconds']:.0f}", f"{line['steps']:,}"]
        cells += [f"{line['bleu']:.2f}", f"{line['chrf']:.2f}"]
        rows.append(f"| {' | '.join(cells)} |")
    first = chosen[0]
    told = (
        f"{given(chosen)}, Tatoeba, English to German: a model "
        f"`{first['model']}` of {first['parameters'] / 1e6:.1f} M parameters as it is after so many seconds, nothing "
        f"averaged, on the {first['sentences']:,} test sentences with a beam of 5. The seconds begin after "
        f"{first['warm_up_seconds']:g} s of compiling and capturing. This is no result of the recipe."
    )
    if len(by(chosen, "system")) == 1:
        told += " No other system was measured beside it, so nothing is compared."
    return "\n".join([told, "", *rows])


def given(lines: list[dict[str, Any]]) -> str:
    """The command that gave the lines, on what, and when."""
    origin = origin_of(lines)
    return f"{code(origin['command'])} on {origin['machine']} ({when(origin)})"


def remarks(lines: list[dict[str, Any]], about: str) -> str:
    """What a reader must know of measurements that they do not tell themselves."""
    return "".join(f" {line['remark']}" for line in lines if line.get("about") == about)


def speed(lines: list[dict[str, Any]]) -> str:
    """How fast each system trains each size of model."""
    rows = ["| model | system | target tokens/s | from, to | steps/s | of the matrix peak | GiB | to the best peer |"]
    rows.append("| --- " * 8 + "|")
    for line in speeds(lines):
        low, high = line["spread"]
        ratio = f"{line['ratio_to_best_peer']:.2f}" if "ratio_to_best_peer" in line else ""
        cells = [line["model"], line["system"], f"{line['tokens_per_second']:,}", f"{low:,}, {high:,}"]
        cells += [
            f"{line['steps_per_second']:g}",
            f"{line['share_of_matmul_peak']:.1%}",
            f"{line['peak_gib']:g}",
            ratio,
        ]
        rows.append(f"| {' | '.join(cells)} |")
    chosen = speeds(lines)
    runs: dict[str, list[str]] = {}
    for size in by(chosen, "model"):
        runs.setdefault(given([line for line in chosen if line["model"] == size]), []).append(size)
    sources = "; ".join(f"{', '.join(sizes)}: {run}" for run, sizes in runs.items())
    told = (
        f"{sources}. The same work for all: medians of "
        f"{chosen[0]['rounds']} rounds taken in turns, with the lowest and highest; the peak is that of products of "
        "matrices in bf16, measured in the same run."
    )
    if missing := [size for size in SIZES if size not in by(chosen, "model")]:
        told += f" Not measured yet: {', '.join(missing)}."
    told += remarks(lines, "speed")
    notes = dict.fromkeys(f"- {line['system']}: {line['note']}." for line in chosen if "note" in line)
    return "\n".join([told, "", *rows, "", *notes])


def speeds(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines that tell a speed, by size, the fastest first."""
    chosen = [line for line in lines if "steps_per_second" in line]
    return sorted(chosen, key=lambda line: (SIZES.index(line["model"]), -line["tokens_per_second"]))


def largest(lines: list[dict[str, Any]]) -> str:
    """The largest batch that each system can take."""
    rows = ["| model | system | largest batch, target tokens |", "| --- " * 3 + "|"]
    chosen = (line for line in lines if "largest_batch_tokens" in line)
    return "\n".join([*rows, *(f"| {x['model']} | {x['system']} | {x['largest_batch_tokens']:,} |" for x in chosen)])


def growing(lines: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The measurements of every size that grows, in order."""
    chosen = sorted((line for line in lines if "growth" in line and "ms_per_step" in line), key=lambda x: x["value"])
    return {axis: [line for line in chosen if line["growth"] == axis] for axis in AXES if axis in by(chosen, "growth")}


def by(lines: list[dict[str, Any]], key: str) -> list[Any]:
    """The values of a field, each once."""
    return list(dict.fromkeys(line[key] for line in lines))


def growth(lines: list[dict[str, Any]]) -> str:
    """What a step takes as one size grows, beside what theory has."""
    head = "| grows | to | ms a step | theory, ms | GiB | theory, GiB | kernels of attention | |"
    rows = [head, "| --- " * 8 + "|"]
    for axis, points in growing(lines).items():
        for line in points:
            memory = "" if line["peak_bytes"] is None else f"{line['peak_bytes'] / 2**30:.2f}"
            marks = [word for word, told in (("batch split", line["split"]), ("captured", line["captured"])) if told]
            cells = [AXES[axis], f"{line['value']:,}", f"{line['ms_per_step']:.2f}", f"{line['theory_ms']:.2f}", memory]
            cells += [f"{line['theory_bytes'] / 2**30:.2f}", ", ".join(line["attention"]), ", ".join(marks)]
            rows.append(f"| {' | '.join(cells)} |")
    rows += [
        f"| {AXES[line['growth']]} | {line['value']:,} | failed: {line['failed'].partition('.')[0]} | | | | | |"
        for line in lines
        if "growth" in line and "failed" in line
    ]
    told = (
        f"{given([line for line in lines if 'growth' in line])}: a Transformer base on batches of 16,384 tokens; where "
        "nothing else is said, sentences have 32 tokens. Theory: the arithmetic of a step at the measured speed of "
        "products, and the bytes of weights, gradients, moments and what is kept for the backward pass."
        f"{remarks(lines, 'growth')}"
    )
    return "\n".join([told, "", *switches(lines), "", *rows])


def switches(lines: list[dict[str, Any]]) -> list[str]:
    """Where other kernels of attention begin to serve."""
    pairs = [(axis, *pair) for axis, points in growing(lines).items() for pair in pairwise(points)]
    return [
        f"Attention was served by {', '.join(one['attention'])} up to {one['value']:,} {AXES[axis]}, by "
        f"{', '.join(other['attention'])} from {other['value']:,} on ([which kernel serves what](kernels.md))."
        for axis, one, other in pairs
        if one["attention"] != other["attention"]
    ]


def page(root: Path) -> str:
    """The whole page."""
    found, lines = measured(root), bench_lines(root)
    shown = {name: f"![{told}](images/{name}.svg)\n" for name, (told, _) in pictures(found, lines).items()}
    parts = [HEAD, "## Tasks\n", f"{overview(found)}\n" if found else "No recipe has been measured yet.\n"]
    parts += [unmeasured(root)] if found else []
    parts += [shown[name] for name in ("results-time", "results-bleu", "results-loss") if name in shown]
    parts += [f"### {each.task['title']}\n\n{details(each)}\n" for each in found]
    if any("fraction" in line for line in lines):
        parts.append(f"### Tatoeba within seconds\n\n{timed(lines)}\n")
    if speeds(lines):
        parts += ["## Speed of training\n", shown["results-speed"], f"{speed(lines)}\n"]
    if any("largest_batch_tokens" in line for line in lines):
        parts.append(f"### The largest batch\n\n{largest(lines)}\n")
    if growing(lines):
        parts += ["## How the cost grows\n", shown["results-growth"], f"{growth(lines)}\n"]
    if table := full_table(root):
        parts += ["## All figures\n", f"{table}\n"]
    return "\n".join(parts)


def readmes(root: Path) -> dict[Path, str]:
    """README.md and that of every recipe, with their tables as they should be."""
    found = {each.name: each for each in measured(root)}
    made = {root / "README.md": with_table(root / "README.md", short_table(root))}
    for path in sorted((root / "recipes").glob("*/README.md")):
        name = path.parent.name
        made[path] = with_table(path, details(found[name]) if name in found else "Not measured yet.")
    return made


def with_table(path: Path, table: str) -> str:
    """The text of a file with this table in its place."""
    before, begin, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{path}: has no place for the table; put these two lines in: {BEGIN} {END}")
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"


def pictures(found: list[Measured], lines: list[dict[str, Any]]) -> dict[str, tuple[str, Callable[[Any], None]]]:
    """What there is to draw, by file name: what it shows, and how it is drawn on a figure."""
    every = {each.name: each.result["runs"] for each in found}
    translations = {each.name: each.result["runs"] for each in found if "BLEU" in each.task["measure"]}
    alone = {each.name: each.alone for each in found if each.name in translations and each.alone}
    made: dict[str, tuple[str, Callable[[Any], None]]] = {}
    for name, told, chosen, across, up in (
        ("time", "Validation BLEU over seconds, runs alone on the device", alone, "seconds", "bleu"),
        ("bleu", "Validation BLEU over updates", translations, "step", "bleu"),
        ("loss", "Validation loss over updates", every, "step", "loss"),
    ):
        if chosen:
            made[f"results-{name}"] = told, partial(curves, found=chosen, across=across, up=up)
    if speeds(lines):
        made["results-speed"] = "Target tokens a second, by model and system", partial(bars, lines=speeds(lines))
    if growing(lines):
        told = "Time and memory of a step as one size grows, measured and by theory"
        axes = {AXES[name]: points for name, points in growing(lines).items()}
        made["results-growth"] = told, partial(grown, axes=axes)
    return made


def draw(root: Path) -> None:
    """Write every picture there is something for."""
    import matplotlib

    from headway.inspection.pictures import new_figure, write

    with matplotlib.rc_context({"svg.hashsalt": "results"}):  # the same picture, the same file
        for name, (_, fill) in pictures(measured(root), bench_lines(root)).items():
            figure = new_figure(8.0, 4.0)
            fill(figure)
            path = root / "docs" / "images" / f"{name}.svg"
            path.parent.mkdir(parents=True, exist_ok=True)
            write(figure, path, overwrite=True)


def main(arguments: list[str]) -> int:
    """Write page, tables and pictures, or say whether the texts are up to date."""
    target = ROOT / "docs" / "results.md"
    texts = {target: page(ROOT), **readmes(ROOT)}
    stale = [path for path, text in texts.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if "--check" in arguments:
        for path in stale:
            sys.stderr.write(f"{path.relative_to(ROOT)}: is not what docs/results.py makes of the results\n")
        sys.stderr.writelines(f"{told}\n" for told in lacking(ROOT))
        return bool(stale or lacking(ROOT))
    for path in stale:
        path.write_text(texts[path], encoding="utf-8")
    draw(ROOT)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The figures of the README and of docs/results.md, a row each, from docs/results/figures.jsonl.

A line of that file says what was measured and how it is told. Where the raw lines of a benchmark or a recipe are
stored, it names them by `from`, those that count among them by `only`, and a function here makes the figures of them;
else it holds the figures itself, and where they come from. `recorded` marks what was written down by hand: commit and
date are then those of the commit that brought the figure here, and it was measured at or before them.
"""

import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Line = dict[str, Any]
ORIGIN = ("commit", "date", "machine", "command")
"""What every stored line says, beside its seeds."""
HEAD = """Each row has the command that gives it; words in capitals are the reader's own files and folders. A figure
from before lines said their commit has that in which it was written down, and `or before`. `±` is the standard
deviation over the seeds; where a script sets its own, the column says so.
"""


@dataclass(frozen=True)
class Figure:
    """A row."""

    what: str
    told: str
    origin: Line
    short: bool
    """Whether it is among the few of the README."""

    @property
    def seeds(self) -> str:
        """The seeds in words."""
        found = self.origin["seeds"]
        return ", ".join(map(str, found)) if found else "the script's"


def when(origin: Line) -> str:
    """Commit and date."""
    return f"{origin['commit']}{' or before' * bool(origin.get('recorded'))}, {origin['date']}"


def code(command: str) -> str:
    """Commands, one a line, as a page shows them."""
    return "; ".join(f"`{each}`" for each in command.split("\n"))


def origin_of(raw: list[Line]) -> Line:
    """Where lines come from, all together; those measured beside other work count for no row."""
    lines = [line for line in raw if "beside" not in line]
    found: Line = {key: "; ".join(dict.fromkeys(line[key] for line in lines)) for key in ("commit", "machine")}
    found["command"] = "\n".join(dict.fromkeys(line["command"] for line in lines))
    found["date"] = max(line["date"] for line in lines)
    found["recorded"] = any(line.get("recorded") for line in lines)
    found["seeds"] = sorted({seed for line in lines for seed in line.get("seeds", [line.get("seed")])})
    return found


def read(path: Path) -> list[Line]:
    """The JSON lines of a file; none where there is no file."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return [json.loads(line) for line in lines if line.strip()]


def figures(root: Path) -> list[Figure]:
    """Every row, in order."""
    rows = []
    for line in read(root / "docs" / "results" / "figures.jsonl"):
        found, origin = derived(root, line) if "from" in line else (line["figures"], line)
        what, told = (_filled(line[key], found) for key in ("what", "told"))
        rows.append(Figure(what, told, origin, line.get("short", False)))
    return rows


def _filled(text: str, found: Line | list[float]) -> str:
    return text.format(*found) if isinstance(found, list) else text.format(**found)


def derived(root: Path, line: Line) -> tuple[Line | list[float], Line]:
    """The figures a row takes from raw lines, and where those come from."""
    name = line["from"]
    if name.endswith(".json"):
        result = json.loads((root / name).read_text(encoding="utf-8"))
        origin = {**result, "machine": result["hardware"], "seeds": [run["seed"] for run in result["runs"]]}
        found = RECIPES[line["name"]](result)
        return found, origin | {"seeds": found.get("seeds", origin["seeds"])}
    only = line.get("only", {}).items()
    raw = [each for each in read(root / "docs" / "results" / name) if only <= each.items()]
    return LINES[line["name"]](raw), origin_of(raw)


def multi30k(result: Line) -> Line:
    """The headline of the recipe."""
    return {"bleu": result["mean"]["test2016"]["BLEU"], "deviation": result["deviation"]["test2016"]["BLEU"]}


def multi30k_loop(result: Line) -> Line:
    """The seconds of its loop, of the runs that had the device to themselves."""
    alone = [run for run in result["runs"] if not run["beside"]]
    seconds = statistics.median(run["seconds"]["loop"] for run in alone)
    return {"seconds": seconds, "updates": alone[0]["updates"], "seeds": [run["seed"] for run in alone]}


def defaults_gpu(raw: list[Line]) -> Line:
    """Mean and deviation over the seeds of the default and of the setting that was chosen, by corpus."""
    found = {}
    for choice in (line for line in raw if line.get("summary") == "choice"):
        corpus = choice["corpus"]
        measure = "word error rate" if corpus == "cmudict" else "BLEU"
        for prefix, setting in (("", "default"), ("best_", choice["best"])):
            runs = [line for line in raw if (line["corpus"], line.get("setting")) == (corpus, setting)]
            scores = [run["test"][measure] for run in runs]
            found[prefix + corpus.partition("-")[0]] = statistics.mean(scores), statistics.stdev(scores)
    return found


def _systems(raw: list[Line]) -> dict[str, Line]:
    return {line["system"]: line for line in raw if "tokens_per_second" in line}


def train_gpu(raw: list[Line]) -> Line:
    """Headway's speed on one size of model, that over each peer's, and the best of the peers that were measured."""
    speeds = {name: line["tokens_per_second"] for name, line in _systems(raw).items()}
    ours = _systems(raw)["headway"]
    ratios = {name: ours["tokens_per_second"] / speeds[name] for name in speeds if not name.startswith("headway")}
    lowest, highest = ours["spread"]
    found = {"speed": ours["tokens_per_second"], "lowest": lowest, "highest": highest}
    found |= {"best": min(ratios, key=ratios.__getitem__)}
    return found | {name.replace("-", "_").replace(".", "_"): ratio for name, ratio in ratios.items()}


def train_gpu_memory(raw: list[Line]) -> Line:
    """The peak of each system on the base model, and the tokens of an update."""
    systems = _systems(raw)
    found = {name.replace("-", "_"): line["peak_gib"] for name, line in systems.items()}
    tokens, theirs = (systems[name]["tokens_per_step"] for name in ("headway", "marian"))
    return {**found, "tokens": tokens, "peer_tokens": theirs}


def train_cpu(raw: list[Line]) -> Line:
    """Headway's speed over that of the compiled peer and of the fastest other, in every run that had the machine."""
    found: dict[str, list[float]] = {"compiled": [], "eager": []}
    for run in dict.fromkeys(line["run"] for line in raw if "beside" not in line):
        speeds = {line["system"]: line["target_tokens_per_second"] for line in raw if line["run"] == run}
        ours, compiled = speeds.pop("headway"), speeds.pop("torch-compiled")
        found["compiled"].append(ours / compiled)
        found["eager"].append(ours / max(speeds.values()))
    return found


def decode_cpu(raw: list[Line], *peers: str) -> list[float]:
    """Headway's better arrangement over the peers' best one, in every cell of batch and beam."""
    cells = [(1, 1), (1, 4), (32, 1), (32, 4)]

    def best(cell: tuple[int, int], names: tuple[str, ...]) -> float:
        chosen = [line for line in raw if (line["batch"], line["beam"]) == cell and line["system"] in names]
        return max(line["sentences_per_second"] for line in chosen)

    return [best(cell, ("headway",)) / best(cell, peers) for cell in cells]


def ctranslate2(raw: list[Line]) -> list[float]:
    """CTranslate2 over Headway's better arrangement, in fp32 and then in int8."""
    return [1 / ratio for peer in ("ctranslate2", "ctranslate2-int8") for ratio in decode_cpu(raw, peer)]


def decode_gpu(raw: list[Line]) -> Line:
    """Headway over `generate`, by way and batch."""
    speeds = {(x["system"], x["beam"], x["batch"]): x["tokens_per_second"] for x in raw if "system" in x}
    ways = {1: "greedy", 4: "beam"}
    return {
        f"{ways[beam]}_{batch}": speed / speeds["marian", beam, batch]
        for (system, beam, batch), speed in speeds.items()
        if system == "headway"
    }


NAMES = {"transformer": "teacher", "transformer, 4+1 layers": "shallow", "fertility": "fertility"}
"""What the models of `parallel.jsonl` are called in its rows."""


def _way(line: Line) -> str:
    return f"{NAMES[line['model']]}_{line['decoding'].replace(' ', '_')}"


def parallel(raw: list[Line]) -> Line:
    """How many times as fast as the teacher's beam each way is, by model, way and batch."""
    return {f"{_way(line)}_{line['batch']}": line["times_faster"] for line in raw}


def parallel_quality(raw: list[Line]) -> Line:
    """BLEU by model and way."""
    return {_way(line): line["bleu"] for line in raw}


def r_drop(raw: list[Line]) -> Line:
    """Mean and deviation over the seeds with and without it."""
    found = {}
    for method in ("plain", "r_drop"):
        scores = [line["bleu"] for line in raw if line["method"] == method]
        found[method] = statistics.mean(scores), statistics.stdev(scores)
    return found


RECIPES: dict[str, Callable[[Line], Line]] = {"multi30k": multi30k, "multi30k-loop": multi30k_loop}
LINES: dict[str, Callable[[list[Line]], Line | list[float]]] = {
    "defaults-gpu": defaults_gpu,
    "train-gpu": train_gpu,
    "train-gpu-tiny": train_gpu,
    "train-gpu-memory": train_gpu_memory,
    "train-cpu": train_cpu,
    "decode-cpu": lambda raw: decode_cpu(raw, "marian"),
    "decode-cpu-ctranslate2": ctranslate2,
    "decode-cpu-others": lambda raw: decode_cpu(raw, "opennmt", "eole"),
    "decode-gpu": decode_gpu,
    "decode-gpu-large": decode_gpu,
    "parallel-cpu": parallel,
    "parallel-gpu": parallel,
    "parallel-quality": parallel_quality,
    "r-drop": r_drop,
}
"""What makes the figures of a row out of raw lines, by its name."""


def short_table(root: Path) -> str:
    """The rows of the README, whose links start from the root."""
    rows = ["| what | figure | machine | command |", "| --- " * 4 + "|"]
    for each in figures(root):
        if each.short:
            told = f"| {each.what} | {each.told} | {each.origin['machine']} | {code(each.origin['command'])} |"
            rows.append(told.replace("](", "](docs/"))
    return "\n".join(rows)


def full_table(root: Path) -> str:
    """Every row with where it comes from; nothing where none is stored."""
    rows = ["| what | figure | machine | seeds | commit, date | command |", "| --- " * 6 + "|"]
    for each in figures(root):
        cells = [each.what, each.told, each.origin["machine"], each.seeds, when(each.origin)]
        cells += [code(each.origin["command"])]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join([HEAD, *rows]) if len(rows) > 2 else ""


def lacking(root: Path) -> list[str]:
    """Stored lines that do not say where they come from."""
    found = []
    for path in [*sorted((root / "docs" / "results").glob("*.jsonl")), root / "docs" / "reliability.jsonl"]:
        for number, line in enumerate(read(path), 1):
            if "about" not in line and "from" not in line:
                found += [f"{path.name}, line {number}: no {key}" for key in _missing(line)]
    for path in sorted((root / "recipes").glob("*/result.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        origin = {**result, "machine": result.get("hardware"), "seeds": [run.get("seed") for run in result["runs"]]}
        found += [f"{path.parent.name}/{path.name}: no {key}" for key in _missing(origin)]
    return found


def _missing(line: Line) -> list[str]:
    """What a line should say and does not."""
    return [key for key in ORIGIN if not line.get(key)] + (["seeds"] if not {"seed", "seeds"} & line.keys() else [])

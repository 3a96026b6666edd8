"""How the cost of decoding grows with source length, beam, batch and vocabulary: JSON lines, and a picture of them.

    python benchmarks/decode_growth.py --output docs/images/decoding-growth.svg
    python benchmarks/decode_growth.py --device cuda > gpu.jsonl
    python benchmarks/decode_growth.py --lines cpu.jsonl gpu.jsonl --output growth.svg growth.png

A model of the preset `small` with random weights writes outputs of `--tokens` tokens exactly; one size grows, the
others stay. Time is the median of several searches. Peak memory is what the first search takes on top of the model: on
a CPU that of a process of its own for every point, on a GPU what torch has allocated. Linux, and a quiet machine.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from peers.origin import show

USUAL = {"source": 31, "beam": 4, "batch": 8, "vocabulary": 8000}
SWEEPS: dict[str, dict[str, Any]] = {  # a batch never has more source tokens than the engine takes at once
    "source": {"sizes": [16, 32, 64, 125, 250, 500, 1000, 2000], "batch": 2},
    "beam": {"sizes": [1, 2, 4, 8, 16, 32]},
    "batch": {"sizes": [1, 2, 4, 8, 16, 32, 64, 128, 256], "source": 15},
    "vocabulary": {"sizes": [1000, 2000, 4000, 8000, 16000, 32000, 64000]},
}
TITLES = {"source": "source length", "beam": "beam", "batch": "sentences in a batch", "vocabulary": "vocabulary"}
LINEAR = {1: "∝ n"}
POWERS = {"source": LINEAR | {2: "∝ n²"}, "beam": LINEAR, "batch": LINEAR, "vocabulary": LINEAR}
"""What is drawn beside the measurements: the encoder's attention alone grows with the square of the source."""
FLOOR = {"seconds": 1e-6, "bytes": 1e5}
"""What is less is noise."""
LONGEST = 2100
ENOUGH = 2.0
"""Seconds of searching after which a point is not repeated."""
CAPTION = (
    "Outputs of {} tokens. Dashed: what grows with n or n². At the last points: the exponent of the last two steps."
)
COLOURS = ("#007996", "#c0562f", "#153c6b", "#7a5195")


def points(tokens: int) -> Iterator[dict[str, Any]]:
    for axis, sweep in SWEEPS.items():
        held = {name: value for name, value in sweep.items() if name != "sizes"}
        for size in sweep["sizes"]:
            yield {"axis": axis, **USUAL, **held, axis: size, "tokens": tokens}


def measured(point: dict[str, Any], device_name: str, threads: int | None) -> dict[str, Any]:
    """One point, in this process."""
    import torch

    from headway.engine import Engine
    from headway.models.transformer import Transformer, TransformerConfig
    from headway.search import DecodingConfig, Request, Symbols

    if threads:
        torch.set_num_threads(threads)
    torch.manual_seed(1)
    device, size, tokens = torch.device(device_name), point["vocabulary"], point["tokens"]
    model = Transformer(TransformerConfig(preset="small", longest=LONGEST), size, size).eval().to(device)
    engine = Engine(model, Symbols(start=1, end=2, forbidden=(0, 1)))
    length = {"limit_ratio": 0.0, "limit_extra": tokens, "shortest_extra": tokens, "longest": tokens}
    config = DecodingConfig(beam=point["beam"], length_penalty=0.0, **length)
    sources = torch.randint(3, size, (point["batch"], point["source"])).tolist()
    requests = [Request(source=tuple(ids)) for ids in sources]

    def search(given: Sequence[Request] = requests) -> float:
        begun = time.perf_counter()
        found = engine.search(given, config)
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - begun
        assert {len(best.tokens) for best, *_ in found} == {tokens}
        return seconds

    search([Request(source=(3,))])  # loads what the libraries load at first use
    memory = Gpu() if device.type == "cuda" else Process()
    search()
    taken, seconds = memory.taken(), [search()]
    while len(seconds) < 7 and sum(seconds) < ENOUGH:
        seconds.append(search())
    named = torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    figures = {"seconds": statistics.median(seconds), "least": min(seconds), "most": max(seconds), "bytes": taken}
    return {"device": named.replace(" 1 threads", " 1 thread"), **point, "repeats": len(seconds), **figures}


class Gpu:
    """Memory that torch allocates from now on."""

    def __init__(self) -> None:
        import torch

        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        self.before = torch.cuda.memory_allocated()

    def taken(self) -> int:
        import torch

        return torch.cuda.max_memory_allocated() - self.before


class Process:
    """Memory that this process takes from now on."""

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        self.before = self._read("VmRSS")

    def taken(self) -> int:
        return self._read("VmHWM") - self.before

    def _read(self, name: str) -> int:
        fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return int(fields[name].split()[0]) * 1024


def measure(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for point in points(options.tokens):
        if options.device != "cpu":
            yield measured(point, options.device, options.threads)
            continue
        words = [sys.executable, __file__, "--point", json.dumps(point), "--threads", str(options.threads or 0)]
        environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
        finished = subprocess.run(words, stdout=subprocess.PIPE, text=True, env=environment, check=True)
        yield json.loads(finished.stdout.splitlines()[-1])


def draw(lines: Sequence[dict[str, Any]], paths: Iterable[Path]) -> None:
    """Time above, memory below; a column for each size that grows, a colour for each device."""
    from headway.inspection.pictures import QUIET, new_figure, write

    figure = new_figure(13.2, 6.2)
    grid = figure.subplots(2, len(SWEEPS), sharex="col", sharey="row")
    devices = list(dict.fromkeys(line["device"] for line in lines))
    for column, axis in enumerate(SWEEPS):
        for row, name in enumerate(("seconds", "bytes")):
            for device, colour in zip(devices, COLOURS, strict=False):
                chosen = [line for line in lines if (line["axis"], line["device"]) == (axis, device)]
                if chosen:
                    draw_series(grid[row][column], chosen, name, colour)
            style(grid[row][column], axis, QUIET)
        held = next(line for line in lines if line["axis"] == axis)
        grid[0][column].set_title(f"{TITLES[axis]}\n", fontsize=11)
        grid[0][column].text(0.5, 1.035, told(held, axis), transform=grid[0][column].transAxes, ha="center",
                             fontsize=8.5, color=QUIET)  # fmt: skip
    for row, (name, title) in enumerate((("seconds", "time"), ("bytes", "peak memory beside the model"))):
        values = [line[name] for line in lines if line[name] > FLOOR[name]]
        grid[row][0].set_ylim(min(values) / 3, max(values) * 3)
        grid[row][0].set_ylabel(title, fontsize=11)
    grid[0][0].legend(loc="upper left", fontsize=8.5, frameon=False, labelcolor="#333333")
    figure.supxlabel(CAPTION.format(lines[0]["tokens"]), fontsize=9, color=QUIET)
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(figure, path)


def draw_series(axes: Any, chosen: Sequence[dict[str, Any]], name: str, colour: str) -> None:
    """One device's measurements, how they grow in the end and, from there back, what would grow by a power."""
    axis = chosen[0]["axis"]
    sizes, values = [line[axis] for line in chosen], [max(line[name], FLOOR[name]) for line in chosen]
    for power, mark in POWERS[axis].items():
        start = values[-1] * (sizes[0] / sizes[-1]) ** power
        axes.plot((sizes[0], sizes[-1]), (start, values[-1]), color=colour, linewidth=1.0, linestyle=(0, (5, 4)),
                  alpha=0.5)  # fmt: skip
        where = sizes[-1] * (sizes[0] / sizes[-1]) ** (0.42 if power == 1 else 0.2)
        axes.annotate(mark, (where, values[-1] * (where / sizes[-1]) ** power), xytext=(4, -11),
                      textcoords="offset points", fontsize=8.5, color=colour, alpha=0.85)  # fmt: skip
    axes.plot(sizes, values, color=colour, linewidth=1.9, marker="o", markersize=4.6, markeredgecolor="white",
              markeredgewidth=0.7, label=chosen[0]["device"])  # fmt: skip
    if name == "seconds":
        bounds = [[line[which] for line in chosen] for which in ("least", "most")]
        axes.fill_between(sizes, *bounds, color=colour, alpha=0.15, linewidth=0)
    exponent = math.log(values[-1] / values[-3]) / math.log(sizes[-1] / sizes[-3])
    axes.annotate(f"$n^{{{exponent:.1f}}}$", (sizes[-1], values[-1]), xytext=(7, -3), textcoords="offset points",
                  fontsize=9.5, color=colour)  # fmt: skip


def told(line: dict[str, Any], axis: str) -> str:
    """The sizes that stay."""
    words = {"source": "source {}", "beam": "beam {}", "batch": "batch {}", "vocabulary": "vocabulary {:,}"}
    return ", ".join(text.format(line[name]) for name, text in words.items() if name != axis)


def style(axes: Any, axis: str, quiet: str) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    sizes = SWEEPS[axis]["sizes"]
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    reach = sizes[-1] / sizes[0]
    axes.set_xlim(sizes[0] / reach**0.05, sizes[-1] * reach**0.14)  # room for the exponent
    shown = sizes if len(sizes) <= 7 else sizes[:: 2 if len(sizes) % 2 else 1]
    axes.set_xticks(shown, [f"{size // 1000}k" if size % 1000 == 0 else str(size) for size in shown])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_minor_formatter(NullFormatter())
    is_time = axes.get_subplotspec().rowspan.start == 0
    axes.yaxis.set_major_formatter(FuncFormatter(as_time if is_time else as_bytes))
    axes.tick_params(labelsize=8.5, color="#c9c6bc", labelcolor=quiet, which="both")
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#c9c6bc")
    axes.grid(True, color="#ecebe4", linewidth=0.7)
    axes.set_axisbelow(True)


def as_time(seconds: float, _: int = 0) -> str:
    return f"{seconds:g} s" if seconds >= 1 else f"{1000 * seconds:g} ms"


def as_bytes(size: float, _: int = 0) -> str:
    return f"{size / 1e9:g} GB" if size >= 1e9 else f"{size / 1e6:g} MB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, nargs="+", default=[], help="pictures to draw: .svg or .png")
    parser.add_argument("--lines", type=Path, nargs="+", help="draw these measurements instead of taking new ones")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, help="of a CPU; all by default")
    parser.add_argument("--tokens", type=int, default=32, help="of every output")
    parser.add_argument("--point", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.point:
        print(json.dumps(measured(options.point, options.device, options.threads)), flush=True)
        return
    lines = []
    if options.lines:
        lines = [json.loads(line) for path in options.lines for line in path.read_text().splitlines()]
    for line in () if options.lines else measure(options):
        show(line)
        lines.append(line)
    draw(lines, options.output)


if __name__ == "__main__":
    main()

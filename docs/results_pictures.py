"""The pictures of docs/results.md, drawn on figures of matplotlib."""

import math
from itertools import pairwise, zip_longest
from typing import Any

Lines = list[dict[str, Any]]
OURS, THEORY, PEER, QUIET, FAINT = "#007996", "#c0562f", "#c9c6bc", "#5d6472", "#ecebe4"
ACROSS = {"seconds": "seconds of training, validations included", "step": "updates"}
UP = {"bleu": "BLEU, greedy", "loss": "loss, nats a token"}
"""What the axes of curves are called."""
ROWS = (("ms_per_step", "theory_ms", 1.0), ("peak_bytes", "theory_bytes", 2.0**30))
"""What is drawn of growth: measured, by theory, and the unit."""


def curves(figure: Any, *, found: dict[str, Lines], across: str, up: str) -> None:
    """A panel a recipe, a line a run."""
    columns = min(4, len(found))
    rows = -(-len(found) // columns)
    figure.set_size_inches(max(4.6, 3.3 * columns), 2.3 * rows + 0.7)
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes, named in zip_longest(grid.flat, found.items()):
        if named is None:
            axes.set_visible(False)
            continue
        name, runs = named
        for run in runs:
            points = [point for point in run["curve"] if point.get(up) is not None]
            axes.plot([point[across] for point in points], [point[up] for point in points], color=OURS,
                      linewidth=1.2, marker="o", markersize=2.2, alpha=0.7)  # fmt: skip
        seeds = f"seed {runs[0]['seed']}" if len(runs) == 1 else f"{len(runs)} seeds"
        axes.set_title(f"{name}, {seeds}", fontsize=9)
        axes.set_xlim(left=0)
        if up == "bleu":
            axes.set_ylim(bottom=0)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        style(axes)
    figure.supxlabel(ACROSS[across], fontsize=9, color=QUIET)
    figure.supylabel(UP[up], fontsize=9, color=QUIET)


def bars(figure: Any, *, lines: Lines) -> None:
    """A panel a size of model, a bar a system."""
    models = list(dict.fromkeys(line["model"] for line in lines))
    most = max(sum(line["model"] == model for line in lines) for model in models)
    figure.set_size_inches(5.0 * len(models), 0.9 + 0.34 * most)
    for axes, model in zip(figure.subplots(1, len(models), squeeze=False).flat, models, strict=True):
        chosen = [line for line in lines if line["model"] == model][::-1]
        values = [line["tokens_per_second"] for line in chosen]
        spread = [[abs(value - line["spread"][end]) for value, line in zip(values, chosen, strict=True)]
                  for end in (0, 1)]  # fmt: skip
        colours = [OURS if line["system"].startswith("headway") else PEER for line in chosen]
        axes.barh([line["system"] for line in chosen], values, xerr=spread, color=colours, ecolor=QUIET)
        for place, line in enumerate(chosen):
            told = f"  {line['tokens_per_second']:,}"
            axes.annotate(told, (line["spread"][1], place), va="center", fontsize=8, color=QUIET)
        axes.set_xlim(0, 1.25 * max(values))
        axes.set_title(model, fontsize=10)
        axes.set_xticks([])
        style(axes)
        axes.grid(visible=False)
    figure.supxlabel("target tokens a second", fontsize=9, color=QUIET)


def grown(figure: Any, *, axes: dict[str, Lines]) -> None:
    """Time above, memory below; a column for each size that grows; where other kernels begin to serve, their names."""
    figure.set_size_inches(4.2 * len(axes), 6.0)
    grid = figure.subplots(2, len(axes), squeeze=False, sharex="col", sharey="row")
    for column, (name, points) in enumerate(axes.items()):
        for row, (ours, theory, unit) in enumerate(ROWS):
            beside(grid[row][column], points, ours, theory, unit)
        for before, line in pairwise([{"attention": []}, *points]):
            if line["attention"] != before["attention"]:
                grid[0][column].annotate("\n".join(line["attention"]), (line["value"], line["ms_per_step"]), (-3, 7),
                                         textcoords="offset points", fontsize=8, color=QUIET)  # fmt: skip
        grid[1][column].set_xlabel(name, fontsize=9, color=QUIET)
    grid[0][0].set_ylabel("ms a step; the kernel of attention", fontsize=9, color=QUIET)
    grid[1][0].set_ylabel("GiB at the most", fontsize=9, color=QUIET)
    grid[0][0].legend(fontsize=8.5, frameon=False, loc="upper left")


def beside(axes: Any, points: Lines, ours: str, theory: str, unit: float) -> None:
    """What was measured and what theory has, both axes logarithmic."""
    from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

    sizes = [line["value"] for line in points]
    for name, look, label, colour in ((ours, "o-", "measured", OURS), (theory, "--", "theory", THEORY)):
        values = [line[name] / unit if line[name] is not None else math.nan for line in points]
        axes.plot(sizes, values, look, color=colour, linewidth=1.6, markersize=4, label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(sizes, [brief(size) for size in sizes])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    style(axes)


def brief(count: int) -> str:
    """A size in few letters."""
    if count >= 500_000:
        return f"{count / 1e6:.2g} M" if count < 10**7 else f"{count / 1e6:.0f} M"
    return f"{count // 1000} k" if count % 1000 == 0 else f"{count:,}"


def style(axes: Any) -> None:
    """Nothing but the data."""
    axes.tick_params(labelsize=8, color=PEER, labelcolor=QUIET, which="both")
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(PEER)
    axes.grid(True, color=FAINT, linewidth=0.7)
    axes.set_axisbelow(True)

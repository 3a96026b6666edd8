"""Attention and positional encodings drawn by matplotlib, which is imported only when a picture is asked for."""

import io
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from headway.disk import write_output
from headway.errors import ConfigError
from headway.inspection.attention import Attention
from headway.inspection.kinds import Kind

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

FALLBACK_FONTS = ("Noto Sans CJK SC", "Noto Sans Devanagari", "Noto Sans", "Arial Unicode MS")
"""Tried, where installed, for what DejaVu Sans cannot write."""

QUIET = "#5d6472"
RAMP = ("#f6f6ed", "#cbdfc6", "#96cab0", "#5db2a7", "#2497a0", "#007996", "#005a84", "#153c6b", "#17224e")
"""The page's colours on paper: lightness falls in even steps, so they read the same to every eye and in grey."""


def draw_attention(attention: Attention, path: Path, kind: Kind = "cross", *, overwrite: bool = False) -> None:
    """Draw the last layer's mean over heads with its tokens, and beside it a small map of every layer and head."""
    if kind not in attention.kinds():
        raise ConfigError(f"{path}: this model has no {kind} attention; choose {' or '.join(attention.kinds())}")
    weights = np.clip(np.nan_to_num(attention.weights(kind)), 0.0, 1.0)
    layers, heads = weights.shape[:2]
    queries, keys = attention.queries(kind), attention.keys(kind)
    cell = min(0.34, 9.0 / max(len(queries), len(keys)))
    large = (max(2.6, cell * len(keys)), max(2.6, cell * len(queries)))
    small = min(1.2, max(0.5, large[1] / layers))
    height = max(large[1] + 1.6, small * layers + 1.0)
    overview = max(small * heads + 0.8, 3.2)  # its title needs this much
    figure = new_figure(large[0] + 2.2 + overview, height)
    halves = figure.add_gridspec(1, 2, width_ratios=(large[0] + 2.2, overview))
    left, right = figure.add_subfigure(halves[0]), figure.add_subfigure(halves[1])
    axes = left.add_subplot()
    image = heat(axes, weights[-1].mean(axis=0))
    label(axes, queries, keys, size=min(10.0, 72 * cell * 0.8))
    left.suptitle(f"{kind} attention, layer {layers}, mean of heads", fontsize=11)
    bar = left.colorbar(image, ax=axes, ticks=[0, 0.05, 0.25, 0.5, 1], shrink=0.6, aspect=30, pad=0.03)
    bar.ax.set_yticklabels(["0", "0.05", "0.25", "0.5", "1"], fontsize=8, color=QUIET)
    bar.outline.set_visible(False)
    draw_overview(right, weights, share=min(1.0, (small * layers + 0.9) / height))
    write(figure, path, overwrite=overwrite)


def draw_overview(
    figure: "matplotlib.figure.SubFigure", weights: Float[np.ndarray, "layers heads query key"], share: float
) -> None:
    """Draw a small map of every layer and head in the upper `share` of the figure."""
    layers, heads = weights.shape[:2]
    upper = figure.add_subfigure(figure.add_gridspec(2, 1, height_ratios=(share, 1.001 - share))[0])
    grid = upper.add_gridspec(layers, heads)
    for layer, head in np.ndindex(layers, heads):
        axes = upper.add_subplot(grid[layer, head])
        heat(axes, weights[layer, head])
        axes.set(xticks=[], yticks=[], aspect="auto", box_aspect=1)
        if layer == 0:
            axes.set_title(str(head + 1), fontsize=9, color=QUIET)
        if head == 0:
            axes.set_ylabel(str(layer + 1), fontsize=9, color=QUIET, rotation=0, ha="right", va="center")
    upper.suptitle("all layers (down) and heads (across)", fontsize=11)


def draw_positions(
    table: Float[np.ndarray, "time dim"], path: Path, title: str = "Positional encoding", *, overwrite: bool = False
) -> None:
    """Draw a positional encoding as a heat map, and beside it how alike every two positions are."""
    figure = new_figure(11.0, 4.8)
    values, likeness = figure.subplots(1, 2, width_ratios=(1.45, 1.0))
    extent = max(float(np.abs(table).max(initial=0.0)), 1e-9)
    image = values.imshow(table, cmap="PuOr", vmin=-extent, vmax=extent, aspect="auto", interpolation="nearest")
    values.set(xlabel="dimension", ylabel="position")
    values.set_title(title, fontsize=11, parse_math=False)
    products = table @ table.T
    reach = max(float(np.abs(products).max(initial=0.0)), 1e-9)
    second = likeness.imshow(products, cmap="PuOr", vmin=-reach, vmax=reach, aspect="auto", interpolation="nearest")
    likeness.set(xlabel="position", ylabel="position")
    likeness.set_title("Dot products between positions", fontsize=11)
    for axes, picture in ((values, image), (likeness, second)):
        axes.spines[:].set_visible(False)
        axes.tick_params(labelsize=9, color=QUIET, labelcolor=QUIET)
        bar = figure.colorbar(picture, ax=axes, aspect=30, pad=0.02)
        bar.ax.tick_params(labelsize=8, color=QUIET, labelcolor=QUIET)
        bar.outline.set_visible(False)
    write(figure, path, overwrite=overwrite)


def new_figure(width: float, height: float) -> "matplotlib.figure.Figure":
    """A figure in inches that no global state of matplotlib knows of."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError("pictures need matplotlib; pip install 'headway[plots]'") from None
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def heat(axes: "matplotlib.axes.Axes", weights: Float[np.ndarray, "query key"]) -> Any:
    """Draw one map, its colour following the root of the weight so that a diffuse head is visible too."""
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm

    axes.spines[:].set(color="#dfdcd3", linewidth=0.6)
    colours = LinearSegmentedColormap.from_list("weights", RAMP)
    return axes.imshow(weights, cmap=colours, norm=PowerNorm(0.5, vmin=0.0, vmax=1.0), interpolation="nearest")


def label(axes: "matplotlib.axes.Axes", queries: tuple[str, ...], keys: tuple[str, ...], size: float) -> None:
    """Write the tokens at rows and columns, leaving some out where they would overlap."""
    every = int(np.ceil(5.0 / size))
    style: dict[str, Any] = {"fontsize": max(size, 5.0), "fontfamily": fonts(), "parse_math": False}
    rows, columns = range(0, len(queries), every), range(0, len(keys), every)
    axes.set_yticks(rows, [legible(queries[row]) for row in rows], **style)
    axes.set_xticks(columns, [legible(keys[column]) for column in columns], **style)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.tick_params(axis="x", labelrotation=90 if size < 9 else 55)
    for text in axes.get_xticklabels() if size >= 9 else ():
        text.set(ha="left", rotation_mode="anchor")


def fonts() -> list[str]:
    """DejaVu Sans, which comes with matplotlib, and after it the installed fonts for other scripts."""
    from matplotlib import font_manager

    installed = set(font_manager.get_font_names())
    return ["DejaVu Sans", *(name for name in FALLBACK_FONTS if name in installed)]


def legible(token: str) -> str:
    """The token as a label: short, on one line, and with blanks that can be seen."""
    text = token.encode("utf-8", "replace").decode("utf-8")
    text = "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
    if not text.strip():
        return "␣" * max(1, len(text))
    return text if len(text) <= 14 else f"{text[:13]}…"


def write(figure: "matplotlib.figure.Figure", path: Path, *, overwrite: bool = False) -> None:
    """Write the figure as its suffix says; a letter no font has becomes a box, without a warning."""
    suffix = path.suffix.lower()
    if suffix not in (".png", ".svg"):
        raise ConfigError(f"{path}: a picture cannot be saved in this format; use .png or .svg")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="(?s).*(Glyph|glyph|Matplotlib currently does not support)")
        drawn = io.BytesIO()
        figure.savefig(drawn, format=suffix[1:], dpi=160, metadata={"Date": None} if suffix == ".svg" else None)
    write_output(path, drawn.getvalue(), overwrite=overwrite)

"""Lines on two axes as SVG, in the colours of the page."""

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Points = Sequence[tuple[float, float]]

WIDTH, HEIGHT = 720.0, 400.0
LEFT, RIGHT, TOP, BOTTOM = 68.0, 196.0, 16.0, 52.0
"""Room for the labels on each side of the plot."""
COLOURS = ("#1f5fa8", "#c2571a", "#2a7d46", "#8a3fa0", "#b3261e", "#7a6a12", "#0f7b83", "#5d6472")
LINE = 17.0
"""Height of a line of the legend."""


@dataclass(frozen=True)
class Axis:
    """From values to places between two edges."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool

    @classmethod
    def over(cls, values: Iterable[float], start: float, end: float, *, logarithmic: bool) -> "Axis":
        """An axis that holds all values; a linear one begins at zero unless some are below."""
        known = [value for value in values if math.isfinite(value) and (value > 0 or not logarithmic)]
        if not known:
            known = [1.0, 10.0] if logarithmic else [0.0, 1.0]
        low, high = min(known), max(known)
        if not logarithmic:
            low, high = min(0.0, low), high if high > low else low + 1.0
            return cls(low, high + 0.04 * (high - low), start, end, logarithmic)
        if low == high:
            low, high = low / 2, high * 2
        return cls(low / 1.08, high * 1.08, start, end, logarithmic)

    def place(self, value: float) -> float:
        """Where a value lies."""
        if self.logarithmic:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Some round values."""
        if self.logarithmic:
            exponents = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            steps = (1, 2, 5) if math.log10(self.high / self.low) < 2.5 else (1,)
            found = [step * 10.0**exponent for exponent in exponents for step in steps]
            return [value for value in found if self.low <= value <= self.high]
        rough = (self.high - self.low) / 5
        unit = 10.0 ** math.floor(math.log10(rough))
        step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough)
        first = math.ceil(self.low / step)
        return [number * step for number in range(first, math.floor(self.high / step) + 1)]


def drawn(
    x: str,
    y: str,
    lines: Mapping[str, Points],
    dashed: Mapping[str, Points],
    *,
    logarithmic: tuple[bool, bool] = (False, False),
    joined: bool = True,
) -> str:
    """The picture; a dashed line has the colour of the measured one of the same name.

    Points that are not joined stand for things of no order; those of dashed lines are then rings.
    """
    every = [point for points in (*lines.values(), *dashed.values()) for point in points]
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    across = Axis.over((point[0] for point in every), LEFT, right, logarithmic=logarithmic[0])
    up = Axis.over((point[1] for point in every), bottom, TOP, logarithmic=logarithmic[1])
    names = list(dict.fromkeys([*lines, *dashed]))
    colours = {name: COLOURS[place % len(COLOURS)] for place, name in enumerate(names)}
    parts = [*_grid(across, up, right, bottom), *_titles(x, y, right, bottom)]
    for kind, group in (("measured", lines), ("theory", dashed)):
        parts += [_line(points, across, up, colours[name], kind, joined=joined) for name, points in group.items()]
    parts += _legend(names, colours, lines, right)
    label = html.escape(f"{y} by {x}")
    return f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _grid(across: Axis, up: Axis, right: float, bottom: float) -> list[str]:
    parts = []
    for value in across.ticks():
        place = across.place(value)
        parts.append(f'<line class="grid" x1="{place:.1f}" x2="{place:.1f}" y1="{TOP}" y2="{bottom}"/>')
        parts.append(
            f'<text class="tick" x="{place:.1f}" y="{bottom + 18}" text-anchor="middle">{_brief(value)}</text>'
        )
    for value in up.ticks():
        place = up.place(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{place:.1f}" y2="{place:.1f}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 8}" y="{place + 4:.1f}" text-anchor="end">{_brief(value)}</text>')
    return parts


def _titles(x: str, y: str, right: float, bottom: float) -> list[str]:
    turned = f"translate(15 {(TOP + bottom) / 2}) rotate(-90)"
    return [
        f'<text class="axis" x="{(LEFT + right) / 2}" y="{HEIGHT - 8}" text-anchor="middle">{html.escape(x)}</text>',
        f'<text class="axis" transform="{turned}" text-anchor="middle">{html.escape(y)}</text>',
    ]


def _line(points: Points, across: Axis, up: Axis, colour: str, kind: str, *, joined: bool) -> str:
    places = [
        (across.place(x), up.place(y))
        for x, y in points
        if math.isfinite(x + y) and not (across.logarithmic and x <= 0) and not (up.logarithmic and y <= 0)
    ]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places)
    rings = "".join(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="4" stroke="{colour}"/>' for x, y in places)
    if not joined:
        return dots if kind == "measured" else rings
    line = f'<polyline class="{kind}" points="{path}" stroke="{colour}"/>'
    return line + (dots if kind == "measured" else "")


def _legend(
    names: Sequence[str], colours: Mapping[str, str], measured: Mapping[str, Points], right: float
) -> list[str]:
    parts = []
    for place, name in enumerate(names):
        height = TOP + 8 + place * LINE
        kind = "measured" if name in measured else "theory"
        begin, end, text = right + 14, right + 34, right + 40
        stroke = f'stroke="{colours[name]}"'
        parts.append(f'<polyline class="{kind}" points="{begin},{height} {end},{height}" {stroke}/>')
        parts.append(f'<text class="name" x="{text}" y="{height + 4}">{html.escape(name)}</text>')
    return parts


def _brief(value: float) -> str:
    """A tick as short as it can be said."""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (1e3 if letter == 'k' else limit):g}{letter}"
    return f"{value:g}"

"""What an experiment leaves: tables and plots, as text, as JSON, and as one page that needs no network."""

import html
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from headway.disk import failure, workspace
from headway.errors import ConfigError, HeadwayError
from headway.folders import refuse_changes, replace_folder
from headway.reproduce.drawing import drawn

Cell = str | float | int | None
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Table:
    """Rows under columns; the first column names a row."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]
    note: str = ""

    def __post_init__(self) -> None:
        """Refuse rows that do not fit the columns."""
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"table {self.title!r}: a row of {len(row)} cells under {len(self.columns)} columns")

    @property
    def worded(self) -> list[bool]:
        """Which columns hold words, which begin at the left, and not numbers, which end at the right."""
        columns = list(zip(*self.rows, strict=True)) or [() for _ in self.columns]
        return [place == 0 or any(map(_says, column)) for place, column in enumerate(columns)]

    def text(self) -> str:
        """The table in a terminal, columns aligned."""
        cells = [self.columns, *([shown(cell) for cell in row] for row in self.rows)]
        widths = [max(len(row[place]) for row in cells) for place in range(len(self.columns))]
        aligned = [
            [
                cell.ljust(width) if left else cell.rjust(width)
                for cell, width, left in zip(row, widths, self.worded, strict=True)
            ]
            for row in cells
        ]
        lines = ["  ".join(row).rstrip() for row in aligned]
        return "\n".join([self.title, *lines, *([self.note] if self.note else [])])

    def html(self) -> str:
        """The table on the page."""
        kinds = [" class=words" if left else "" for left in self.worded]
        head = "".join(f"<th{kind}>{html.escape(name)}</th>" for kind, name in zip(kinds, self.columns, strict=True))
        body = "".join(
            "<tr>"
            + "".join(f"<td{kind}>{html.escape(shown(cell))}</td>" for kind, cell in zip(kinds, row, strict=True))
            + "</tr>"
            for row in self.rows
        )
        note = f"<p class=note>{html.escape(self.note)}</p>" if self.note else ""
        table = f"<div class=wide><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        return f"<h2>{html.escape(self.title)}</h2>{table}{note}"


@dataclass(frozen=True)
class Plot:
    """Measured lines, and dashed ones beside them: what theory or a paper says."""

    title: str
    x: str
    y: str
    lines: Mapping[str, Points]
    dashed: Mapping[str, Points] = field(default_factory=dict)
    log_x: bool = False
    log_y: bool = False
    note: str = ""
    joined: bool = True
    """Whether a line leads from point to point."""

    def svg(self) -> str:
        """The picture."""
        logarithmic = self.log_x, self.log_y
        return drawn(self.x, self.y, self.lines, self.dashed, logarithmic=logarithmic, joined=self.joined)

    def html(self) -> str:
        """The plot on the page."""
        note = f"<p class=note>{html.escape(self.note)}</p>" if self.note else ""
        return f"<h2>{html.escape(self.title)}</h2><figure>{self.svg()}</figure>{note}"


@dataclass(frozen=True)
class Report:
    """All that an experiment found."""

    name: str
    title: str
    question: str
    answer: str
    tables: Sequence[Table]
    plots: Sequence[Plot]
    command: str
    seconds: float

    def text(self) -> str:
        """What the terminal shows."""
        return "\n\n".join([self.title, *(table.text() for table in self.tables), self.answer])

    def to_json(self) -> dict[str, Any]:
        """Everything as numbers and text."""
        found: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        found["tables"] = [
            {"title": table.title, "columns": table.columns, "rows": table.rows, "note": table.note}
            for table in self.tables
        ]
        found["plots"] = [
            {"title": plot.title, "x": plot.x, "y": plot.y, "lines": dict(plot.lines), "dashed": dict(plot.dashed)}
            for plot in self.plots
        ]
        return found

    def html(self) -> str:
        """One complete page."""
        style = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
        pictures = [plot.html() for plot in self.plots]
        parts = "".join(f"<section>{part}</section>" for part in [*pictures, *(each.html() for each in self.tables)])
        told = f"<code>{html.escape(self.command)}</code>, {self.seconds / 60:.1f} minutes"
        return (
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(self.title)}</title>'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<style>{style}</style></head><body><h1>{html.escape(self.title)}</h1>"
            f"<p class=question>{html.escape(self.question)}</p><p class=answer>{html.escape(self.answer)}</p>"
            f"{parts}<footer>{told}</footer></body></html>\n"
        )

    def save(self, out: Path) -> Path:
        """Write the page and the numbers into a folder of their own in `out`; returns where the page is."""

        def fill(aside: Path) -> None:
            (aside / f"{self.name}.html").write_text(self.html(), encoding="utf-8")
            text = json.dumps(self.to_json(), ensure_ascii=False, indent=1)
            (aside / f"{self.name}.json").write_text(text + "\n", encoding="utf-8")

        folder = out / self.name
        replace_folder(folder, fill, {"kind": "report"})
        return folder / f"{self.name}.html"


def writable(out: Path, name: str) -> Path:
    """The folder `out`, made if need be; refused before any work where a report of that name cannot be written."""
    refuse_changes(out / name)
    try:
        with workspace(out / name):
            return out
    except OSError as error:
        kind = HeadwayError if failure(error) else ConfigError
        raise kind(f"{out}: cannot be written ({error.strerror}); choose another --out") from None


def shown(cell: Cell) -> str:
    """A cell as people read it: three figures of a number, a dash for none."""
    if cell is None:
        return "–"
    if isinstance(cell, str):
        return cell
    if isinstance(cell, int):
        return f"{cell:,}"
    if cell == 0.0 or not math.isfinite(cell):
        return f"{cell:g}"
    places = max(0, 2 - math.floor(math.log10(abs(cell))))
    return f"{cell:,.{places}f}" if places < 7 else f"{cell:.2e}"


def _says(cell: Cell) -> bool:
    return isinstance(cell, str) and any(letter.isalpha() for letter in cell)

"""What a check found, and all that was found of one model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TOLERANCE = 1e-4
"""How far apart two numbers may be that should be one: single precision rounds otherwise in every batch."""


@dataclass(frozen=True)
class Finding:
    """The outcome of one check."""

    compared: str
    """What was held against what."""
    figure: str
    """What was measured, as people read it."""
    passed: bool | None
    """None: there was nothing to look at."""
    measured: float | None = None
    """The same as a number, where it is one."""

    @classmethod
    def difference(cls, compared: str, worst: float, *, passed: bool | None = None, told: str = "") -> "Finding":
        """Two things that should be one: they pass if they are no further apart than `TOLERANCE`."""
        close = worst <= TOLERANCE if passed is None else passed
        return cls(compared, f"largest difference {worst:.1e}{told}", close, worst)

    @property
    def verdict(self) -> str:
        """One word."""
        return "not run" if self.passed is None else "pass" if self.passed else "FAIL"


@dataclass(frozen=True)
class Proof:
    """All findings of one model, by the name of the check."""

    model: str
    sentences: int
    seconds: float
    findings: Mapping[str, Finding]

    @property
    def failed(self) -> list[str]:
        """The names of the checks that failed."""
        return [name for name, finding in self.findings.items() if finding.passed is False]

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return not self.failed

    def rows(self) -> list[tuple[str, str, str, str]]:
        """The table: verdict, name, figure, what was compared; a line each."""
        return [
            (finding.verdict, name, " ".join(finding.figure.split()), finding.compared)
            for name, finding in self.findings.items()
        ]

    def lines(self) -> list[str]:
        """The table in columns."""
        rows = self.rows()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]

    def complaint(self) -> str:
        """What failed, in one line."""
        return f"{self.model}: {len(self.failed)} of {len(self.findings)} checks failed: {', '.join(self.failed)}"

    def to_json(self) -> dict[str, Any]:
        """Everything, for programs."""
        checks = [
            {"name": name, "passed": each.passed, "figure": each.figure, "measured": each.measured}
            | {"compared": each.compared}
            for name, each in self.findings.items()
        ]
        facts = {"model": self.model, "passed": self.passed, "failed": self.failed}
        return facts | {"sentences": self.sentences, "seconds": round(self.seconds, 1), "checks": checks}

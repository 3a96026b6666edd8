"""Results: how many cases a test has, how many went as promised, and the worst of what was measured."""

import json
import os
import platform
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import torch

SOAK = os.environ.get("HEADWAY_SOAK", "") not in ("", "0")
"""Whether the large counts are wanted."""
FIGURES = os.environ.get("HEADWAY_FIGURES")
"""The file to which results are appended, a JSON line each."""


@dataclass
class Tally:
    """The result of one test: how many cases, how many passed, and the worst of what was measured."""

    goal: str
    what: str
    count: int = 0
    passed: int = 0
    worst: dict[str, float] = field(default_factory=dict)
    spent: float = 0.0
    """Seconds of its tests, where it counts more than one."""
    _began: float = field(default_factory=time.monotonic)

    def expect(self, fast: int, soak: int | None = None) -> int:
        """How many cases there are to be, in every test run and in the soak."""
        self.count = soak if SOAK and soak is not None else fast
        return self.count

    def saw(self, **measured: float) -> None:
        """Keep the largest value of each measurement."""
        for name, value in measured.items():
            self.worst[name] = max(value, self.worst.get(name, value))

    def line(self) -> str:
        """The result as JSON, with where it comes from; of a soak, benchmarks/soak.py says that."""
        figures = {name: round(value, 6) for name, value in self.worst.items()}
        facts = {"soak": SOAK, "cores": os.cpu_count(), "python": platform.python_version(), "torch": torch.__version__}
        facts["date"] = datetime.now(UTC).date().isoformat()
        told = {"goal": self.goal, "what": self.what, "count": self.count, "passed": self.passed}
        told["seconds"] = round(self.spent or time.monotonic() - self._began, 1)
        return json.dumps(told | {"worst": figures} | facts | ({} if SOAK else origin()))


def origin() -> dict[str, object]:
    """Commit, date, machine and command, as the benchmarks say them."""
    sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
    from peers.origin import stamped

    seed = int(os.environ.get("HEADWAY_SEED", "1"))
    return stamped({"command": "python -m pytest tests/reliability", "seed": seed})

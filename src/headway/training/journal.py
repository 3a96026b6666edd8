"""The journal of a run: `metrics.jsonl`, TensorBoard events, and a line for people."""

import json
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


class Journal:
    """Writes what happened, by step; after a resume it goes on where the checkpoint stood.

    Lines of steps after the checkpoint are dropped at resume: they will be written again.
    """

    def __init__(self, folder: Path, say: Callable[[str], None], *, resumed_at: int | None = None) -> None:
        self.path = folder / "metrics.jsonl"
        self.say = say
        if resumed_at is not None:
            self._rewind(resumed_at)
        from tensorboardX import SummaryWriter

        self._events = SummaryWriter(str(folder / "events"), purge_step=resumed_at)
        self._file = self.path.open("a", encoding="utf-8")

    def _rewind(self, step: int) -> None:
        if not self.path.exists():
            return
        kept = []
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                if json.loads(line)["step"] <= step:
                    kept.append(line + "\n")
            except (ValueError, KeyError):  # the half line of a kill
                continue
        self.path.write_text("".join(kept), encoding="utf-8")

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Record numbers under their names."""
        finite = {name: value if math.isfinite(value) else None for name, value in values.items()}
        self._file.write(json.dumps({"step": step, "time": round(time.time(), 3), **finite}) + "\n")
        self._file.flush()
        for name, value in values.items():
            self._events.add_scalar(name, value, step)

    def text(self, step: int, name: str, lines: list[str]) -> None:
        """Record sample output."""
        self._events.add_text(name, "\n\n".join(lines), step)

    def close(self) -> None:
        """Flush and close the files."""
        self._events.close()
        self._file.close()

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

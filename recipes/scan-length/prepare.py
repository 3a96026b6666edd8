"""Commands and actions as lines: python recipes/scan-length/prepare.py FOLDER PREPARED."""

import runpy
import sys
from pathlib import Path

SIMPLE = Path(__file__).parents[1] / "scan-simple" / "prepare.py"


def prepare(folder: Path, out: Path) -> None:
    """As for the simple split."""
    runpy.run_path(str(SIMPLE))["prepare"](folder, out, split="length")


if __name__ == "__main__":
    given, made = map(Path, sys.argv[1:])
    made.mkdir(parents=True, exist_ok=True)
    prepare(given, made)

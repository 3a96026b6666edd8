"""Commands and actions as lines: python recipes/scan-simple/prepare.py FOLDER PREPARED."""

import sys
from pathlib import Path

HELD_OUT = 1000
"""Training pairs, spread over the file, that are for validation: there is no set for it."""


def prepare(folder: Path, out: Path, split: str = "simple") -> None:
    """Write a command and its actions a line, of one of the ways to divide them."""
    training, test = (read(folder / f"{split}_split" / f"tasks_{part}_{split}.txt") for part in ("train", "test"))
    held = {place * len(training) // HELD_OUT for place in range(HELD_OUT)}
    parts = {
        "train": [pair for place, pair in enumerate(training) if place not in held],
        "valid": [pair for place, pair in enumerate(training) if place in held],
        "test": test,
    }
    for name, pairs in parts.items():
        for side, lines in zip(("source", "target"), zip(*pairs, strict=True), strict=True):
            (out / f"{name}.{side}").write_text("\n".join(lines) + "\n", encoding="utf-8")


def read(path: Path) -> list[tuple[str, str]]:
    """The pairs of a file of lines such as IN: walk OUT: I_WALK."""
    lines = path.read_text(encoding="utf-8").splitlines()
    halves = (line.removeprefix("IN: ").split(" OUT: ") for line in lines)
    return [(command.strip(), actions.strip()) for command, actions in halves]


if __name__ == "__main__":
    given, made = map(Path, sys.argv[1:])
    made.mkdir(parents=True, exist_ok=True)
    prepare(given, made)

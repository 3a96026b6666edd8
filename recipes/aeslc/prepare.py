"""Mails and subjects as lines: python recipes/aeslc/prepare.py FOLDER PREPARED."""

import json
import random
import sys
from pathlib import Path

WORDS = 120
"""What is read of a mail: its first words."""
MARK = "▸"
"""Stands before the words that are to be copied."""


def prepare(folder: Path, out: Path) -> None:
    """Write the beginning of every mail, and its subject, lower-cased and with single blanks.

    For training also the same mails with a mark somewhere, and the four words that follow it: 14,436 subjects are too
    few to learn from that words can be copied.
    """
    for part, name in (("train", "train"), ("dev", "valid"), ("test", "test")):
        with (folder / f"{part}.jsonl").open(encoding="utf-8") as file:
            mails = [json.loads(line) for line in file]
        pairs = [(" ".join(mail["body"].lower().split()[:WORDS]), _line(mail["subject"])) for mail in mails]
        write(out, name, pairs)
        if name == "train":
            chance = random.Random(1)
            write(out, "marked", [marked(body, chance) for body, _ in pairs])


def marked(text: str, chance: random.Random) -> tuple[str, str]:
    """The text with a mark before four words, and these; all words from there on where there are fewer."""
    words = text.split()
    place = chance.randrange(max(1, len(words) - 3))
    return " ".join([*words[:place], MARK, *words[place:]]), " ".join(words[place : place + 4])


def write(out: Path, name: str, pairs: list[tuple[str, str]]) -> None:
    """Write both sides."""
    for side, lines in zip(("source", "target"), zip(*pairs, strict=True), strict=True):
        (out / f"{name}.{side}").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _line(text: str) -> str:
    return " ".join(text.lower().split())


if __name__ == "__main__":
    given, made = map(Path, sys.argv[1:])
    made.mkdir(parents=True, exist_ok=True)
    prepare(given, made)

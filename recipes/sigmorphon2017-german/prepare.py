"""Features and letters as words: python recipes/sigmorphon2017-german/prepare.py FOLDER PREPARED."""

import sys
from pathlib import Path

FEATURES = 5
"""The most a form has; the rest is filled up, so that a lemma always begins at the same place."""
BLANK = "␣"
"""A blank inside a form, such as that of a separated verb."""


def prepare(folder: Path, out: Path) -> None:
    """Write features such as +V, then the letters of the lemma; and the letters of the form."""
    for part, name in (("train-high", "train"), ("dev", "valid"), ("test", "test")):
        sources, targets = [], []
        for line in (folder / f"german-{part}").read_text(encoding="utf-8").splitlines():
            lemma, form, features = line.split("\t")
            given = [f"+{feature}" for feature in features.split(";")]
            given += ["+-"] * (FEATURES - len(given))
            sources.append(" ".join([*given, *spelled(lemma)]))
            targets.append(" ".join(spelled(form)))
        for side, lines in (("source", sources), ("target", targets)):
            (out / f"{name}.{side}").write_text("\n".join(lines) + "\n", encoding="utf-8")


def spelled(word: str) -> list[str]:
    """The letters of a word."""
    return list(word.replace(" ", BLANK))


if __name__ == "__main__":
    given, made = map(Path, sys.argv[1:])
    made.mkdir(parents=True, exist_ok=True)
    prepare(given, made)

"""Words as lines of letters: python recipes/sigmorphon2021-english/prepare.py FOLDER PREPARED."""

import sys
from pathlib import Path


def prepare(folder: Path, out: Path) -> None:
    """Write letters and phonemes, each a word of its own."""
    for part, name in (("train", "train"), ("dev", "valid"), ("test", "test")):
        lines = (folder / f"eng_us_{part}.tsv").read_text(encoding="utf-8").splitlines()
        words, spoken = zip(*(line.split("\t") for line in lines), strict=True)
        (out / f"{name}.source").write_text("".join(" ".join(word) + "\n" for word in words), encoding="utf-8")
        (out / f"{name}.target").write_text("".join(phonemes + "\n" for phonemes in spoken), encoding="utf-8")


if __name__ == "__main__":
    given, made = map(Path, sys.argv[1:])
    made.mkdir(parents=True, exist_ok=True)
    prepare(given, made)

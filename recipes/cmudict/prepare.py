"""CMUdict as lines of letters and of phonemes without stress: python recipes/cmudict/prepare.py FOLDER PREPARED."""

import re
import sys
from pathlib import Path


def prepare(folder: Path, out: Path) -> None:
    """Write a pair a pronunciation, each once; of the test set a line a word, its pronunciations with tabs between."""
    for part, name in (("train", "train"), ("dev", "valid"), ("test", "test")):
        spoken: dict[str, list[str]] = {}
        for line in (folder / f"{part}.tsv").read_text(encoding="utf-8").splitlines():
            word, phonemes = line.split("\t")
            plain = re.sub(r"\d", "", phonemes)
            known = spoken.setdefault(" ".join(word), [])
            known += [] if plain in known else [plain]
        joined = [(word, "\t".join(known)) for word, known in spoken.items()]
        single = [(word, each) for word, known in spoken.items() for each in known]
        pairs = joined if name == "test" else single
        for side, lines in zip(("source", "target"), zip(*pairs, strict=True), strict=True):
            (out / f"{name}.{side}").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    given, made = map(Path, sys.argv[1:])
    made.mkdir(parents=True, exist_ok=True)
    prepare(given, made)

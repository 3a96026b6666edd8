"""Text made by one model for the training of another: translations in sealed pieces, and the pairs made of them."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any

from headway.data.text import read_lines, refuse_streams
from headway.disk import present
from headway.errors import DataError, FolderError, Interrupted
from headway.folders import (
    MANIFEST,
    read_manifest,
    refuse_changes,
    replace_folder,
    sha256,
    verify_folder,
    write_folder,
)
from headway.training.signals import Stopper
from headway.translator import Translator, model_folder

PIECE = 2000
"""Lines translated between two moments at which work is safe."""

OUTPUT = "output"

Report = Callable[[str, int, int | None], None]


@dataclass(frozen=True)
class Translations:
    """A text and what a model makes of it, line by line, in a folder of pieces that are whole or not there.

    What was made before is not made again, so that neither a stop nor a kill loses more than a piece.
    """

    translator: Translator
    lines: Callable[[], Iterator[str]]
    """Reads the text from its beginning."""
    total: int
    """Lines of the text."""
    folder: Path
    origin: Mapping[str, Any]
    """What text, model and search the pieces come from; others are refused."""

    def make(self, report: Report) -> None:
        """Translate what is not there yet; a signal ends it with `Interrupted`, every finished piece kept."""
        reading, done = self.lines(), 0
        with Stopper() as stopper:

            def check() -> None:
                if stopper.signal is not None:
                    told = f"stopped after {done} of {self.total} lines; the same command goes on from there"
                    raise Interrupted(told, stopper.signal)

            for number in count():
                chunk = list(islice(reading, PIECE))
                if not chunk:
                    break
                check()
                if not self._made(number):
                    self._translate(number, chunk, check)
                done += len(chunk)
                report("translating", done, self.total)

    def pairs(self, counts: Counter[str]) -> Iterator[tuple[str, str]]:
        """Every line with its translation; those without one are left out and `counts` says why."""
        for line, output in zip(self.lines(), self._outputs(counts), strict=True):
            if output:
                yield line, output
            else:
                counts["blank lines" if not line.strip() else "empty translations"] += 1

    def _outputs(self, counts: Counter[str]) -> Iterator[str]:
        for number in range(-(-self.total // PIECE)):
            facts = verify_folder(self._path(number))
            counts["longer than the model knows"] += facts["cut"]
            counts["empty translations"] -= facts["cut"]  # they are empty for that reason
            yield from read_lines(self._path(number) / OUTPUT)

    def _path(self, number: int) -> Path:
        return self.folder / f"piece-{number:06d}"

    def _made(self, number: int) -> bool:
        folder = self._path(number)
        if not present(folder):
            return False
        refuse_changes(folder)
        facts = read_manifest(folder)
        if facts.get("origin") != self.origin:
            names = [name for name, value in self.origin.items() if facts.get("origin", {}).get(name) != value]
            raise FolderError(f"{folder}: made from another {', '.join(names)}; choose another --out")
        return True

    def _translate(self, number: int, chunk: list[str], check: Callable[[], None]) -> None:
        translator = self.translator
        sentences = translator.tokenize(chunk)
        short = [ids if len(ids) <= translator.longest else [] for ids in sentences]  # half a source teaches nothing
        found = translator.search([translator.request(ids) for ids in short], check=check)
        outputs = [translator.detokenize(each[0].tokens) if each else "" for each in found]
        cut = sum(len(ids) > translator.longest for ids in sentences)

        def fill(aside: Path) -> None:
            (aside / OUTPUT).write_text("".join(f"{output}\n" for output in outputs), encoding="utf-8")

        write_folder(self._path(number), fill, {"kind": "translations", "cut": cut, "origin": dict(self.origin)})


def translations(
    translator: Translator, model: Path, text: tuple[Path, ...], lines: Callable[[], Iterator[str]], folder: Path
) -> Translations:
    """The translations of the `lines` of the files `text` by the model in the folder `model`.

    The text is read once, so that what is wrong with it shows before anything is written.
    """
    refuse_streams(*text)
    total = sum(1 for _ in lines())
    if not total:
        raise DataError(f"{text[0]}: no lines; give a text with at least one")
    origin = {
        "text": [sha256(path) for path in text],
        "model": sha256(model_folder(model) / MANIFEST),
        "decoding": translator.decoding.model_dump(mode="json"),
    }
    return Translations(translator, lines, total, folder, origin)


def write_pairs(
    folder: Path, pairs: Callable[[Counter[str]], Iterable[tuple[str, str]]], facts: Mapping[str, Any]
) -> dict[str, int]:
    """Write pairs as `source` and `target` of a sealed folder; returns how many, and those left out by reason.

    A folder with the same facts is taken as it is; one of other facts is replaced, if it is just what Headway wrote.
    """
    refuse_changes(folder)
    if present(folder) and (manifest := read_manifest(folder)).get("facts") == facts:
        return dict(manifest["counts"])
    counts: Counter[str] = Counter()

    def fill(aside: Path) -> None:
        with (
            (aside / "source").open("w", encoding="utf-8", newline="\n") as sources,
            (aside / "target").open("w", encoding="utf-8", newline="\n") as targets,
        ):
            for source, target in pairs(counts):
                counts["pairs"] += 1
                sources.write(source.rstrip("\r") + "\n")
                targets.write(target.rstrip("\r") + "\n")

    # The counts are known only when the pairs are written: the manifest, sealed after that, sees them.
    replace_folder(folder, fill, {"kind": "pairs", "facts": dict(facts), "counts": counts})
    return dict(counts)

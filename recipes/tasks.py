"""What is measured of a recipe: the task.toml beside its recipe.toml, and the texts it names."""

import importlib.util
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headway.config import Settings, read_toml, validated
from headway.data.pairs import Files, read_pairs
from headway.errors import ConfigError, DataError

RECIPES = Path(__file__).parent


class Task(Settings):
    """What is measured of a recipe, and beside what it is shown."""

    title: str
    """The task in a few words."""
    archive: str
    """The data: what its archive and its folder are called."""
    measure: Literal["tokenised BLEU", "BLEU", "exact", "phonemes", "spelling", "ROUGE"]
    """How outputs are scored."""
    baselines: tuple[Literal["copy", "lemma", "letters", "nearest word", "same words", "first words"], ...]
    """What needs no model."""
    headline: tuple[str, str]
    """The test set and the score that stand for the recipe."""
    lower_is_better: bool = False
    """Whether the headline counts errors."""
    goal: float | None = None
    """What is to be reached."""
    published: str = ""
    """What others report."""
    tags: tuple[str, ...] = ()
    """Put before every source, where the recipe has several corpora."""
    tests: dict[str, tuple[Path, ...]]
    """Source and references of every test set; alternatives stand in one line, with tabs between them."""


@dataclass(frozen=True)
class Sample:
    """Sources and, for each, what is right."""

    sources: list[str]
    references: list[tuple[str, ...]]

    @property
    def lists(self) -> list[list[str]]:
        """The references as lists of equal length: where there are fewer, the first again."""
        most = max(map(len, self.references))
        return [
            [choices[place] if place < len(choices) else choices[0] for choices in self.references]
            for place in range(most)
        ]


def named(name: str) -> Task:
    """The task of a recipe."""
    path = RECIPES / name / "task.toml"
    if not path.is_file():
        known = ", ".join(sorted(each.parent.name for each in RECIPES.glob("*/task.toml")))
        raise ConfigError(f"{name}: no such recipe; there are {known}")
    return validated(Task, read_toml(path), str(path))


def read_sample(folder: Path, files: tuple[Path, ...]) -> Sample:
    """A test set: two files, or one that holds both sides."""
    source, target = folder / files[0], folder / files[1] if len(files) > 1 else None
    pairs = list(read_pairs(Files(source, target)))
    return Sample([pair.source for pair in pairs], [tuple(pair.target.split("\t")) for pair in pairs])


def unpacked(task: Task, data: Path, archives: Path | None) -> Path:
    """The folder of the task's data, unpacked from its archive where it is not there."""
    folder = data / task.archive
    if folder.is_dir():
        return folder
    if archives is None:
        raise DataError(f"{folder}: no such folder; unpack {task.archive}.tar.xz there, or say --archives FOLDER")
    packed = archives / f"{task.archive}.tar.xz"
    aside = folder.with_name(f"{folder.name}.partly")
    aside.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(packed) as archive:
            archive.extractall(aside, filter="data")
    except (OSError, tarfile.TarError) as error:
        raise DataError(f"{packed}: cannot be unpacked ({error}); check the path") from None
    aside.rename(folder)
    return folder


def prepared(name: str, folder: Path, out: Path) -> Path:
    """The texts as the recipe reads them: what its prepare.py writes into `out`, or else `folder` as it is."""
    script = RECIPES / name / "prepare.py"
    if not script.is_file():
        return folder
    found = importlib.util.spec_from_file_location(f"prepare_{name.replace('-', '_')}", script)
    assert found is not None and found.loader is not None  # it is a file
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    out.mkdir(parents=True, exist_ok=True)
    module.prepare(folder, out)
    return out

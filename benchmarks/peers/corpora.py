"""Public corpora as plain files: training pairs, and validation and test samples that no training sees."""

import random
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "recipes"))  # where the recipes' own modules are found

from measures import MEASURES, Material, Scores
from tasks import Sample, prepared, read_sample

from headway.data.pairs import Files, read_pairs
from headway.errors import DataError

SEED = 1
"""Chooses the pairs of a corpus that is cut down."""
PARTS = ("train", "valid", "test")


@dataclass(frozen=True)
class Corpus:
    """Where the files of a corpus are in its archive, and how outputs are scored."""

    archive: str
    train: tuple[str, ...]
    """Source and target, or one file of both with a tab between."""
    valid: tuple[str, ...]
    test: tuple[str, ...]
    pairs: int | None = None
    """Training pairs to keep, by a seeded sample; None: all."""
    recipe: str | None = None
    """The recipe whose prepare.py writes the files."""
    measure: str = "BLEU"
    """A key of `MEASURES`."""
    headline: str = "BLEU"
    """The score by which settings are compared."""
    lower_is_better: bool = False


CORPORA = {
    "multi30k": Corpus(
        "multi30k-public",
        ("raw/train.en", "raw/train.de"),
        ("raw/val.en", "raw/val.de"),
        ("raw/test_2016_flickr.en", "raw/test_2016_flickr.de"),
    ),
    "tatoeba-20k": Corpus(
        "tatoeba_en_de", ("train.en", "train.de"), ("dev.en", "dev.de"), ("test.en", "test.de"), pairs=20_000
    ),
    "europarl-30k": Corpus(
        "europarl_en_de-300k",
        ("train.300k.en", "train.300k.de"),
        ("dev.en", "dev.de"),
        ("test.en", "test.de"),
        pairs=30_000,
    ),
    "cmudict": Corpus(
        "cmudict_g2p",
        ("train.source", "train.target"),
        ("valid.source", "valid.target"),
        ("test.source", "test.target"),
        recipe="cmudict",
        measure="phonemes",
        headline="word error rate",
        lower_is_better=True,
    ),
    "codespell": Corpus(
        "codespell_typos",
        ("train.tsv",),
        ("dev.tsv",),
        ("test.tsv",),
        measure="phonemes",
        headline="word error rate",
        lower_is_better=True,
    ),
    "sigmorphon2021": Corpus(
        "sigmorphon2021_g2p_eng_us",
        ("eng_us_train.tsv",),
        ("eng_us_dev.tsv",),
        ("eng_us_test.tsv",),
        measure="phonemes",
        headline="word error rate",
        lower_is_better=True,
    ),
}
"""Sentences, words whose letters stand apart (cmudict), and words as they are written."""


@dataclass(frozen=True)
class Texts:
    """A corpus on disk: FOLDER/{train,valid,test}.{source,target}."""

    name: str
    corpus: Corpus
    folder: Path

    def file(self, part: str, side: str) -> Path:
        return self.folder / f"{part}.{side}"

    def sample(self, part: str, sentences: int | None = None) -> Sample:
        """Sources and references of a part; only the first `sentences`, where that is given."""
        found = read_sample(self.folder, (Path(f"{part}.source"), Path(f"{part}.target")))
        return Sample(found.sources[:sentences], found.references[:sentences])

    def scores(self, outputs: Sequence[str], sample: Sample) -> Scores:
        """BLEU (13a) and chrF, or word and phoneme error rate."""
        measure = MEASURES[self.corpus.measure]
        found = measure([[each] for each in outputs], sample, Material([], sample))
        return {name: round(value, 3) for name, value in found.items()}

    def better(self, score: float) -> float:
        """The headline score as a number of which more is better."""
        return -score if self.corpus.lower_is_better else score


def prepare_texts(name: str, data: Path, out: Path, pairs: int | None = None) -> Texts:
    """Write the files of a corpus to `out` once; `pairs` overrides how many training pairs are kept.

    `data` holds the archive NAME.tar.xz, or a folder NAME of its content.
    """
    corpus = CORPORA[name]
    kept = corpus.pairs if pairs is None else pairs
    texts = Texts(name, corpus, out / f"{name}-{kept or 'all'}")
    if texts.folder.is_dir():
        return texts
    folder = _unpack(corpus.archive, data, out)
    if corpus.recipe is not None:
        folder = prepared(corpus.recipe, folder, out / f"{name}-prepared")
    partial = texts.folder.with_name(f"{texts.folder.name}.partial")
    partial.mkdir(parents=True, exist_ok=True)
    for part, files in zip(PARTS, (corpus.train, corpus.valid, corpus.test), strict=True):
        found = list(read_pairs(Files(*(folder / name for name in files))))
        if part == "train" and kept is not None and kept < len(found):
            found = random.Random(SEED).sample(found, kept)
        for side in ("source", "target"):
            lines = "".join(f"{getattr(pair, side)}\n" for pair in found)
            (partial / f"{part}.{side}").write_text(lines, encoding="utf-8")
    partial.rename(texts.folder)
    return texts


def _unpack(archive: str, data: Path, out: Path) -> Path:
    for folder in (data / archive, out / archive):
        if folder.is_dir():
            return folder
    packed, partial = data / f"{archive}.tar.xz", out / f"{archive}.partial"
    if not packed.is_file():
        raise DataError(f"{data}: holds neither {archive} nor {packed.name}; download it, or leave the corpus out")
    partial.mkdir(parents=True, exist_ok=True)
    with tarfile.open(packed) as content:
        content.extractall(partial, filter="data")
    return partial.rename(out / archive)

"""What a dry run and a forecast share: a sample that stands for a corpus, and the memory that was used."""

import json
import resource
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from gzip import GzipFile
from itertools import islice
from pathlib import Path

import torch

from headway.beginning import begin, stored_recipe
from headway.choices import choose, conditions
from headway.data.config import DataConfig
from headway.data.pairs import PARQUET_SUFFIX, Files, Pair, read_pairs
from headway.data.preparation import Prepared, divide, reopen
from headway.data.text import GZIP_MAGIC, Invalid, explained
from headway.recipe import Recipe
from headway.runtime.memory import all_memory
from headway.screen import Screen
from headway.start import open_start
from headway.training.trainer import Update

LOOKED_AT = 1_000_000
"""Lines of a corpus that a sample is spread over at most."""
COUNTED = 1 << 30
"""Bytes in which lines are counted; of a longer file the rest is estimated."""
LINKS = ".links"
"""The suffix of the word alignments of a sample."""


@dataclass(frozen=True)
class Sample:
    """A run begun on a part of a corpus, and how much more there is."""

    recipe: Recipe
    """Every choice made, where it hangs on their number for all pairs; its data is the sample."""
    prepared: Prepared
    pairs: int
    """Training pairs of an epoch of the whole corpus, about."""
    valid: int
    """Validation pairs of the whole corpus, about."""
    whole: bool
    """The sample is the corpus, so that nothing is estimated."""
    notes: list[str] = field(default_factory=list)
    """What was chosen and why, and what to know before time is spent."""


def sample(
    recipe: Recipe,
    folder: Path,
    *,
    most: int,
    device: torch.device,
    screen: Screen,
    spread: bool = True,
    processes: int = 1,
) -> Sample:
    """Begin a run in `folder` on about `most` pairs: spread over the beginning of every corpus, or the very first."""
    if recipe.start is not None:
        open_start(recipe.start)  # which says what is wrong with it before anything is read
    folder.mkdir(parents=True, exist_ok=True)
    data, taken, lines = _thinned(recipe.data, folder, most, spread)
    split = divide(data, screen.working)
    found = split.pairs + (len(split.valid) if split.every else 0)
    whole = taken >= lines
    clean = found if whole else lines * found // taken
    valid = data.held_out_of(clean) if split.every and not whole else len(split.valid)
    pairs = clean - (valid if split.every else 0)
    recipe, chosen = recipe.model_copy(update={"data": data}), None
    if recipe.start is None:  # which leaves nothing to choose by the number of pairs
        chosen = choose(recipe, *conditions(recipe, split, device, processes, pairs))
        recipe = chosen.recipe
    begin(recipe, folder / "run", device=device, screen=_Quiet(screen), pairs=pairs)
    recipe = stored_recipe(folder / "run")
    prepared = reopen(data, folder / "run" / "data")
    notes = [] if chosen is None else [chosen.summary, *chosen.warnings]
    return Sample(recipe, prepared, max(1, pairs * len(prepared.store) // split.pairs), valid, whole, notes)


@dataclass(frozen=True)
class _Quiet:
    """A screen on which nothing stays: what is said of a sample is not true of the corpus."""

    screen: Screen

    def say(self, line: str) -> None:
        del line

    def working(self, what: str, done: int, total: int | None) -> None:
        self.screen.working(what, done, total)

    def updated(self, update: Update) -> None:
        del update


def _thinned(data: DataConfig, folder: Path, most: int, spread: bool) -> tuple[DataConfig, int, int]:
    """The same corpora with fewer pairs, in files of their own; how many were taken, and of how many lines."""
    corpora = data.training()
    lines = [count_pairs(files, data.invalid) for files in corpora]
    step = -(-sum(min(count, LOOKED_AT) for count in lines) // most) if spread else 1
    looked = LOOKED_AT if spread else -(-most // len(corpora))
    paths, taken = [folder / f"sample-{number}.jsonl" for number in range(len(corpora))], 0
    for files, path, count in zip(corpora, paths, lines, strict=True):
        end = looked if looked < count else None  # to the very end, where a wrong number of lines would show
        taken += _write(islice(read_pairs(files, invalid=data.invalid), 0, end, step), path, data.fields)
    return _of_files(data, paths), taken, sum(lines)


def _write(pairs: Iterable[Pair], path: Path, fields: tuple[str, str]) -> int:
    """Write the pairs as JSON lines, and their word alignments beside them; returns how many."""
    taken = 0
    with path.open("w", encoding="utf-8") as texts, path.with_suffix(LINKS).open("w", encoding="utf-8") as links:
        for pair in pairs:
            texts.write(json.dumps(dict(zip(fields, pair[:2], strict=True))) + "\n")
            links.write(f"{pair.links}\n")
            taken += 1
    return taken


def _of_files(data: DataConfig, paths: list[Path]) -> DataConfig:
    """The same corpora, the text of each in another file."""
    if data.text is not None:
        return data.model_copy(update={"text": paths[0]})
    if not data.corpora:
        links = None if data.alignment is None else paths[0].with_suffix(LINKS)
        return data.model_copy(update={"source": paths[0], "target": None, "alignment": links})
    each = zip(data.corpora, paths, strict=True)
    corpora = tuple(corpus.model_copy(update={"source": path, "target": None}) for corpus, path in each)
    return data.model_copy(update={"corpora": corpora})


def count_pairs(files: Files, invalid: Invalid) -> int:
    """How many pairs a corpus has, about: its lines, or the rows of Parquet."""
    next(read_pairs(files, invalid=invalid), None)  # which tells what is wrong with the files
    return sum(_count_lines(shard.source) for shard in files.shards)


def _count_lines(path: Path) -> int:
    """The lines of a plain or gzip file; beyond `COUNTED` bytes, by the size of those before."""
    if path.suffix == PARQUET_SUFFIX:
        import pyarrow.parquet

        return int(pyarrow.parquet.read_metadata(path).num_rows)
    lines = read = 0
    last = b"\n"
    with explained(str(path)), path.open("rb") as raw:
        stream = GzipFile(fileobj=raw, mode="rb") if raw.peek(2).startswith(GZIP_MAGIC) else raw
        while read < COUNTED and (piece := stream.read(1 << 20)):
            lines, read, last = lines + piece.count(b"\n"), read + len(piece), piece[-1:]
        place = raw.tell()
    if read < COUNTED:
        return lines + (last != b"\n")
    return lines * path.stat().st_size // place


def memory(device: torch.device) -> tuple[int, int]:
    """The most bytes this process has used at any moment, and what there is: of the GPU, or for a process here."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device), torch.cuda.get_device_properties(device).total_memory
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return used, all_memory()

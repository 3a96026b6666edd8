"""The token store: a corpus as ids in flat files, of which only what a batch needs is read."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from itertools import chain, compress, islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from headway.data.arrays import StoredArray
from headway.data.pairs import Pair
from headway.data.tokenizer import Tokenizer
from headway.errors import FolderError
from headway.folders import read_manifest, replace_folder, verify_folder

FORMAT = 1
"""Raised whenever a store written before could no longer be read."""

Side = Literal["source", "target"]
SIDES: tuple[Side, Side] = ("source", "target")

_CHUNK = 4096
_NEAR = 512  # pairs between two that are still read in one go
_HELD = 64 * 2**20  # bytes of ids up to which a corpus is kept in memory: a batch then costs a tenth
_KINDS: dict[str, np.dtype[Any]] = {"lengths": np.dtype("<i4"), "offsets": np.dtype("<i8")}
NAMES = frozenset(f"{side}.{kind}" for side in SIDES for kind in ("tokens", *_KINDS))
"""The files of a store."""


class TokenStore:
    """Pairs of id sequences without control symbols, read from disk as they are asked for."""

    def __init__(self, folder: Path, manifest: Mapping[str, Any]) -> None:
        self.folder = folder
        self.manifest = manifest
        self._wholes: dict[Side, tuple[NDArray[Any], NDArray[np.int64]]] = {}
        self.dropped: int = manifest["dropped"]
        """Pairs left out because one side was longer than the limit."""
        self.corpora: tuple[int, ...] = tuple(manifest["corpora"])
        """Pairs of every corpus; they stand one after the other."""

    def __len__(self) -> int:
        return int(self.manifest["pairs"])

    @property
    def source_lengths(self) -> StoredArray:
        """Tokens of every source sentence."""
        return self._arrays["source.lengths"]

    @property
    def target_lengths(self) -> StoredArray:
        """Tokens of every target sentence."""
        return self._arrays["target.lengths"]

    def source(self, index: int) -> NDArray[np.int64]:
        """The ids of one source sentence."""
        return self._sentence("source", index)

    def target(self, index: int) -> NDArray[np.int64]:
        """The ids of one target sentence."""
        return self._sentence("target", index)

    def gather(self, side: Side, pairs: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The ids of several sentences one after the other, and how many each has.

        A small corpus is kept in memory. Of others, sentences that are near on disk are read in one go.
        """
        if len(pairs) and not 0 <= pairs.min() <= pairs.max() < len(self):
            raise IndexError(f"pairs {pairs.min()} to {pairs.max()} of {len(self)}")
        if self._small:
            tokens, offsets = self._whole(side)
            begun, counts = offsets[pairs], offsets[pairs + 1] - offsets[pairs]
            return tokens[ranges(begun, counts)].astype(np.int64), counts
        ordered = np.sort(pairs)
        content, begins, lengths, total = [], [], [], 0
        for near in np.split(ordered, np.flatnonzero(np.diff(ordered) > _NEAR) + 1) if len(ordered) else ():
            first = int(near[0])
            offsets = self._read(side, "offsets", first, int(near[-1]) + 2)
            content.append(self._read(side, "tokens", int(offsets[0]), int(offsets[-1])))
            begins.append(offsets[near - first] - offsets[0] + total)
            lengths.append(offsets[near - first + 1] - offsets[near - first])
            total += len(content[-1])
        back = np.argsort(np.argsort(pairs, kind="stable"), kind="stable")
        counts = np.concatenate([np.empty(0, np.int64), *lengths])[back]
        places = ranges(np.concatenate([np.empty(0, np.int64), *begins])[back], counts)
        return np.concatenate([np.empty(0, np.int64), *content])[places].astype(np.int64), counts

    @cached_property
    def _arrays(self) -> dict[str, StoredArray]:
        kinds = {side: {**_KINDS, "tokens": _token_type(self.manifest["vocabulary"][side])} for side in SIDES}
        names = {f"{side}.{kind}": dtype for side in SIDES for kind, dtype in kinds[side].items()}
        return {name: StoredArray(self.folder / name, dtype) for name, dtype in names.items()}

    @cached_property
    def _small(self) -> bool:
        return sum((self.folder / f"{side}.tokens").stat().st_size for side in SIDES) <= _HELD

    def _whole(self, side: Side) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """All ids of a side and where each sentence begins, read once."""
        if side not in self._wholes:
            offsets = self._read(side, "offsets", 0, len(self) + 1)
            self._wholes[side] = self._read(side, "tokens", 0, int(offsets[-1])), offsets
        return self._wholes[side]

    def _sentence(self, side: Side, index: int) -> NDArray[np.int64]:
        return self.gather(side, np.array([index]))[0]

    def _read(self, side: Side, kind: str, start: int, stop: int) -> NDArray[Any]:
        return self._arrays[f"{side}.{kind}"].read(start, stop)


def ranges(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers `starts[i] ... starts[i] + lengths[i] - 1` of every i, one after the other."""
    shift: NDArray[np.int64] = np.repeat(starts - (lengths.cumsum() - lengths), lengths)
    return shift + np.arange(int(lengths.sum()), dtype=np.int64)


def open_store(folder: Path, key: Mapping[str, Any]) -> TokenStore | None:
    """Open the store that `key` describes after verifying it; None where there is none that is whole: build it then."""
    manifest = open_sealed(folder, key)
    return None if manifest is None else TokenStore(folder, manifest)


def open_sealed(folder: Path, key: Mapping[str, Any]) -> dict[str, Any] | None:
    """The manifest of a folder made from what `key` describes, every file verified; None where it must be made."""
    try:
        manifest = verify_folder(folder)
    except FolderError:
        return None
    facts = {name: value for name, value in manifest.items() if name not in ("format", "files", "sealed")}
    return manifest if manifest.get("sealed") == seal(key, facts) else None


def seal(key: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    """A digest of what a folder was made from and of what its manifest says of it."""
    told = {"format": FORMAT, "key": key, "facts": facts}
    return hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()


def build_store(
    folder: Path,
    pairs: Iterable[Pair | tuple[str, str]],
    source: Tokenizer,
    target: Tokenizer,
    *,
    key: Mapping[str, Any],
    longest: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> TokenStore:
    """Tokenise `pairs` into `folder`, which appears complete or not at all; an older store there is replaced.

    Each source stands after its tags. Pairs must come corpus by corpus.
    Pairs with a side of more than `longest` tokens are dropped and counted. `progress` hears how many pairs were read.
    Memory does not grow with the corpus.
    """
    facts: dict[str, Any] = {"kind": "store"}

    def fill(aside: Path) -> None:
        facts.update(_fill(aside, pairs, (source, target), longest, progress))
        facts["sealed"] = seal(key, facts)

    replace_folder(folder, fill, facts, known=NAMES)
    return TokenStore(folder, read_manifest(folder))


class _Writer:
    """One side being written: tokens, lengths and offsets."""

    def __init__(self, folder: Path, side: Side, vocabulary: int, stack: ExitStack) -> None:
        self.type = _token_type(vocabulary)
        self.count = 0
        kinds = ("tokens", *_KINDS)
        self.files = {kind: stack.enter_context((folder / f"{side}.{kind}").open("wb")) for kind in kinds}
        self._write("offsets", np.zeros(1, _KINDS["offsets"]))

    def add(self, sentences: list[list[int]]) -> None:
        lengths = np.fromiter(map(len, sentences), _KINDS["lengths"], len(sentences))
        ends = lengths.cumsum(dtype=_KINDS["offsets"])
        total = int(ends[-1]) if len(ends) else 0
        self._write("tokens", np.fromiter(chain.from_iterable(sentences), self.type, total))
        self._write("lengths", lengths)
        self._write("offsets", ends + self.count)
        self.count += total

    def _write(self, kind: str, values: NDArray[Any]) -> None:
        self.files[kind].write(values.tobytes())


def _fill(
    folder: Path,
    pairs: Iterable[Pair | tuple[str, str]],
    tokenizers: tuple[Tokenizer, Tokenizer],
    longest: int | None,
    progress: Callable[[int], None] | None,
) -> dict[str, Any]:
    read = 0
    kept: Counter[int] = Counter()
    with ExitStack() as stack:
        writers = [_Writer(folder, side, each.size, stack) for side, each in zip(SIDES, tokenizers, strict=True)]
        for chunk in _chunks(pairs):
            encoded = encode_pairs(chunk, tokenizers)
            read += len(chunk)
            short = [longest is None or max(map(len, pair)) <= longest for pair in zip(*encoded, strict=True)]
            kept.update(pair.corpus for pair in compress(chunk, short))
            for writer, sentences in zip(writers, encoded, strict=True):
                writer.add(list(compress(sentences, short)))
            if progress is not None:
                progress(read)
    counts = {"pairs": kept.total(), "dropped": read - kept.total(), "tokens": [writer.count for writer in writers]}
    corpora = [kept[corpus] for corpus in range(max(kept, default=0) + 1)]
    vocabulary = {side: each.size for side, each in zip(SIDES, tokenizers, strict=True)}
    return {**counts, "corpora": corpora, "vocabulary": vocabulary}


def encode_pairs(
    chunk: Sequence[Pair], tokenizers: tuple[Tokenizer, Tokenizer]
) -> tuple[list[list[int]], list[list[int]]]:
    """The ids of all sources, each after its tags, and of all targets."""
    source, target = tokenizers
    sources = source.encode([pair.source for pair in chunk])
    tagged = [source.tagged(pair.tags) + ids for pair, ids in zip(chunk, sources, strict=True)]
    return tagged, target.encode([pair.target for pair in chunk])


def _chunks(pairs: Iterable[Pair | tuple[str, str]]) -> Iterator[list[Pair]]:
    iterator = (Pair(*pair) for pair in pairs)
    while chunk := list(islice(iterator, _CHUNK)):
        yield chunk


def _token_type(vocabulary: int) -> np.dtype[Any]:
    return np.dtype("<u2") if vocabulary < 2**16 else np.dtype("<u4")

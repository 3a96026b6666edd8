"""The token store: a corpus as ids in flat files, of which only what a batch needs is read."""

import errno
import hashlib
import json
import mmap
import os
import shutil
import socket
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from itertools import chain, compress, islice
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from headway.data.pairs import Pair
from headway.data.tokenizer import Tokenizer
from headway.disk import sync
from headway.errors import FolderError, HeadwayError
from headway.folders import sha256

FORMAT = 1
"""Raised whenever a store written before could no longer be read."""

Side = Literal["source", "target"]
SIDES: tuple[Side, Side] = ("source", "target")

_CHUNK = 4096
_NEAR = 512  # pairs between two that are still read in one go
_HELD = 64 * 2**20  # bytes of ids up to which a corpus is kept in memory: a batch then costs a tenth
_MANIFEST = "store.json"
_KINDS: dict[str, np.dtype[Any]] = {"lengths": np.dtype("<i4"), "offsets": np.dtype("<i8")}


class TokenStore:
    """Pairs of id sequences without control symbols, read from disk as they are asked for."""

    def __init__(self, folder: Path, manifest: Mapping[str, Any]) -> None:
        self.folder = folder
        self.manifest = manifest
        self._descriptors: dict[str, int] = {}
        self._wholes: dict[Side, tuple[NDArray[Any], NDArray[np.int64]]] = {}
        self.dropped: int = manifest["dropped"]
        """Pairs left out because one side was longer than the limit."""
        self.corpora: tuple[int, ...] = tuple(manifest.get("corpora", (manifest["pairs"],)))
        """Pairs of every corpus; they stand one after the other."""

    def __len__(self) -> int:
        return int(self.manifest["pairs"])

    @cached_property
    def source_lengths(self) -> NDArray[np.int32]:
        """Tokens of every source sentence."""
        return self._open("source", "lengths")

    @cached_property
    def target_lengths(self) -> NDArray[np.int32]:
        """Tokens of every target sentence."""
        return self._open("target", "lengths")

    def source(self, index: int) -> NDArray[np.int64]:
        """The ids of one source sentence."""
        return self._sentence("source", index)

    def target(self, index: int) -> NDArray[np.int64]:
        """The ids of one target sentence."""
        return self._sentence("target", index)

    def gather(self, side: Side, pairs: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The ids of several sentences one after the other, and how many each has.

        A small corpus is kept in memory. Of others, sentences that are near on disk are read in one go; by plain reads,
        because a mapped page counts as memory of the process, and the system may map megabytes around it.
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

    def verify(self) -> None:
        """Read every file and compare it with the digest taken when it was written."""
        for name, entry in self.manifest["files"].items():
            if sha256(self.folder / name) != entry["sha256"]:
                raise FolderError(f"{self.folder / name}: damaged, its content has changed; delete {self.folder}")

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

    def _type(self, side: Side, kind: str) -> np.dtype[Any]:
        return _KINDS.get(kind) or _token_type(self.manifest["vocabulary"][side])

    def _open(self, side: Side, kind: str) -> NDArray[Any]:
        return mapped(self.folder / f"{side}.{kind}", self._type(side, kind))

    def _read(self, side: Side, kind: str, start: int, stop: int) -> NDArray[Any]:
        name, dtype = f"{side}.{kind}", self._type(side, kind)
        if name not in self._descriptors:
            self._descriptors[name] = os.open(self.folder / name, os.O_RDONLY)
            weakref.finalize(self, os.close, self._descriptors[name])
        content = os.pread(self._descriptors[name], (stop - start) * dtype.itemsize, start * dtype.itemsize)
        if start > stop or len(content) != (stop - start) * dtype.itemsize:
            raise FolderError(f"{self.folder / name}: damaged or changed while in use; delete {self.folder}")
        return np.frombuffer(content, dtype)


def ranges(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers `starts[i] ... starts[i] + lengths[i] - 1` of every i, one after the other."""
    shift: NDArray[np.int64] = np.repeat(starts - (lengths.cumsum() - lengths), lengths)
    return shift + np.arange(int(lengths.sum()), dtype=np.int64)


def mapped(path: Path, dtype: np.dtype[Any]) -> NDArray[Any]:
    """A file as a read-only array; one without a single element, which cannot be mapped, as an empty array."""
    if path.stat().st_size == 0:
        return np.empty(0, dtype)
    return np.memmap(path, dtype, mode="r")


def release(array: NDArray[Any]) -> None:
    """Let the system take back the pages of a mapped array, so that resident memory does not grow with the corpus."""
    view = getattr(array, "_mmap", None)
    if view is not None and hasattr(mmap, "MADV_DONTNEED"):
        view.madvise(mmap.MADV_DONTNEED)


def described(path: Path, version: int, key: Mapping[str, Any]) -> dict[str, Any] | None:
    """The manifest at `path`; None when there is none, or one of another format or key."""
    try:
        manifest = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError):
        raise FolderError(f"{path}: cannot be read; delete {path.parent} to build it again") from None
    fits = isinstance(manifest, dict) and manifest.get("format") == version and manifest.get("key") == plain(key)
    return manifest if fits else None


def open_store(folder: Path, key: Mapping[str, Any]) -> TokenStore | None:
    """Open the store that `key` describes; None when there is none, or one of another key: build it then."""
    manifest = described(folder / _MANIFEST, FORMAT, key)
    if manifest is None:
        return None
    for name, entry in manifest["files"].items():
        path = folder / name
        size = path.stat().st_size if path.is_file() else 0
        if not path.is_file() or size != entry["bytes"]:
            raise FolderError(f"{path}: damaged, {size} bytes instead of {entry['bytes']}; delete {folder}")
    return TokenStore(folder, manifest)


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
    unfinished = folder.with_name(f"{folder.name}.tmp-{owner()}")
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        sweep(folder)
        unfinished.mkdir()
        try:
            manifest = _fill(unfinished, pairs, (source, target), longest, progress)
            manifest["key"] = plain(key)
            _write_manifest(unfinished, manifest)
            if folder.exists():
                folder.rename(folder.with_name(f"{folder.name}.tmp-{owner()}-old"))
            unfinished.rename(folder)
            sync(folder.parent)
        finally:
            sweep(folder)
    return TokenStore(folder, manifest)


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn a full or closed disk into one line that names the folder."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES):
            raise
        raise HeadwayError(f"{folder}: cannot be written ({error.strerror}); free space or choose another") from None


class _Writer:
    """One side being written: tokens, lengths and offsets, with their digests."""

    def __init__(self, folder: Path, side: Side, vocabulary: int, stack: ExitStack) -> None:
        self.type = _token_type(vocabulary)
        self.count = 0
        self.files: dict[str, BinaryIO] = {}
        for kind in ("tokens", "lengths", "offsets"):
            self.files[f"{side}.{kind}"] = stack.enter_context((folder / f"{side}.{kind}").open("wb"))
        self.digests = {name: hashlib.sha256() for name in self.files}
        self.side = side
        self._write("offsets", np.zeros(1, _KINDS["offsets"]))

    def add(self, sentences: list[list[int]]) -> None:
        lengths = np.fromiter(map(len, sentences), _KINDS["lengths"], len(sentences))
        ends = lengths.cumsum(dtype=_KINDS["offsets"])
        total = int(ends[-1]) if len(ends) else 0
        self._write("tokens", np.fromiter(chain.from_iterable(sentences), self.type, total))
        self._write("lengths", lengths)
        self._write("offsets", ends + self.count)
        self.count += total

    def finish(self) -> dict[str, dict[str, Any]]:
        described = {}
        for name, file in self.files.items():
            file.flush()
            os.fsync(file.fileno())
            described[name] = {"bytes": file.tell(), "sha256": self.digests[name].hexdigest()}
        return described

    def _write(self, kind: str, values: NDArray[Any]) -> None:
        name = f"{self.side}.{kind}"
        content = values.tobytes()
        self.files[name].write(content)
        self.digests[name].update(content)


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
        files = writers[0].finish() | writers[1].finish()
    counts = {"pairs": kept.total(), "dropped": read - kept.total(), "tokens": [writer.count for writer in writers]}
    corpora = [kept[corpus] for corpus in range(max(kept, default=0) + 1)]
    vocabulary = {side: each.size for side, each in zip(SIDES, tokenizers, strict=True)}
    return {"format": FORMAT, **counts, "corpora": corpora, "vocabulary": vocabulary, "files": files}


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


def plain(key: Mapping[str, Any]) -> Any:
    """The key as it reads back from JSON."""
    return json.loads(json.dumps(key, default=str))


def _write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    with (folder / _MANIFEST).open("w", encoding="utf-8") as file:
        json.dump(manifest, file, indent=2, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    sync(folder)


def sweep(folder: Path) -> None:
    """Remove what builds of this process, or of processes that are gone, have left behind."""
    prefix = f"{folder.name}.tmp-"
    for leftover in folder.parent.iterdir():
        if leftover.name.startswith(prefix) and abandoned(leftover.name.removeprefix(prefix).removesuffix("-old")):
            shutil.rmtree(leftover, ignore_errors=True)


def owner() -> str:
    """This process, among those of all machines that see the same files."""
    return f"{socket.gethostname()}-{os.getpid()}"


def abandoned(given: str) -> bool:
    """Whether an owner is this process, or one of this machine that is gone."""
    host, _, process = given.rpartition("-")
    if not process.isdecimal() or host != socket.gethostname():
        return False
    if int(process) == os.getpid():
        return True
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        return False  # it runs, as another user
    return False

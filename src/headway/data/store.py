"""The token store: a corpus as ids in flat files that are mapped into memory, never loaded."""

import errno
import hashlib
import json
import mmap
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from headway.data.tokenizer import Tokenizer
from headway.errors import FolderError, HeadwayError

FORMAT = 1
"""Raised whenever a store written before could no longer be read."""

Side = Literal["source", "target"]
SIDES: tuple[Side, Side] = ("source", "target")

_CHUNK = 4096
_MANIFEST = "store.json"
_KINDS: dict[str, np.dtype[Any]] = {"lengths": np.dtype("<i4"), "offsets": np.dtype("<i8")}


class TokenStore:
    """Pairs of id sequences without control symbols, read from disk as they are asked for."""

    def __init__(self, folder: Path, manifest: Mapping[str, Any]) -> None:
        self.folder = folder
        self.manifest = manifest
        self.dropped: int = manifest["dropped"]
        """Pairs left out because one side was longer than the limit."""

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

    def tokens(self, side: Side) -> NDArray[Any]:
        """All ids of a side, one sentence after the other."""
        return self._source_tokens if side == "source" else self._target_tokens

    def offsets(self, side: Side) -> NDArray[np.int64]:
        """Where every sentence of a side starts in `tokens`, and last where they end."""
        return self._source_offsets if side == "source" else self._target_offsets

    def verify(self) -> None:
        """Read every file and compare it with the digest taken when it was written."""
        for name, entry in self.manifest["files"].items():
            digest = hashlib.sha256()
            with (self.folder / name).open("rb") as file:
                while block := file.read(2**20):
                    digest.update(block)
            if digest.hexdigest() != entry["sha256"]:
                raise FolderError(f"{self.folder / name}: damaged, its content has changed; delete {self.folder}")

    def release(self) -> None:
        """Give back the memory of the pages read so far; they are read again when asked for."""
        for side in SIDES:
            release(self.tokens(side))
            release(self.offsets(side))
        release(self.source_lengths)
        release(self.target_lengths)

    @cached_property
    def _source_tokens(self) -> NDArray[Any]:
        return self._open("source", "tokens")

    @cached_property
    def _target_tokens(self) -> NDArray[Any]:
        return self._open("target", "tokens")

    @cached_property
    def _source_offsets(self) -> NDArray[np.int64]:
        return self._open("source", "offsets")

    @cached_property
    def _target_offsets(self) -> NDArray[np.int64]:
        return self._open("target", "offsets")

    def _sentence(self, side: Side, index: int) -> NDArray[np.int64]:
        if not 0 <= index < len(self):
            raise IndexError(f"pair {index} of {len(self)}")
        start, end = self.offsets(side)[index : index + 2]
        return self.tokens(side)[start:end].astype(np.int64)

    def _open(self, side: Side, kind: str) -> NDArray[Any]:
        dtype = _KINDS.get(kind) or _token_type(self.manifest["vocabulary"][side])
        return mapped(self.folder / f"{side}.{kind}", dtype)


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


def open_store(folder: Path, key: Mapping[str, Any]) -> TokenStore | None:
    """Open the store that `key` describes; None when there is none, or one of another key: build it then."""
    try:
        manifest = json.loads((folder / _MANIFEST).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError):
        raise FolderError(f"{folder / _MANIFEST}: cannot be read; delete {folder} to build it again") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT or manifest.get("key") != _plain(key):
        return None
    for name, entry in manifest["files"].items():
        path = folder / name
        size = path.stat().st_size if path.is_file() else 0
        if not path.is_file() or size != entry["bytes"]:
            raise FolderError(f"{path}: damaged, {size} bytes instead of {entry['bytes']}; delete {folder}")
    return TokenStore(folder, manifest)


def build_store(
    folder: Path,
    pairs: Iterable[tuple[str, str]],
    source: Tokenizer,
    target: Tokenizer,
    *,
    key: Mapping[str, Any],
    longest: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> TokenStore:
    """Tokenise `pairs` into `folder`, which appears complete or not at all; an older store there is replaced.

    Pairs with a side of more than `longest` tokens are dropped and counted. `progress` hears how many pairs were read.
    Memory does not grow with the corpus.
    """
    unfinished = folder.with_name(f"{folder.name}.tmp-{os.getpid()}")
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        unfinished.mkdir()
        try:
            manifest = _fill(unfinished, pairs, (source, target), longest, progress)
            manifest["key"] = _plain(key)
            _write_manifest(unfinished, manifest)
            if folder.exists():
                folder.rename(folder.with_name(f"{folder.name}.tmp-{os.getpid()}-old"))
            unfinished.rename(folder)
            _sync_folder(folder.parent)
        finally:
            _sweep(folder)
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
    pairs: Iterable[tuple[str, str]],
    tokenizers: tuple[Tokenizer, Tokenizer],
    longest: int | None,
    progress: Callable[[int], None] | None,
) -> dict[str, Any]:
    read = kept = 0
    with ExitStack() as stack:
        writers = [_Writer(folder, side, each.size, stack) for side, each in zip(SIDES, tokenizers, strict=True)]
        for chunk in _chunks(pairs):
            encoded = [each.encode(texts) for each, texts in zip(tokenizers, zip(*chunk, strict=True), strict=True)]
            read += len(chunk)
            if longest is not None:
                both = [pair for pair in zip(*encoded, strict=True) if max(map(len, pair)) <= longest]
                encoded = [[pair[side] for pair in both] for side in (0, 1)]
            kept += len(encoded[0])
            for writer, sentences in zip(writers, encoded, strict=True):
                writer.add(sentences)
            if progress is not None:
                progress(read)
        files = writers[0].finish() | writers[1].finish()
    counts = {"pairs": kept, "dropped": read - kept, "tokens": [writer.count for writer in writers]}
    vocabulary = {side: each.size for side, each in zip(SIDES, tokenizers, strict=True)}
    return {"format": FORMAT, **counts, "vocabulary": vocabulary, "files": files}


def _chunks(pairs: Iterable[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    iterator = iter(pairs)
    while chunk := list(islice(iterator, _CHUNK)):
        yield chunk


def _token_type(vocabulary: int) -> np.dtype[Any]:
    return np.dtype("<u2") if vocabulary < 2**16 else np.dtype("<u4")


def _plain(key: Mapping[str, Any]) -> Any:
    """The key as it reads back from JSON."""
    return json.loads(json.dumps(key, default=str))


def _write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    with (folder / _MANIFEST).open("w", encoding="utf-8") as file:
        json.dump(manifest, file, indent=2, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sweep(folder: Path) -> None:
    """Remove what builds of this process, or of processes that are gone, have left behind."""
    prefix = f"{folder.name}.tmp-"
    for leftover in folder.parent.iterdir():
        if leftover.name.startswith(prefix) and abandoned(leftover.name.removeprefix(prefix).removesuffix("-old")):
            shutil.rmtree(leftover, ignore_errors=True)


def abandoned(owner: str) -> bool:
    """Whether the process of that number is this one, or gone."""
    if not owner.isdecimal() or int(owner) == os.getpid():
        return owner.isdecimal()
    try:
        os.kill(int(owner), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        return False  # it runs, as another user
    return False

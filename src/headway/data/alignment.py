"""Word alignments of a corpus as links between tokens, of which only what a batch needs is read."""

import hashlib
import json
import os
import re
import shutil
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from headway.data.links import parsed
from headway.data.pairs import Pair
from headway.data.store import described, owner, plain, sweep, writing
from headway.data.tokenizer import JsonTokenizer, Tokenizer
from headway.disk import sync
from headway.errors import FolderError
from headway.folders import sha256

FORMAT = 1
"""Raised whenever an alignment written before could no longer be read."""

_CHUNK = 4096
_MANIFEST = "alignment.json"
_LINKS, _OFFSETS = np.dtype("<u4"), np.dtype("<i8")


class Alignment:
    """Which tokens of every stored pair are linked, read from disk as they are asked for."""

    def __init__(self, folder: Path, manifest: Mapping[str, Any]) -> None:
        self.folder = folder
        self.manifest = manifest
        self._descriptors = {name: os.open(folder / name, os.O_RDONLY) for name in ("links", "offsets")}
        for descriptor in self._descriptors.values():
            weakref.finalize(self, os.close, descriptor)

    def __len__(self) -> int:
        return int(self.manifest["pairs"])

    def mask(self, pairs: NDArray[np.int64], targets: int, sources: int) -> NDArray[np.bool_]:
        """Which source tokens each target token of the pairs is linked to, as `[pairs, targets, sources]`."""
        mask = np.zeros((len(pairs), targets, sources), dtype=np.bool_)
        for row, pair in enumerate(pairs.tolist()):
            begin, end = self._read("offsets", _OFFSETS, pair, pair + 2).tolist()
            links = self._read("links", _LINKS, begin, end)
            mask[row, links >> 16, links & 0xFFFF] = True
        return mask

    def verify(self) -> None:
        """Read every file and compare it with the digest taken when it was written."""
        for name, digest in self.manifest["files"].items():
            if sha256(self.folder / name) != digest:
                raise FolderError(f"{self.folder / name}: damaged, its content has changed; delete {self.folder}")

    def _read(self, name: str, kind: np.dtype[Any], start: int, stop: int) -> NDArray[Any]:
        content = os.pread(self._descriptors[name], (stop - start) * kind.itemsize, start * kind.itemsize)
        if len(content) != (stop - start) * kind.itemsize:
            raise FolderError(f"{self.folder / name}: damaged or changed while in use; delete {self.folder}")
        return np.frombuffer(content, kind)


def open_alignment(folder: Path, key: Mapping[str, Any]) -> Alignment | None:
    """Open the alignment that `key` describes; None when there is none, or one of another key: build it then."""
    manifest = described(folder / _MANIFEST, FORMAT, key)
    return None if manifest is None else Alignment(folder, manifest)


def build_alignment(
    folder: Path,
    pairs: Iterable[Pair],
    source: Tokenizer,
    target: Tokenizer,
    *,
    key: Mapping[str, Any],
    longest: int | None,
    progress: Callable[[int], None] = lambda _: None,
) -> Alignment:
    """Write the links between the tokens of `pairs` into `folder`, which appears complete or not at all.

    Pairs with a side of more than `longest` tokens, tags included, are left out, as they are of the token store.
    """

    def codes() -> Iterator[NDArray[Any]]:
        for read, chunk in _chunks(pairs):
            yield from _linked_tokens(chunk, source, target, longest)
            progress(read)

    return write_alignment(folder, codes(), key=key)


def write_alignment(folder: Path, codes: Iterable[NDArray[Any]], *, key: Mapping[str, Any]) -> Alignment:
    """Write the links of every pair into `folder`, which appears complete or not at all.

    A link is one number: the place of the target token above the sixteen bits of the source token's.
    """
    unfinished = folder.with_name(f"{folder.name}.tmp-{owner()}")
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        sweep(folder)
        unfinished.mkdir()
        try:
            manifest = {"format": FORMAT, "key": plain(key)}
            with (unfinished / "links").open("wb") as links, (unfinished / "offsets").open("wb") as offsets:
                written = _Writer(links, offsets)
                for each in codes:
                    written.add(each.astype(_LINKS, copy=False))
                manifest |= {"pairs": written.pairs, "files": written.finish()}
            with (unfinished / _MANIFEST).open("w", encoding="utf-8") as file:
                json.dump(manifest, file)
                file.flush()
                os.fsync(file.fileno())
            shutil.rmtree(folder, ignore_errors=True)
            unfinished.rename(folder)
            sync(folder.parent)
        finally:
            sweep(folder)
    return Alignment(folder, manifest)


class _Writer:
    """The two files being written, with their digests: links, and where those of every pair begin."""

    def __init__(self, links: BinaryIO, offsets: BinaryIO) -> None:
        self.files = {"links": links, "offsets": offsets}
        self.digests = {name: hashlib.sha256() for name in self.files}
        self.pairs = self.count = 0
        self._write("offsets", np.zeros(1, _OFFSETS))

    def add(self, codes: NDArray[Any]) -> None:
        self.pairs += 1
        self.count += len(codes)
        self._write("links", codes)
        self._write("offsets", np.array([self.count], _OFFSETS))

    def finish(self) -> dict[str, str]:
        for file in self.files.values():
            file.flush()
            os.fsync(file.fileno())
        return {name: digest.hexdigest() for name, digest in self.digests.items()}

    def _write(self, name: str, values: NDArray[Any]) -> None:
        content = values.tobytes()
        self.files[name].write(content)
        self.digests[name].update(content)


def words_of_tokens(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """The number of the word that each token of each text stands in, as white space divides it; -1 for blanks."""
    if isinstance(tokenizer, JsonTokenizer):
        encoded = tokenizer.backend.encode_batch(list(texts), add_special_tokens=False)
        ends = [[end for _, end in encoding.offsets] for encoding in encoded]
        return [_words_at(text, places) for text, places in zip(texts, ends, strict=True)]
    shown = [[piece for _, piece in tokenizer.pieces(text)] for text in texts]
    return [_words_at("".join(each), np.cumsum([len(piece) for piece in each]).tolist()) for each in shown]


def _words_at(text: str, ends: list[int]) -> list[int]:
    """The word in which the last character of each stretch stands."""
    words = [match.span() for match in re.finditer(r"\S+", text)]
    starts = [start for start, _ in words]
    numbers = [bisect_right(starts, end - 1) - 1 for end in ends]
    return [
        number if number >= 0 and end <= words[number][1] else -1 for number, end in zip(numbers, ends, strict=True)
    ]


def _linked_tokens(
    chunk: list[Pair], source: Tokenizer, target: Tokenizer, longest: int | None
) -> Iterator[NDArray[Any]]:
    """The links between the tokens of every pair, in order."""
    sources = words_of_tokens(source, [pair.source for pair in chunk])
    targets = words_of_tokens(target, [pair.target for pair in chunk])
    for pair, left, right in zip(chunk, sources, targets, strict=True):
        tags = len(pair.tags)
        if longest is not None and max(len(left) + tags, len(right)) > longest:
            continue
        read, made = _places(left), _places(right)
        codes = {
            (place << 16) + other + tags
            for word, translated in parsed(pair.links)
            for place in made.get(translated, ())
            for other in read.get(word, ())
        }
        yield np.array(sorted(codes), _LINKS)


def _places(words: list[int]) -> dict[int, list[int]]:
    """The tokens of every word."""
    found: dict[int, list[int]] = {}
    for place, word in enumerate(words):
        found.setdefault(word, []).append(place)
    return found


def _chunks(pairs: Iterable[Pair]) -> Iterator[tuple[int, list[Pair]]]:
    iterator, read = iter(pairs), 0
    while chunk := list(islice(iterator, _CHUNK)):
        read += len(chunk)
        yield read, chunk

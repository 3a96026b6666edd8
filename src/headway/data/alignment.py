"""Word alignments of a corpus as links between tokens, of which only what a batch needs is read."""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.data.arrays import StoredArray
from headway.data.links import parsed
from headway.data.pairs import Pair
from headway.data.store import open_sealed, seal
from headway.data.tokenizer import JsonTokenizer, Tokenizer
from headway.folders import read_manifest, replace_folder

NAMES = frozenset({"links", "offsets"})
"""The files of an alignment."""

_CHUNK = 4096
_LINKS, _OFFSETS = np.dtype("<u4"), np.dtype("<i8")


class Alignment:
    """Which tokens of every stored pair are linked, read from disk as they are asked for."""

    def __init__(self, folder: Path, manifest: Mapping[str, Any]) -> None:
        self.folder = folder
        self.manifest = manifest
        self._links = StoredArray(folder / "links", _LINKS)
        self._offsets = StoredArray(folder / "offsets", _OFFSETS)

    def __len__(self) -> int:
        return int(self.manifest["pairs"])

    def mask(self, pairs: NDArray[np.int64], targets: int, sources: int) -> NDArray[np.bool_]:
        """Which source tokens each target token of the pairs is linked to, as `[pairs, targets, sources]`."""
        mask = np.zeros((len(pairs), targets, sources), dtype=np.bool_)
        for row, pair in enumerate(pairs.tolist()):
            links = self._links.read(*self._offsets.read(pair, pair + 2).tolist())
            mask[row, links >> 16, links & 0xFFFF] = True
        return mask


def open_alignment(folder: Path, key: Mapping[str, Any]) -> Alignment | None:
    """Open the alignment that `key` describes after verifying it; None where none is whole: build it then."""
    manifest = open_sealed(folder, key)
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
    facts: dict[str, Any] = {"kind": "alignment"}

    def fill(aside: Path) -> None:
        count = pairs = 0
        with (aside / "links").open("wb") as links, (aside / "offsets").open("wb") as offsets:
            offsets.write(np.zeros(1, _OFFSETS).tobytes())
            for pairs, each in enumerate(codes, start=1):  # noqa: B007  # counts them
                count += len(each)
                links.write(each.astype(_LINKS, copy=False).tobytes())
                offsets.write(np.array([count], _OFFSETS).tobytes())
        facts["pairs"] = pairs
        facts["sealed"] = seal(key, facts)

    replace_folder(folder, fill, facts, known=NAMES)
    return Alignment(folder, read_manifest(folder))


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

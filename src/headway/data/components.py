"""What a tokenizer may be made of: known parts of bounded time and memory, whoever wrote the file."""

import base64
import json
import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.errors import DataError

MOST_PARTS = 32
"""Normalizers, say, that one tokenizer may have; a sequence counts as what it holds."""
MOST_GROWTH = 256
"""How many times longer a text may become by all normalizers together, or by all parts of another kind."""
LONGEST_TOKEN = 1024
"""Letters of a token, longer than any that is learnt."""
MOST_ADDED, LONGEST_ADDED = 1 << 16, 1 << 20
"""Tokens beside the model, which are searched for in every text, and their letters together."""
LONGEST_PATTERN = 256
LONGEST_WORD = 256
"""Letters of a word that WordPiece may divide: it takes the square of that."""
LONGEST_KEY, LARGEST_TABLE = 64, 1 << 22
"""Bytes that a table of sentencepiece may replace at once, and bytes it may have."""

_LISTS = {
    "normalizer": "normalizers",
    "pre_tokenizer": "pretokenizers",
    "post_processor": "processors",
    "decoder": "decoders",
}
"""The kinds of parts, and what a sequence of them calls its list."""
_KNOWN: dict[str, dict[str, float]] = {
    "normalizer": {
        "BertNormalizer": 4, "ByteLevel": 2, "Lowercase": 1.5, "NFC": 3, "NFD": 3, "NFKC": 11, "NFKD": 11, "Nmt": 1,
        "Precompiled": 1, "Prepend": 1, "Replace": 1, "Strip": 1, "StripAccents": 1,
    },
    "pre_tokenizer": {
        "BertPreTokenizer": 1, "ByteLevel": 3, "CharDelimiterSplit": 1, "Digits": 1, "Metaspace": 5, "Punctuation": 1,
        "Split": 1, "UnicodeScripts": 1, "Whitespace": 1, "WhitespaceSplit": 1,
    },
    "post_processor": {"BertProcessing": 1, "ByteLevel": 1, "RobertaProcessing": 1, "TemplateProcessing": 1},
    "decoder": {
        "BPEDecoder": 3, "ByteFallback": 1, "ByteLevel": 3, "CTC": 3, "Fuse": 1, "Metaspace": 1, "Replace": 1,
        "Strip": 1, "WordPiece": 2,
    },
}  # fmt: skip
"""How many times longer each makes the bytes of a text at most; what its own settings add is reckoned."""

_CLASS = r"\\[pP]\{\^?[A-Za-z_]{1,20}\}|\\[sSdDwWnrt]|\\[!-/:-@\[-`{-~]"
_LETTER = rf"(?:{_CLASS}|\[\^?(?:{_CLASS}|[^\[\]\\&])+\]|[^\\\[\](){{}}|.*+?^$])"
_CHOICE = rf"(?:{_LETTER}\?)?{_LETTER}{{1,4}}(?:\+|\{{[1-9](?:,\d?)?\}})?(?:{_LETTER}\*)?"
_LINEAR = re.compile(rf"{_CHOICE}(?:\|{_CHOICE}){{0,11}}")
"""A few letters, of which only the last are repeated: what is tried in vain is never long."""
_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_CASED = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_PATTERNS = frozenset(
    {
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        *(
            rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{number}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_BLANKS}"
            for number in (r"\p{N}", r"\p{N}{1,3}")
        ),
        rf"[^\r\n\p{{L}}\p{{N}}]?{_CASED[0]}*{_CASED[1]}+{_ENDINGS}?|[^\r\n\p{{L}}\p{{N}}]?{_CASED[0]}+{_CASED[1]}*"
        rf"{_ENDINGS}?|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_BLANKS}",
        r" ?[^(\s|[.,!?…。，、।۔،])]+",
    }
)
"""Those of GPT-2, Qwen2, Llama 3 (GPT-4), GPT-4o and BLOOM: blanks that one choice tries in vain the last one takes."""

Tree = dict[str, Any]


def checked(content: bytes, where: str) -> str:
    """The text of a `tokenizer.json` as the library will read it, or a `DataError` about the first part to refuse."""
    tree = json.loads(content)
    try:
        _check(tree)
        tree |= {"truncation": None, "padding": None}  # never wanted here
    except _RefusedError as error:
        raise DataError(f"{where}: {error}; use a tokenizer made of ordinary parts") from None
    except (AttributeError, LookupError, TypeError):
        told = "a part is missing or of another kind"
        raise DataError(f"{where}: not a tokenizer.json: {told}; save the tokenizer again") from None
    return json.dumps(tree)


def _check(tree: Tree) -> None:
    for kind in _LISTS:
        _check_parts(kind, [] if tree.get(kind) is None else list(_parts(kind, tree[kind])))
    _check_model(tree["model"])
    added = [str(token["content"]) for token in tree.get("added_tokens") or ()]
    _refuse(len(added) > MOST_ADDED or sum(map(len, added)) > LONGEST_ADDED, "too many added tokens")
    _check_tokens(added)


class _RefusedError(ValueError):
    """What is wrong with a tokenizer."""


def _refuse(problem: bool, told: str) -> None:
    if problem:
        raise _RefusedError(told)


def _parts(kind: str, part: Tree) -> Iterator[Tree]:
    if part.get("type") == "Sequence":
        for each in part[_LISTS[kind]]:
            yield from _parts(kind, each)
    else:
        yield part


def _check_parts(kind: str, parts: list[Tree]) -> None:
    _refuse(len(parts) > MOST_PARTS, f"{len(parts)} parts in its {kind}, more than {MOST_PARTS}")
    growth = 1.0
    for part in parts:
        name = part.get("type")
        if not isinstance(name, str) or name not in _KNOWN[kind]:
            raise _RefusedError(f"its {kind} has an unknown part {str(name)[:40]!r}")
        growth *= _KNOWN[kind][name] * _growth(part, name)
    _refuse(growth > MOST_GROWTH, f"its {kind} makes a text more than {MOST_GROWTH} times longer")


def _growth(part: Tree, name: str) -> float:
    """How many times longer the settings of a part let it make a text; what they must not be is refused."""
    if name in ("Replace", "Split"):
        shortest = _check_pattern(part["pattern"])
        return max(1.0, len(part["content"].encode()) / shortest) if name == "Replace" else 1.0
    if name == "Strip":  # the library fails on a piece that is too short to be cut at its end
        _refuse(part.get("stop", 0) != 0, "its decoder takes letters from the end")
    if name == "Prepend":
        _refuse(not part["prepend"], "it puts nothing before a text")
        return 1.0 + len(part["prepend"].encode())
    if name == "Precompiled":
        return table_growth(base64.b64decode(part["precompiled_charsmap"], validate=True))
    if name == "TemplateProcessing":
        pieces = [piece.get("Sequence", {}).get("id") for piece in part["single"] + part["pair"]]
        once = pieces[: len(part["single"])]
        _refuse(len(pieces) > MOST_PARTS or once.count("A") != 1 or "B" in once, "its template repeats the text")
    return 1.0


def _check_pattern(pattern: dict[str, str]) -> int:
    """The fewest bytes that a pattern matches; it must be a text, or an expression that takes no more than its turn."""
    ((way, text),) = pattern.items()
    _refuse(not text or len(text) > LONGEST_PATTERN, "an empty or a very long pattern")
    if way == "String":
        return len(text.encode())
    known = text in _PATTERNS or _LINEAR.fullmatch(text)
    _refuse(not known, f"the expression {text[:60]!r} is none of the known ones and may take for ever")
    return 1


def _check_model(model: Tree) -> None:
    entries = model["vocab"]
    if "type" not in model:  # older files leave it out
        others = "WordPiece" if "max_input_chars_per_word" in model else "WordLevel"
        model["type"] = "BPE" if "merges" in model else "Unigram" if isinstance(entries, list) else others
    kind = model["type"]
    vocabulary = {entry[0] for entry in entries} if kind == "Unigram" else set(entries)
    _check_tokens(vocabulary)
    if kind == "Unigram":
        unknown = model.get("unk_id")
        _refuse(not isinstance(unknown, int) or not 0 <= unknown < len(entries), "its model has no unknown token")
    elif kind in ("WordLevel", "WordPiece"):
        _refuse(model.get("unk_token") not in vocabulary, "its model has no unknown token")
        most = model.get("max_input_chars_per_word", 0)
        _refuse(most > LONGEST_WORD, f"it divides words of {most} letters, more than {LONGEST_WORD}")
    elif kind == "BPE":
        unknown = model.get("unk_token")
        _refuse(bool(unknown) and unknown not in vocabulary, "its model has no such unknown token")
        marks = [model.get(name) or "" for name in ("continuing_subword_prefix", "end_of_word_suffix")]
        _check_tokens(marks)
        pairs = (pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"])
        _refuse(not all(pair[1].startswith(marks[0]) for pair in pairs), "a merge without the prefix of its model")
    else:
        raise _RefusedError(f"its model is of an unknown kind {str(kind)[:40]!r}")


def _check_tokens(tokens: Any) -> None:
    longest = max(map(len, tokens), default=0)
    _refuse(longest > LONGEST_TOKEN, f"a token of {longest} letters, more than {LONGEST_TOKEN}")


# Tables of sentencepiece.


def check_pieces(content: bytes, where: str) -> None:
    """Refuse a sentencepiece model with a token that is too long, or a table that makes texts too long."""
    try:
        for field, message in _fields(content):
            if field == 1:
                _refuse(len(message) > 4 * LONGEST_TOKEN, f"a token of more than {LONGEST_TOKEN} letters")
            for inner, table in _fields(message) if field in (3, 5) else ():
                told = f"its normalizer makes a text more than {MOST_GROWTH} times longer"
                _refuse(inner == 2 and bool(table) and table_growth(table) > MOST_GROWTH, told)
    except _RefusedError as error:
        raise DataError(f"{where}: {error}; use a model with ordinary parts") from None


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The number and the content of every field of a protobuf message; empty where it is a number."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        size = 0
        if key & 7 == 0:
            _, place = _varint(message, place)
        elif key & 7 == 2:
            size, place = _varint(message, place)
        else:
            size = {1: 8, 5: 4}.get(key & 7, len(message))
        _refuse(place + size > len(message), "it is not a sentencepiece model")
        yield key >> 3, message[place : place + size] if key & 7 == 2 else b""
        place += size


def _varint(message: bytes, place: int) -> tuple[int, int]:
    for count, byte in enumerate(message[place : place + 10]):
        if byte < 0x80:
            digits = message[place : place + count + 1]
            return sum((digit & 0x7F) << 7 * n for n, digit in enumerate(digits)), place + count + 1
    raise _RefusedError("it is not a sentencepiece model")


def table_growth(table: bytes) -> float:
    """How many times longer a table of sentencepiece makes a text at most.

    It is a trie in a double array (Darts: label in the low byte, bit 8 tells of a value, offset above) and the texts
    that its values point to, each ended by NUL; it is walked through whole, as nobody checks it later.
    """
    size, damaged = int.from_bytes(table[:4], "little"), "a damaged table in its normalizer"
    _refuse(len(table) > LARGEST_TABLE or size % 4 > 0 or not 4 <= size <= len(table) - 4, damaged)
    units: NDArray[np.int64] = np.frombuffer(table[4 : 4 + size], "<u4").astype(np.int64)
    texts = np.frombuffer(table[4 + size :] + b"\0", np.uint8)
    table[4 + size :].decode("utf-8")
    ends, labels, growth = np.flatnonzero(texts == 0), units & 0x800000FF, 1.0
    parents = np.where((labels > 0) & (labels < 256), np.arange(len(units)) ^ labels, -1)
    nodes = _offset(units[:1])
    for depth in range(1, LONGEST_KEY + 1):
        _refuse(bool((nodes | 0xFF).max(initial=0) >= len(units)), damaged)
        children = np.flatnonzero(np.isin(parents, nodes))
        nodes = children ^ _offset(units[children])
        leaves = nodes[units[children] >> 8 & 1 == 1]
        _refuse(bool(leaves.max(initial=0) >= len(units)), damaged)
        values = units[leaves] & 0x7FFFFFFF
        _refuse(bool(values.max(initial=0) >= len(texts)) or bool((texts[values] >> 6 == 2).any()), damaged)
        lengths = ends[np.searchsorted(ends, values)] - values
        growth = max(growth, lengths.max(initial=0) / depth)
        if not nodes.size:
            return float(growth)
    return math.inf


def _offset(units: NDArray[np.int64]) -> NDArray[np.int64]:
    return units >> 10 << ((units & 0x200) >> 6)

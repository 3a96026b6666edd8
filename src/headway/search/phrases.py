"""Phrases in the text of an output, noticed while it is written, however it is cut into tokens."""

import codecs
import unicodedata
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock

import numpy as np
from jaxtyping import Int

PATIENCE = 8
"""A phrase at the end of a text must be part of a longer word within so many tokens."""

State = tuple[int, bytes]
"""Where the reading of a text stands: a node of a `Watch`, and the bytes of a character that is not yet whole."""

FRESH: State = 0, b""
"""Before the first character."""


UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")
"""Scripts that put no space between words, by the names of their characters."""


def within_word(character: str) -> bool:
    """Whether a character is a letter, a digit or a mark on one, in a script that puts spaces between words."""
    if unicodedata.category(character)[0] not in "LMN":
        return False
    return not unicodedata.name(character, "").startswith(UNSPACED)


@lru_cache(maxsize=1 << 12)
def hopeful(pending: bytes) -> bool:
    """Whether some character within words begins with these bytes."""
    if pending[0] > 0xF0:  # no letters lie so far out
        return False
    missing = _missing(pending)
    first = pending[0] & (0x3F >> (len(pending) + missing - 1))
    for byte in pending[1:]:
        first = first << 6 | byte & 0x3F
    return any(map(within_word, map(chr, range(first << 6 * missing, (first + 1) << 6 * missing))))


def _missing(pending: bytes) -> int:
    """How many bytes complete the character."""
    return (2 if pending[0] < 0xE0 else 3 if pending[0] < 0xF0 else 4) - len(pending)


def read(pending: bytes, more: bytes) -> tuple[str, bytes]:
    """The characters that these bytes make up, and those bytes that have only begun one."""
    with suppress(UnicodeDecodeError):
        return (pending + more).decode(), b""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.setstate((pending, 0))
    return decoder.decode(more), decoder.getstate()[0]


@dataclass(frozen=True)
class Spelled:
    """A vocabulary laid out so that all its tokens can be read at once."""

    whole: Int[np.ndarray, " tokens"]
    """The tokens that hold whole characters, the longest first."""
    columns: tuple[Int[np.ndarray, " _tokens"], ...]
    """The first characters of those tokens, then the second ones of those that have two, and so on."""
    characters: str
    """What the numbers in `columns` stand for."""
    partial: tuple[int, ...]
    """The tokens that hold parts of characters."""


@lru_cache(maxsize=4)
def spelled(surfaces: tuple[bytes, ...]) -> Spelled:
    """Lay the texts of all tokens out."""
    texts = [read(b"", surface) for surface in surfaces]
    partial = tuple(token for token, (text, rest) in enumerate(texts) if rest or "\ufffd" in text)
    without = set(partial)
    order = sorted(
        (token for token in range(len(texts)) if token not in without), key=lambda each: -len(texts[each][0])
    )
    lengths = np.array([len(texts[token][0]) for token in order], dtype=np.int64)
    joined = "".join(texts[token][0] for token in order)
    codes = np.frombuffer(joined.encode("utf-32-le"), dtype=np.uint32)
    unique, numbers = np.unique(codes, return_inverse=True)
    starts = np.cumsum(lengths) - lengths
    columns = [numbers[starts[lengths > place] + place] for place in range(lengths.max(initial=0))]
    return Spelled(np.array(order, dtype=np.int64), tuple(columns), "".join(map(chr, unique)), partial)


@dataclass(frozen=True)
class Reading:
    """What the tokens of a vocabulary would do to a text."""

    complete: Int[np.ndarray, " _tokens"]
    """The tokens that would put a phrase into it."""
    opening: dict[State, Int[np.ndarray, " _tokens"]]
    """The others after which it would end in a phrase, by where the reading would then stand."""
    closing: bool
    """There are tokens that would do neither."""


class Watch:
    """An automaton that knows, wherever a text stands, which tokens would put one of the phrases into it.

    A phrase counts as whole words: where it begins or ends with a letter or digit, no letter or digit stands beside it.
    So a phrase at the end of a text is open: the next character decides. Nodes are found as they are needed; a node is
    whether the last character is within a word, and how much of which phrases the text ends in.
    """

    def __init__(self, surfaces: tuple[bytes, ...], phrases: tuple[str, ...]) -> None:
        self.surfaces, self.phrases, self.spelled = surfaces, phrases, spelled(surfaces)
        letters = sorted(set("".join(phrases)))
        self.letters = {letter: kind for kind, letter in enumerate(letters)}
        self.kinds = [*((letter, within_word(letter)) for letter in letters), (None, True), (None, False)]
        """Characters that are told apart: those of the phrases, others within words, and all others."""
        self.starting: dict[str | None, list[int]] = {}
        for number, phrase in enumerate(phrases):
            self.starting.setdefault(phrase[0], []).append(number)
        self.characters = np.array([self._kind(each) for each in self.spelled.characters], dtype=np.int64)
        self.table = np.full((16, len(self.kinds)), -1, dtype=np.int64)
        """By node and kind of character twice the next node, and one more where a phrase is complete."""
        self.nodes: list[tuple[bool, frozenset[tuple[int, int]]]] = []
        self.numbers: dict[tuple[bool, frozenset[tuple[int, int]]], int] = {}
        self.readings: dict[State, Reading] = {}
        self.bytewise = {bytes([byte]) for byte in range(0x80, 0xC0)}.issubset(surfaces)
        """Any character that has begun can be completed."""
        self.lock = Lock()  # searches in several threads may share it
        self._number((False, frozenset()))

    def after(self, state: State, token: int) -> State:
        """Where the reading stands after one more token."""
        with self.lock:
            return self._after(state, token)[0]

    def open(self, state: State) -> bool:
        """Whether the text would hold a phrase if it ended here."""
        return any(length == len(self.phrases[phrase]) for phrase, length in self.nodes[state[0]][1])

    def impossible(self, state: State, left: int) -> Int[np.ndarray, " tokens"]:
        """The tokens that must not come next where at most `left` may: they would put a phrase into the text.

        A token that would leave the text open is among them if too few could follow to make another word of it.
        """
        with self.lock:
            reading = self._reading(state)
            after = min(left, PATIENCE) - 1
            stuck = [tokens for end, tokens in reading.opening.items() if not self._escapes(end, after)]
            return np.concatenate((reading.complete, *stuck))

    def _escapes(self, state: State, left: int) -> bool:
        """Whether so many more tokens can take the text to where it may end."""
        if not self.open(state):
            return True
        if state[1]:
            return self.bytewise and hopeful(state[1]) and _missing(state[1]) <= left
        if left <= 0:
            return False
        reading = self._reading(state)
        return reading.closing or any(self._escapes(end, left - 1) for end in reading.opening if end != state)

    def _reading(self, state: State) -> Reading:
        if state not in self.readings:
            self.readings[state] = self._read_all(state)
        return self.readings[state]

    def _read_all(self, state: State) -> Reading:
        node, pending = state
        first = self._move(node, len(self.kinds) - 1) if pending else 2 * node  # a character that is never whole
        nodes = np.full(len(self.spelled.whole), first >> 1)
        complete = np.full(len(nodes), bool(first & 1))
        for column in self.spelled.columns:
            moves = self._moves(nodes[: len(column)], self.characters[column])
            complete[: len(column)] |= (moves & 1).astype(np.bool_)
            nodes[: len(column)] = moves >> 1
        broken, tokens, nodes = self.spelled.whole[complete].tolist(), self.spelled.whole[~complete], nodes[~complete]
        ends = np.unique(nodes).tolist()
        opening = {(end, b""): tokens[nodes == end].tolist() for end in ends if self.open((end, b""))}
        closing = len(opening) < len(ends)
        for token in self.spelled.partial:
            end, completes = self._after(state, token)
            if completes:
                broken.append(token)
            elif self.open(end):
                opening.setdefault(end, []).append(token)
            else:
                closing = True
        opened = {end: np.array(each, dtype=np.int64) for end, each in opening.items()}
        return Reading(np.array(broken, dtype=np.int64), opened, closing)

    def _after(self, state: State, token: int) -> tuple[State, bool]:
        """Where the reading stands after a token, and whether that has completed a phrase."""
        node, complete = state[0], False
        text, pending = read(state[1], self.surfaces[token])
        for kind in map(self._kind, text):
            move = self._move(node, kind)
            node, complete = move >> 1, complete or bool(move & 1)
        return (node, pending), complete

    def _kind(self, character: str) -> int:
        return self.letters.get(character, len(self.letters) + (not within_word(character)))

    def _moves(
        self, nodes: Int[np.ndarray, " tokens"], kinds: Int[np.ndarray, " tokens"]
    ) -> Int[np.ndarray, " tokens"]:
        """The entries of `table`, which are found where they are missing."""
        moves = self.table[nodes, kinds]
        missing = moves < 0
        if missing.any():
            for node, kind in set(zip(nodes[missing].tolist(), kinds[missing].tolist(), strict=True)):
                self._move(node, kind)
            moves = self.table[nodes, kinds]
        return moves

    def _move(self, node: int, kind: int) -> int:
        if self.table[node, kind] < 0:
            self.table[node, kind] = self._found(node, kind)
        return int(self.table[node, kind])

    def _found(self, node: int, kind: int) -> int:
        """Twice the node after one more character, and one more where that completes a phrase."""
        inside, begun = self.nodes[node]
        letter, word = self.kinds[kind]
        complete = not word and self.open((node, b""))
        grown = {(each, length + 1) for each, length in begun if self.phrases[each][length : length + 1] == letter}
        if not (inside and word):
            grown |= {(each, 1) for each in self.starting.get(letter, ())}
        if not word:  # the phrases that end with this character wait for no other
            ended = {(each, length) for each, length in grown if length == len(self.phrases[each])}
            complete, grown = complete or bool(ended), grown - ended
        return 2 * self._number((word, frozenset(grown))) + complete

    def _number(self, node: tuple[bool, frozenset[tuple[int, int]]]) -> int:
        if node not in self.numbers:
            self.numbers[node] = len(self.nodes)
            self.nodes.append(node)
            if len(self.nodes) > len(self.table):
                self.table = np.concatenate((self.table, np.full_like(self.table, -1)))
        return self.numbers[node]


@lru_cache(maxsize=16)
def watch(surfaces: tuple[bytes, ...], phrases: tuple[str, ...]) -> Watch:
    """The automaton for these phrases in texts of this vocabulary; what it has found is kept from search to search."""
    return Watch(surfaces, phrases)

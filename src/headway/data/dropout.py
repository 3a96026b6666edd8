"""BPE-dropout: a different segmentation every time a sentence is seen (Provilkov et al. 2020, algorithm 1)."""

import heapq
import json
import math
import random
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from headway.data.tokenizer import JsonTokenizer, Tokenizer
from headway.errors import ConfigError

_CACHED_WORDS = 65_536
_LONGEST_CACHED = 64
_FOREVER = 2**62

Chance = random.Random | np.random.Generator
Candidate = tuple[int, int, int]
"""A merge that could be made: its rank, the place of its left symbol, the symbol it makes."""


@dataclass(frozen=True, slots=True)
class _Word:
    letters: list[int]
    candidates: list[Candidate]
    """The merges possible at first, as a heap."""
    whole: list[int]
    """The segmentation when nothing is dropped."""


class BpeDropout:
    """Encodes with each possible merge left out with `probability` at every step; at 0, just as the tokenizer does."""

    def __init__(self, tokenizer: Tokenizer, probability: float) -> None:
        if not 0.0 <= probability < 1.0:
            raise ConfigError(f"tokenizer.dropout: {probability} is not a probability below 1; try 0.1")
        self.probability = probability
        self.tokenizer = _byte_level(tokenizer)
        model = json.loads(self.tokenizer.backend.to_str())["model"]
        self._vocabulary: dict[str, int] = model["vocab"]
        self._merges: dict[tuple[int, int], tuple[int, int]] = {}
        for rank, (left, right) in enumerate(_pairs(model["merges"])):
            pair = self._vocabulary[left], self._vocabulary[right]
            self._merges[pair] = rank, self._vocabulary[left + right]
        self._words: dict[str, _Word] = {}

    def encode(self, text: str, generator: Chance) -> list[int]:
        """The ids of one text; they decode to the same text, and the same generator state gives the same ids."""
        backend = self.tokenizer.backend
        if backend.normalizer is not None:
            text = backend.normalizer.normalize_str(text)
        result: list[int] = []
        kept = self._kept(generator)
        for spelling, _ in backend.pre_tokenizer.pre_tokenize_str(text):
            word = self._words.get(spelling) or self._word(spelling)
            merges = len(word.letters) - len(word.whole)
            if merges <= kept:  # most words: no merge of this one is dropped
                result += word.whole
                kept -= merges
            else:
                ids, kept = self._segment(word.letters, word.candidates, kept, generator)
                result += ids
        return result

    def _kept(self, generator: Chance) -> int:
        """How many candidates in a row are kept before one is dropped: the gap between events of a fixed chance."""
        if self.probability == 0.0:
            return _FOREVER
        return math.floor(math.log(1.0 - generator.random()) / math.log1p(-self.probability))

    def _word(self, spelling: str) -> _Word:
        """Prepare a word, and keep it for the next time."""
        letters = [self._vocabulary[letter] for letter in spelling]
        pairs = [(place, self._merges.get(pair)) for place, pair in enumerate(pairwise(letters))]
        heap = sorted((merge[0], place, merge[1]) for place, merge in pairs if merge)
        whole, _ = self._segment(letters, heap, _FOREVER, random.Random(0))
        word = _Word(letters, heap, whole)
        if len(letters) <= _LONGEST_CACHED:
            if len(self._words) >= _CACHED_WORDS:
                self._words.clear()
            self._words[spelling] = word
        return word

    def _segment(
        self, letters: list[int], candidates: list[Candidate], kept: int, generator: Chance
    ) -> tuple[list[int], int]:
        """Make the best merge that is not dropped, until all are; the first `kept` candidates looked at are not.

        Candidates come in order of rank, so deciding on one at a time until the first that stays is the same as
        deciding on all of them and taking the best; those passed over take part again in the next step.
        """
        merges = self._merges
        symbols, heap, passed = letters.copy(), candidates.copy(), list[Candidate]()
        end = len(symbols)
        following, previous = list(range(1, end + 1)), list(range(-1, end - 1))
        while heap:
            rank, place, made = candidate = heapq.heappop(heap)
            right = following[place]
            if symbols[place] < 0 or right >= end or merges.get((symbols[place], symbols[right])) != (rank, made):
                continue  # one of its symbols has become part of another
            if kept == 0:
                passed.append(candidate)
                kept = self._kept(generator)
                continue
            kept -= 1
            symbols[place], symbols[right] = made, -1
            after, before = following[right], previous[place]
            following[place] = after
            if after < end:
                previous[after] = place
                if merge := merges.get((made, symbols[after])):
                    heapq.heappush(heap, (merge[0], place, merge[1]))
            if before >= 0 and (merge := merges.get((symbols[before], made))):
                heapq.heappush(heap, (merge[0], before, merge[1]))
            for candidate in passed:
                heapq.heappush(heap, candidate)
            passed.clear()
        return [symbol for symbol in symbols if symbol >= 0], kept


def _byte_level(tokenizer: Tokenizer) -> JsonTokenizer:
    if isinstance(tokenizer, JsonTokenizer) and tokenizer.byte_level and tokenizer.backend.pre_tokenizer is not None:
        model = json.loads(tokenizer.backend.to_str())["model"]
        plain = not model.get("continuing_subword_prefix") and not model.get("end_of_word_suffix")
        if model["type"] == "BPE" and plain and not model.get("ignore_merges"):
            return tokenizer
    raise ConfigError("tokenizer.dropout: only byte-level BPE has merges to leave out; set it to 0")


def _pairs(merges: list[list[str] | str]) -> list[tuple[str, str]]:
    """Merges as pairs; older files write them as one string with a space."""
    split = [merge.split(" ") if isinstance(merge, str) else merge for merge in merges]
    return [(left, right) for left, right in split]

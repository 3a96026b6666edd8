"""Vocabularies that grow: tokens learnt from a new corpus stand behind the old ones, whose ids never change."""

import heapq
import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import tokenizers

from headway.data.tokenizer import TAG, JsonTokenizer, Tokenizer
from headway.errors import ConfigError

MOST_WORDS = 500_000
"""Different words that are counted at once; beyond it the rarest are forgotten, so that memory stays bounded."""
LONGEST_WORD = 256
"""Letters of a word that is learnt from; no token needs more."""
RAREST = 2
"""A pair of tokens seen less often is not worth a token."""

_SYMBOL = {"special": True, "normalized": False, "single_word": False, "lstrip": False, "rstrip": False}

Pair = tuple[int, int]


def extend(tokenizer: Tokenizer, texts: Iterable[str], count: int, tags: Iterable[str] = ()) -> Tokenizer:
    """A tokenizer with the tags it lacked and at most `count` tokens learnt from `texts`; itself if that is nothing.

    A text is segmented as before, and then neighbours are joined into new tokens where these were learnt: taking the
    new tokens apart gives the old segmentation.
    """
    lacking = [tag for tag in tags if tag not in tokenizer.tags]
    if count == 0 and not lacking:
        return tokenizer
    known, tree = _extensible(tokenizer)
    vocabulary: dict[str, int] = tree["model"]["vocab"]
    symbols = [{**_SYMBOL, "id": known.size + place, "content": TAG.format(tag)} for place, tag in enumerate(lacking)]
    tree["added_tokens"] += symbols
    for added in tree["added_tokens"]:  # outside the vocabulary they would be given new ids behind the new tokens
        vocabulary.setdefault(added["content"], added["id"])
    size = known.size + len(lacking)
    words = _counted(known.backend, texts) if count else Counter[str]()
    if tree["model"]["type"] == "BPE":
        pairs = _learnt(known.backend, words, vocabulary, size, count)
        tree["model"]["merges"] = _merges(tree) + [list(pair) for pair in pairs]
        new = [left + right for left, right in pairs]
    else:
        unknown = sorted((word for word in words if word not in vocabulary), key=lambda word: (-words[word], word))
        new = unknown[:count]
    vocabulary.update({token: size + place for place, token in enumerate(new)})
    return JsonTokenizer(tokenizers.Tokenizer.from_str(json.dumps(tree)))


def pieces_of_new(old: Tokenizer, new: Tokenizer) -> list[list[int]]:
    """For every token that `new` has more than `old`, the old tokens it is made of; words and tags were unknown."""
    if new.size == old.size:
        return []
    _, tree = _extensible(new)
    vocabulary = tree["model"]["vocab"]
    pieces: dict[int, list[int]] = {}
    for left, right in _merges(tree):
        made = vocabulary[left + right]
        if made >= old.size:
            both = vocabulary[left], vocabulary[right]
            pieces[made] = [piece for token in both for piece in pieces.get(token, [token])]
    return [pieces.get(token, [old.unknown]) for token in range(old.size, new.size)]


def _extensible(tokenizer: Tokenizer) -> tuple[JsonTokenizer, dict[str, Any]]:
    """The tokenizer and its JSON, if it is of a kind that can grow."""
    if isinstance(tokenizer, JsonTokenizer) and tokenizer.backend.pre_tokenizer is not None:
        tree: dict[str, Any] = json.loads(tokenizer.backend.to_str())
        model = tree["model"]
        marked = any(model.get(name) for name in ("continuing_subword_prefix", "end_of_word_suffix", "ignore_merges"))
        if model["type"] == "WordLevel" or (model["type"] == "BPE" and tokenizer.byte_level and not marked):
            return tokenizer, tree
    raise ConfigError("start.extend: only byte-level BPE, characters and words can grow; set it to 0, without new tags")


def _merges(tree: dict[str, Any]) -> list[list[str]]:
    """The merges as pairs; older files write them as one string with a space."""
    return [merge.split(" ") if isinstance(merge, str) else merge for merge in tree["model"].get("merges", ())]


def _counted(backend: Any, texts: Iterable[str]) -> Counter[str]:
    """How often every word occurs, as the tokenizer divides text into words."""
    words: Counter[str] = Counter()
    fewest = 1
    for text in texts:
        normal = text if backend.normalizer is None else backend.normalizer.normalize_str(text)
        words.update(word for word, _ in backend.pre_tokenizer.pre_tokenize_str(normal) if len(word) <= LONGEST_WORD)
        while len(words) > MOST_WORDS:
            words = Counter({word: count for word, count in words.items() if count > fewest})
            fewest += 1
    return words


def _learnt(
    backend: Any, words: Counter[str], vocabulary: dict[str, int], size: int, count: int
) -> list[tuple[str, str]]:
    """The merges that shorten the words most, one after the other (Sennrich et al. 2016), as spelled."""
    spelled = {token: text for text, token in vocabulary.items()}
    segmented = {word: [token.id for token in backend.model.tokenize(word)] for word in words}
    whole = [word for word, ids in segmented.items() if "".join(spelled[token] for token in ids) == word]
    merger = _Merger([segmented[word] for word in whole], [words[word] for word in whole])
    made: list[tuple[str, str]] = []
    taken = set(vocabulary)
    while len(made) < count and (pair := merger.best()) is not None:
        left, right = spelled[pair[0]], spelled[pair[1]]
        if left + right in taken:  # a control symbol, or an old token that is spelled in another way
            merger.forget(pair)
            continue
        token = size + len(made)
        spelled[token] = left + right
        taken.add(left + right)
        made.append((left, right))
        merger.merge(pair, token)
    return made


class _Merger:
    """Words as tokens, and how often which token follows which."""

    def __init__(self, words: list[list[int]], counts: list[int]) -> None:
        self.words = words
        self.counts = counts
        self.pairs: Counter[Pair] = Counter()
        self.places: defaultdict[Pair, set[int]] = defaultdict(set)
        self.forgotten: set[Pair] = set()
        for place in range(len(words)):
            self._add(place)
        self.heap = [(-count, pair) for pair, count in self.pairs.items()]
        heapq.heapify(self.heap)

    def best(self) -> Pair | None:
        """The most frequent pair, the one of lower ids among equals; None when all that are left are rare."""
        while self.heap:
            count, pair = self.heap[0]
            now = self.pairs[pair]
            if pair in self.forgotten or now < RAREST:
                heapq.heappop(self.heap)
            elif now != -count:
                heapq.heapreplace(self.heap, (-now, pair))
            else:
                return pair
        return None

    def forget(self, pair: Pair) -> None:
        """Never offer a pair again."""
        self.forgotten.add(pair)

    def merge(self, pair: Pair, token: int) -> None:
        """Put `token` in the place of the pair in every word."""
        touched: set[Pair] = set()
        for place in sorted(self.places.pop(pair)):
            for each in pairwise(self.words[place]):
                self.pairs[each] -= self.counts[place]
            self.words[place] = _joined(self.words[place], pair, token)
            touched.update(self._add(place))
        for each in touched:
            heapq.heappush(self.heap, (-self.pairs[each], each))

    def _add(self, place: int) -> list[Pair]:
        found = list(pairwise(self.words[place]))
        for pair in found:
            self.pairs[pair] += self.counts[place]
            self.places[pair].add(place)
        return found


def _joined(word: list[int], pair: Pair, token: int) -> list[int]:
    result: list[int] = []
    place = 0
    while place < len(word):
        together = tuple(word[place : place + 2]) == pair
        result.append(token if together else word[place])
        place += 2 if together else 1
    return result

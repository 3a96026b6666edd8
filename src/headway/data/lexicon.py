"""Which target tokens a source may become, so that decoding need not look at the whole vocabulary."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from headway.data.model_one import IdPairs, learn_translations, ranked
from headway.data.text import refuse_streams
from headway.data.tokenizer import Tokenizer
from headway.disk import write_output
from headway.errors import FolderError

FORMAT = 1
"""Raised whenever a file written before could no longer be read."""

_FACTS = "headway.lexicon"
_AGAIN = "make it again by 'headway shortlist'"
_UNREADABLE = (
    SafetensorError, OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError,
)  # fmt: skip
_IDS = np.dtype(np.int32)


class Coverage(NamedTuple):
    """How much of the targets of some pairs the lexicon allows for their sources."""

    pairs: int
    tokens: int
    """Target tokens."""
    covered: int
    """Those that are allowed for their source."""
    allowed: int
    """Tokens allowed for a source, summed over the pairs."""


@dataclass(frozen=True, eq=False)
class Lexicon:
    """For every source token its likeliest translations, and the target tokens that are always allowed."""

    candidates: Int[np.ndarray, "source candidates"]
    """By source token what it may become beside `always`, the likeliest first; -1 where there are fewer."""
    always: Int[np.ndarray, " tokens"]
    """The most frequent target tokens, by id."""
    target_size: int
    """Tokens of the target vocabulary."""
    vocabularies: str = ""
    """What tells the vocabularies of the ids from others, as `vocabularies` gives it; empty where that is not known."""

    @classmethod
    def learn(
        cls,
        pairs: IdPairs,
        *,
        source_size: int,
        target_size: int,
        candidates: int = 100,
        frequent: int = 200,
        iterations: int = 5,
        progress: Callable[[int], None] = lambda _: None,
    ) -> "Lexicon":
        """Learn from the ids of sentence pairs, by IBM model 1; `progress` hears of every iteration that is done."""
        found = learn_translations(
            pairs, source_size=source_size, target_size=target_size, iterations=iterations, progress=progress
        )
        occurring = min(frequent, np.count_nonzero(found.frequencies))
        always = np.sort(np.argsort(-found.frequencies, kind="stable")[:occurring]).astype(_IDS)
        rare = ~np.isin(found.targets, always)  # what is allowed anyway need not be a candidate
        sources, targets = found.sources[rare], found.targets[rare]
        order, ranks = ranked(sources, found.probabilities[rare])
        order, ranks = order[ranks < candidates], ranks[ranks < candidates]
        table = np.full((source_size, int(ranks.max(initial=-1)) + 1), -1, _IDS)
        table[sources[order], ranks] = targets[order]
        return cls(table, always, target_size)

    @property
    def source_size(self) -> int:
        """Tokens of the source vocabulary."""
        return len(self.candidates)

    def allowed(self, source: Sequence[int]) -> Int[np.ndarray, " tokens"]:
        """The target tokens that a source may become, each once and by id; control symbols are the caller's to add."""
        found = self.candidates[np.asarray(source, np.int64)]
        return np.unique(np.concatenate((self.always, found[found >= 0])))

    def coverage(self, pairs: IdPairs) -> Coverage:
        """Count how many target tokens of the pairs are allowed for their sources."""
        total = Coverage(0, 0, 0, 0)
        marked = np.zeros(self.target_size, np.bool_)
        for source, target in pairs:
            allowed = self.allowed(source)
            marked[:] = False
            marked[allowed] = True
            covered = int(marked[np.asarray(target, np.int64)].sum())
            counts = Coverage(1, len(target), covered, len(allowed))
            total = Coverage(*map(sum, zip(total, counts, strict=True)))
        return total

    def save(self, path: Path, *, overwrite: bool = False) -> None:
        """Write a safetensors file that appears when it is whole."""
        facts = {"format": FORMAT, "target_size": self.target_size, "vocabularies": self.vocabularies}
        told = {_FACTS: json.dumps(facts)}  # a single one: the library writes several in any order
        content = save({"always": self.always, "candidates": self.candidates}, told)
        write_output(path, content, overwrite=overwrite, option="--output")

    @classmethod
    def load(cls, path: Path) -> "Lexicon":
        """Read what `save` wrote; any other file, or one whose ids are out of range, is a `FolderError`."""
        refuse_streams(path)
        try:
            with safe_open(path, framework="numpy") as file:
                facts = json.loads((file.metadata() or {}).get(_FACTS, "{}"))
                if facts.get("format") != FORMAT or set(file.keys()) != {"always", "candidates"}:
                    raise FolderError(f"{path}: is not a shortlist that this Headway reads; {_AGAIN}")
                always, candidates = file.get_tensor("always"), file.get_tensor("candidates")
                size, told = int(facts["target_size"]), str(facts["vocabularies"])
        except _UNREADABLE as error:
            reason = " ".join(str(error).split())[:120]
            raise FolderError(f"{path}: cannot be read as a shortlist ({reason}); {_AGAIN}") from None
        if (always.dtype, always.ndim, candidates.dtype, candidates.ndim) != (_IDS, 1, _IDS, 2):
            raise FolderError(f"{path}: its tables are not tables of ids; {_AGAIN}")
        least = min(int(always.min(initial=0)), int(candidates.min(initial=-1)) + 1)
        most = max(int(always.max(initial=-1)), int(candidates.max(initial=-1)))
        if least < 0 or most >= size or size > np.iinfo(_IDS).max:
            raise FolderError(f"{path}: holds ids outside a vocabulary of {size} tokens; {_AGAIN}")
        return cls(candidates, always, size, told)

    def check(self, source: Tokenizer, target: Tokenizer, where: str) -> None:
        """Raise a `FolderError` about the file `where` unless the ids are those of these tokenizers."""
        fits = (self.source_size, self.target_size) == (source.size, target.size)
        if not fits or self.vocabularies not in ("", vocabularies(source, target)):
            raise FolderError(f"{where}: was made for another vocabulary than that of the model; {_AGAIN}")


def vocabularies(source: Tokenizer, target: Tokenizer) -> str:
    """What tells the vocabularies of two tokenizers from others: a digest of what every id spells."""
    first = _digest(source)
    return f"{first} {first if source is target else _digest(target)}"


def _digest(tokenizer: Tokenizer) -> str:
    spelled = "\0".join(tokenizer.spelling(token) for token in range(tokenizer.size))
    return hashlib.sha256(spelled.encode("utf-8", "surrogatepass")).hexdigest()

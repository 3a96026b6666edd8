"""What is asked of a search: sources, and what their outputs must and must not hold."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from headway.search.config import DecodingConfig


@dataclass(frozen=True)
class Symbols:
    """What a search must know of the vocabulary."""

    start: int
    end: int
    """Of the target; of the source too, unless `source_end` says otherwise."""
    forbidden: tuple[int, ...] = ()
    """Tokens that no output may hold."""
    source_end: int | None = None
    surfaces: tuple[bytes, ...] = field(default=(), repr=False, hash=False)
    """The text each token adds to an output, by id; needed where phrases are banned."""


@dataclass(frozen=True)
class Request:
    """One source to decode, and what is asked of its output."""

    source: tuple[int, ...]
    """Tokens without an end symbol."""
    prefix: tuple[int, ...] = ()
    """How the output must begin."""
    required: tuple[tuple[int, ...], ...] = ()
    """Phrases the output must hold."""
    banned: tuple[str, ...] = ()
    """Words or phrases the output's text must not hold."""
    seed: int = 0
    """Where the random numbers of this sentence start."""

    def limit(self, config: DecodingConfig) -> int:
        """The greatest number of tokens of the output."""
        return max(config.limit(len(self.source)), len(self.prefix) + sum(map(len, self.required)))

    def renamed(self, names: Mapping[int, int]) -> "Request":
        """The same in another vocabulary; the source stays as it is."""
        return replace(
            self,
            prefix=tuple(names[token] for token in self.prefix),
            required=tuple(tuple(names[token] for token in phrase) for phrase in self.required),
        )

"""Whether the lines of a corpus are sentences, or words to be read letter by letter."""

from dataclasses import dataclass, field

from headway.data.pairs import Pair

EXAMINED = 10_000
"""Pairs that are looked at."""
LONGEST_WORD = 25
"""Letters of a line, on average, from which on it is a sentence, in whatever script without spaces."""
MOST_CHARACTERS = 500
"""More different characters than these are no alphabet."""


@dataclass
class Lines:
    """One side of a corpus, counted."""

    lines: int = 0
    words: int = 0
    letters: int = 0
    """Characters but spaces."""

    def add(self, line: str) -> None:
        """Count one more line."""
        words = line.split()
        self.lines, self.words = self.lines + 1, self.words + len(words)
        self.letters += sum(map(len, words))

    @property
    def single(self) -> bool:
        """Whether most lines are one word."""
        return self.words < 2 * self.lines and self.letters < LONGEST_WORD * self.lines

    @property
    def short(self) -> bool:
        """Whether lines are one word or two, such as a lemma and its features, or letters with spaces between."""
        return self.words < 3 * self.lines or self.letters < 2.5 * self.words


@dataclass
class Spelling:
    """Both sides of a corpus, by its first pairs."""

    source: Lines = field(default_factory=Lines)
    target: Lines = field(default_factory=Lines)
    characters: set[str] = field(default_factory=set)

    def add(self, pair: Pair) -> None:
        """Look at one more pair, if it is among the first."""
        if self.target.lines < EXAMINED:
            self.source.add(pair.source)
            self.target.add(pair.target)
            self.characters.update(pair.source, pair.target)

    @property
    def alphabet(self) -> int | None:
        """The size of the alphabet, if lines are words: pronunciation, spelling, inflection. None: sentences."""
        sides = (self.source, self.target)
        words = any(side.single for side in sides) and all(side.short for side in sides)
        return len(self.characters) if words and len(self.characters) <= MOST_CHARACTERS else None

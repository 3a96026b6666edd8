"""Whether the lines of a corpus are sentences, or words to be read letter by letter; and how many words there are."""

from dataclasses import dataclass, field

from headway.data.pairs import Pair

FIRST, THEN = 1000, 10
"""Of every corpus the first pairs are looked at, and then one in so many."""
LONGEST_WORD = 25
"""Average letters per line from which lines count as sentences, even in a script without spaces."""
MOST_CHARACTERS = 500
"""More different characters than these are no alphabet."""
MOST_WORDS = 10_000
"""More different words than these are not counted."""


@dataclass
class Lines:
    """One side of a corpus, counted."""

    lines: int = 0
    words: int = 0
    letters: int = 0
    """Characters other than spaces."""

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
        few = self.words < 3 * self.lines or self.letters < 2.5 * self.words
        return few and self.letters < 2 * LONGEST_WORD * self.lines


@dataclass
class Sides:
    """Both sides of a corpus, by a part of its pairs."""

    pairs: int = 0
    """All of them."""
    source: Lines = field(default_factory=Lines)
    target: Lines = field(default_factory=Lines)

    @property
    def words(self) -> bool:
        """Whether one side is words, and the other is them or their letters; a text alone has one side."""
        sides = [side for side in (self.source, self.target) if side.letters]
        return any(side.single for side in sides) and all(side.short for side in sides)


@dataclass
class Spelling:
    """Whether corpora are of words, and the letters they are written in."""

    corpora: dict[int, Sides] = field(default_factory=dict)
    characters: set[str] = field(default_factory=set)
    words: set[str] = field(default_factory=set)

    def add(self, pair: Pair) -> None:
        """Count one more pair, and look at it if it is one of those."""
        sides = self.corpora.setdefault(pair.corpus, Sides())
        if sides.pairs < FIRST or sides.pairs % THEN == 0:
            sides.source.add(pair.source)
            sides.target.add(pair.target)
            self.characters.update(pair.source, pair.target)
            if len(self.words) <= MOST_WORDS:
                self.words.update(pair.source.split(), pair.target.split())
        sides.pairs += 1

    @property
    def alphabet(self) -> int | None:
        """The size of the alphabet, if all lines are words: pronunciation, spelling, inflection. None: sentences."""
        words = bool(self.corpora) and all(sides.words for sides in self.corpora.values())
        return len(self.characters) if words and len(self.characters) <= MOST_CHARACTERS else None

    @property
    def word_bytes(self) -> int | None:
        """The bytes of all different words together, such as phonemes or commands; None: too many to count."""
        if len(self.words) > MOST_WORDS:
            return None
        return sum(len(word.encode(errors="surrogatepass")) for word in self.words)

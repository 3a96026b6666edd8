"""How texts are read: in how many pieces, and by which tokens of the source."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from headway.data.tokenizer import Tokenizer
from headway.errors import ConfigError, DataError
from headway.passages import passages, sentences
from headway.search.config import Long
from headway.sentence import Sentence


def numbered(place: int) -> str:
    """What an error calls the text at a place of a list."""
    return f"text {place + 1}"


@dataclass(frozen=True)
class Piece:
    """A stretch of a text that is read at once."""

    text: str
    tokens: list[int]
    """As far as it is read, tags included; none of a blank text."""
    cut: bool = False
    """Only its beginning is read."""


@dataclass(frozen=True)
class Reading:
    """A sentence in its pieces, with the white space around them: one more gap than there are pieces."""

    sentence: Sentence
    pieces: list[Piece]
    gaps: list[str]

    @property
    def whole(self) -> bool:
        """The sentence is read in one piece, and nothing is to stand around its output."""
        return len(self.pieces) == 1 and not any(self.gaps)


@dataclass(frozen=True)
class Reader:
    """Reads texts for a model."""

    tokenizer: Tokenizer
    longest: int
    """The most tokens read at once."""
    long: Long
    """What is done with a text that has more."""
    named: Callable[[int], str] = numbered
    """What an error calls the text at a place."""

    def __call__(self, asked: Sequence[Sentence], *, document: bool = False) -> list[Reading]:
        """Read every text; those of a `document` sentence by sentence, with the white space between them kept."""
        turns = [sentences(each.text) if document else ["", each.text, ""] for each in asked]
        encoded = iter(self.tokenizer.encode([text for each in turns for text in each[1::2]]))
        readings = []
        for place, (sentence, parts) in enumerate(zip(asked, turns, strict=True)):
            tags = self._tagged(sentence.tags, place)
            pieces: list[Piece] = []
            gaps = parts[:1]
            for text, gap in zip(parts[1::2], parts[2::2], strict=True):
                found = list(self._pieces(text, next(encoded), tags, place))
                pieces += found
                gaps += [""] * (len(found) - 1) + [gap]
            readings.append(Reading(sentence, pieces, gaps))
        return readings

    def _tagged(self, tags: Sequence[str], place: int) -> list[int]:
        try:
            return self.tokenizer.tagged(tags)
        except ConfigError as error:
            raise ConfigError(f"{self.named(place)}: {error}") from None

    def _pieces(self, text: str, tokens: list[int], tags: list[int], place: int) -> Iterator[Piece]:
        room = self.longest - len(tags)
        if room < 1:
            raise ConfigError(f"{self.named(place)}: {len(tags)} tags leave no room for a text; give fewer")
        if not text.strip():
            yield Piece(text, [])
        elif len(tokens) <= room:
            yield Piece(text, tags + tokens)
        elif self.long == "refuse":
            told = f"{self.named(place)}: {len(tokens)} tokens, the model reads {room}"
            raise DataError(f"{told}; shorten it, or set long to split or truncate")
        elif self.long == "truncate":
            yield Piece(text, tags + tokens[:room], cut=True)
        else:
            parts = passages(text, lambda texts: [len(each) for each in self.tokenizer.encode(texts)], room)
            for part, own in zip(parts, self.tokenizer.encode(parts), strict=True):
                yield Piece(part, tags + own[:room], cut=len(own) > room)

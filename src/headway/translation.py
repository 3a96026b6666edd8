"""The text of an output, and all that is known about it."""

import math
from collections.abc import Sequence
from itertools import accumulate
from os.path import commonprefix
from typing import Protocol, runtime_checkable

from headway.inspection import Attention
from headway.passages import joined
from headway.search import Hypothesis


@runtime_checkable
class Writer(Protocol):
    """What can turn tokens into text, and look at them again."""

    def detokenize(self, tokens: Sequence[int]) -> str:
        """The text of target tokens, always one line."""
        ...

    def attention(self, source: str, tokens: Sequence[int], *, tags: Sequence[str] = ()) -> Attention:
        """The weights with which `source` is read and `tokens` are written."""
        ...


class Translation(str):
    """The text of one output; it also knows its score, its alternatives and what the model looked at."""

    source: str
    score: float
    alternatives: tuple[str, ...]
    """The texts of the other hypotheses, best first, where nbest asked for them."""
    hypotheses: tuple[Hypothesis, ...]
    """What the search found, best first; nothing for a blank source."""
    tags: tuple[str, ...]
    """What was put before the source."""
    cut: bool
    """The source was longer than the model knows and only its beginning was read."""
    passages: "tuple[Translation, ...]"
    """The parts of a source that was not read in one piece, each with the best of its outputs; otherwise none.

    Such a source has no alternatives, and its one hypothesis is those of the parts in a row.
    """
    gaps: tuple[str, ...]
    """What stands around the outputs of the passages: one more than there are passages."""
    _writer: Writer

    def __new__(
        cls,
        writer: Writer,
        source: str,
        found: Sequence[Hypothesis],
        *,
        cut: bool = False,
        tags: Sequence[str] = (),
    ) -> "Translation":
        """The best of the hypotheses found for a source."""
        texts = [writer.detokenize(each.tokens) for each in found]
        text = super().__new__(cls, texts[0] if texts else "")
        text.source, text._writer = source, writer
        text.hypotheses, text.alternatives = tuple(found), tuple(texts[1:])
        text.score, text.cut, text.tags = found[0].score if found else 0.0, cut, tuple(tags)
        text.passages, text.gaps = (), ()
        return text

    @classmethod
    def of_passages(
        cls,
        writer: Writer,
        source: str,
        passages: "Sequence[Translation]",
        gaps: Sequence[str],
        tags: Sequence[str] = (),
    ) -> "Translation":
        """The outputs of the parts of a source, with what stands around them."""
        text = super().__new__(cls, joined(gaps, passages))
        text.source, text._writer, text.tags = source, writer, tuple(tags)
        text.passages, text.gaps = tuple(passages), tuple(gaps)
        text.hypotheses = _in_a_row([each.hypotheses[0] for each in passages if each.hypotheses])
        text.score = sum(each.score for each in passages)
        text.alternatives, text.cut = (), any(each.cut for each in passages)
        return text

    def with_hypotheses(self, found: Sequence[Hypothesis]) -> "Translation":
        """The same source, read in one piece, with other hypotheses, best first."""
        return Translation(self._writer, self.source, found, cut=self.cut, tags=self.tags)

    def with_passages(self, passages: "Sequence[Translation]") -> "Translation":
        """The same source with other outputs of its parts."""
        return Translation.of_passages(self._writer, self.source, passages, self.gaps, self.tags)

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """Copies and pickles are the plain text: a model does not travel with it."""
        return str, (str(self),)

    @property
    def attention(self) -> Attention:
        """The weights of every layer and head with which this output was read and written.

        Of a source in several passages, those of the first.
        """
        if self.passages:
            return self.passages[0].attention
        tokens = self.hypotheses[0].tokens if self.hypotheses else ()
        return self._writer.attention(self.source, tokens, tags=self.tags)

    @property
    def confidence(self) -> tuple[tuple[str, float], ...]:
        """The output in pieces, each with the probability the model gave it; together they are the text.

        Tokens that write one character together are one piece.
        """
        if self.passages:
            return self._confidence_of_passages()
        if not self.hypotheses:
            return ()
        best, text = self.hypotheses[0], str(self)
        written = (self._writer.detokenize(best.tokens[:count]) for count in range(1, len(best.tokens) + 1))
        ends = list(accumulate((len(commonprefix((each, text))) for each in written), max))  # noqa: RUF071  # characters
        pieces: list[tuple[str, float]] = []
        start, surprise = 0, 0.0
        for end, value in zip(ends, best.token_log_probabilities, strict=False):  # the end symbol writes nothing
            surprise += value
            if end > start:
                pieces.append((text[start:end], math.exp(surprise)))
                start, surprise = end, 0.0
        return tuple(pieces)

    def _confidence_of_passages(self) -> tuple[tuple[str, float], ...]:
        pieces: list[tuple[str, float]] = []
        place = 0
        for passage in self.passages:
            start = self.index(passage, place)
            found = list(passage.confidence)
            if found and start > place:  # the white space belongs to the piece after it
                found[0] = (self[place:start] + found[0][0], found[0][1])
            if found:
                pieces, place = pieces + found, start + len(passage)
        if place < len(self) and pieces:
            pieces[-1] = (pieces[-1][0] + self[place:], pieces[-1][1])
        return tuple(pieces)


def _in_a_row(found: list[Hypothesis]) -> tuple[Hypothesis, ...]:
    if not found:
        return ()
    return (
        Hypothesis(
            tokens=tuple(token for each in found for token in each.tokens),
            log_probability=sum(each.log_probability for each in found),
            score=sum(each.score for each in found),
            finished=all(each.finished for each in found),
            token_log_probabilities=tuple(value for each in found for value in each.token_log_probabilities),
        ),
    )

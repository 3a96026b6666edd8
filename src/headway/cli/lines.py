"""Lines in, lines out: what `headway translate` does with a chunk, in this process or in several."""

import json
import re
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from headway.cli.files import dumped, refuse_halves
from headway.cli.options import EngineOptions, RescoringOptions, widened
from headway.errors import ConfigError, DataError

if TYPE_CHECKING:
    from headway.sentence import Sentence
    from headway.translator import Translation

ASKED = ("tags", "prefix", "required", "banned")
"""Fields of a JSON line that ask for something."""


class Chunk(NamedTuple):
    """Lines of the input, and how many come before them."""

    first: int
    lines: list[str | None]
    """None for a line that is skipped."""


class Answer(NamedTuple):
    """What a chunk gives."""

    lines: list[str]
    warnings: list[str]


@dataclass(frozen=True)
class Job:
    """All that decides how lines are translated; it can be sent to another process."""

    model: Path
    engine: EngineOptions
    common: "Sentence"
    """What is asked of every output."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Of decoding, where they differ from the model's."""
    name: str = "standard input"
    """What errors call the input."""
    as_json: bool = False
    many: bool = False
    """Lists of outputs are written."""
    alignments: bool = False
    document: bool = False
    rescoring: RescoringOptions = field(default_factory=RescoringOptions)


class Lines:
    """A job with its model loaded: answers one chunk after the other."""

    def __init__(self, job: Job, tell: Callable[[str], None] = lambda _: None) -> None:
        from headway.models.model import translating
        from headway.sentence import phrase_tokens, prefix_tokens

        self.job, self.translator = job, job.engine.load(job.model, tell)
        translating(self.translator.model, "translate")
        self.decoding = self.translator.settings(widened(job.settings, self.translator.decoding.beam))
        self.nbest, self.rescorers = self.decoding.nbest, job.rescoring.load(self.translator.device)
        if self.rescorers:  # all that the beam holds is for them to choose from
            most = max(self.decoding.nbest, self.decoding.beam)
            self.decoding = self.decoding.model_copy(update={"nbest": most, "mbr": 0})
        # What is wrong with the options is told even where there is no line.
        self.translator.source.tagged(job.common.tags)
        prefix_tokens(self.translator.target, job.common.prefix)
        for phrase in job.common.required:
            phrase_tokens(self.translator.target, phrase)

    def __call__(self, chunk: Chunk) -> Answer:
        """Translate the lines of a chunk."""
        records = [
            _record(line, self._named(chunk, place)) if self.job.as_json else {"source": line or ""}
            for place, line in enumerate(chunk.lines)
        ]
        asked = [self._asked(record, self._named(chunk, place)) for place, record in enumerate(records)]
        found = self.translator.translate(
            asked, self.decoding, document=self.job.document, named=lambda place: self._named(chunk, place)
        )
        found = self._rescored(found)
        links = self._links(found)
        written: list[str] = []
        warnings: list[str] = []
        for place, (record, each) in enumerate(zip(records, found, strict=True)):
            warnings += [f"{self._named(chunk, place)} {told}" for told in self._told(each)]
            written += self._written(record, each, links[place], chunk.first + place)
        return Answer(written, warnings)

    def _rescored(self, found: "list[Translation]") -> "list[Translation]":
        if not self.rescorers:
            return found
        from headway.rescoring import rescore, shortened

        own, penalty = self.job.rescoring.rescore_own, self.decoding.length_penalty
        ordered = rescore(found, self.rescorers, own=own, length_penalty=penalty)
        return [shortened(each, self.nbest) for each in ordered]

    def _named(self, chunk: Chunk, place: int) -> str:
        return f"{self.job.name}: line {chunk.first + place + 1}"

    def _asked(self, record: dict[str, Any], where: str) -> "Sentence":
        from headway.sentence import Sentence

        given = {name: record[name] for name in ASKED if record.get(name) is not None}
        for name, value in given.items():
            texts = [value] if name == "prefix" else value if isinstance(value, list) else [None]
            if not all(isinstance(each, str) for each in texts):
                kind = "a text" if name == "prefix" else "a list of texts"
                raise DataError(f'{where}: "{name}" is not {kind}; give one or leave it out')
        try:
            return Sentence(record.get("source", ""), **given).asked(self.job.common)
        except ConfigError as error:
            raise DataError(f"{where}: {error}") from None

    def _links(self, found: "list[Translation]") -> list[list[tuple[int, int]]]:
        if not self.job.alignments:
            return [[] for _ in found]
        from headway.alignment import word_alignments

        return word_alignments(self.translator, found)

    def _told(self, found: "Translation") -> Iterator[str]:
        """What the user should know about how a line was read."""
        longer = f"is longer than {self.translator.longest} tokens"
        if found.cut:
            yield f"{longer}; only its beginning was read"
        elif found.passages and not self.job.document:
            yield f"{longer}; it was read in {len(found.passages)} passages"
        elif found.passages:
            from headway.passages import sentences

            if len(found.passages) > len(sentences(found.source)) // 2:
                yield f"has a sentence that {longer}; it was read in passages"

    def _written(
        self, record: dict[str, Any], found: "Translation", links: list[tuple[int, int]], number: int
    ) -> Iterator[str]:
        """The lines to write for one line."""
        if self.job.as_json:
            added: dict[str, Any] = {"translation": str(found), "score": found.score}
            added |= {"nbest": _nbest(found)} if self.job.many else {}
            added |= {"alignment": links} if self.job.alignments else {}
            yield dumped(record | added) if record else ""
        elif self.job.many:
            for each in _nbest(found):
                text = re.sub(r"\|{3,}", lambda bars: " ".join(bars[0]), _in_one_line(each["text"]))
                yield f"{number} ||| {text} ||| F0= {each['logprob']:.6f} ||| {each['score']:.6f}"
        else:
            shown = " ".join(f"{source}-{target}" for source, target in links)
            text = _in_one_line(str(found))
            yield f"{text}\t{shown}" if self.job.alignments else text


def worker(job: Job) -> Lines:
    """The job in a process that has one core to itself."""
    import os

    import torch

    torch.set_num_threads(1)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    return Lines(job)


def answers(
    lines: Lines, chunks: Iterator[Chunk], workers: int, *, after: int = 0, size: int = 0
) -> Generator[Answer, None, None]:
    """The answer to every chunk, in order.

    The first `after` chunks are answered here. If then one of full `size` follows, several `workers` do the rest.
    """
    from headway.crew import Crew

    yield from map(lines, islice(chunks, after))
    following = list(islice(chunks, 1))
    rest = chain(following, chunks)
    if workers == 1 or not following or len(following[0].lines) < size:
        yield from map(lines, rest)
        return
    with Crew(worker, lines.job, workers=workers) as crew:
        yield from crew.answers(rest)


def _nbest(found: "Translation") -> list[dict[str, Any]]:
    if not found.hypotheses:  # a blank line has its place in the list too
        return [{"text": str(found), "logprob": 0.0, "score": 0.0}]
    return [
        {"text": text, "logprob": each.log_probability, "score": each.score}
        for text, each in zip((str(found), *found.alternatives), found.hypotheses, strict=True)
    ]


def _in_one_line(text: str) -> str:
    """The text with a blank for whatever some reader takes for the end of a line: a document keeps it in its gaps."""
    return " ".join(text.splitlines())


def _record(line: str | None, where: str) -> dict[str, Any]:
    """The object of a line that has a source; an empty one for a line that was skipped."""
    if line is None:
        return {}
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        raise DataError(f'{where}: not JSON; give one object a line with a field "source"') from None
    if not isinstance(record, dict) or not isinstance(record.get("source"), str):
        raise DataError(f'{where}: no text in a field "source"; give one object a line with it')
    for name in ("source", *ASKED):
        refuse_halves(record.get(name), name, where)
    return record

"""`headway translate`."""

import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Annotated, TextIO

from cyclopts import Parameter

from headway.cli.lines import Chunk, Job, Lines, answers
from headway.cli.options import AskedOptions, EngineOptions, Flag, RescoringOptions, SearchOptions
from headway.cli.recipes import MOST_PROCESSES
from headway.data.text import Invalid
from headway.errors import ConfigError, DataError

MOST_BUFFERED = 1 << 20
"""Lines that --buffer may hold."""
CHUNK = {"cpu": 256, "cuda": 4096}
"""Lines read before they are translated and written, where the user does not say, by kind of device."""


def command(
    model: Path,
    /,
    *,
    input_: Annotated[Path | None, Parameter(name="--input")] = None,
    output: Path | None = None,
    append: Flag = False,
    overwrite: Flag = False,
    search: SearchOptions = SearchOptions(),  # noqa: B008  # frozen
    asked: AskedOptions = AskedOptions(),  # noqa: B008  # frozen
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
    alignments: Flag = False,
    document: Flag = False,
    invalid: Invalid = "refuse",
    buffer: int | None = None,
    workers: int | None = None,
    engine: EngineOptions = EngineOptions(),  # noqa: B008  # frozen
    rescoring: RescoringOptions = RescoringOptions(),  # noqa: B008  # frozen
) -> None:
    """Translate lines: one in, exactly one out, in order; with --nbest 'line ||| text ||| F0= logprob ||| score'.

    In such lists a '|||' of a text is written '| | |'.

    Parameters
    ----------
    model
        A model folder, a run folder, or a checkpoint of a run.
    input_
        A file, plain or .gz; standard input by default.
    output
        A file, packed where its name ends in .gz; standard output by default.
    append
        Go on with an output file that was not finished: what stands in it is not translated again.
    overwrite
        Replace the output file if it is there already.
    json_
        Read and write JSON lines: "source" in, and where given "prefix", "required", "banned" and "tags"; "translation"
        and "score" added, every other field kept.
    alignments
        Write after every output, behind a tab, which words belong together, as in '0-0 1-2'.
    document
        A line may hold several sentences: each is translated alone, and the white space between them kept.
    invalid
        Lines that are not UTF-8: refuse stops, skip gives an empty line.
    buffer
        Lines read before they are translated and written; 1 answers every line at once.
    workers
        Processes that translate on a CPU, a core each; by default all cores for long inputs, else this process alone.
    """
    _check(append, overwrite, output, json_, alignments, buffer, workers, search)
    rescoring.check(search)
    from headway.cli.files import lines_of

    settings = search.settings()
    many = "nbest" in settings
    name = str(input_ or "standard input")
    job = Job(model, engine, asked.sentence(), settings, name, json_, many, alignments, document, rescoring)
    lines = Lines(job, _warn)
    count = _workers(workers, buffer, lines)
    reading = enumerate(lines_of(input_, invalid))

    def pass_over(done: int) -> None:
        skipped = sum(1 for _ in islice(reading, done))
        if skipped < done:
            raise DataError(f"{output}: has {done} lines, {name} only {skipped}; they do not belong together")

    with _opened(output, input_, pass_over, append=append, overwrite=overwrite) as file:
        size = buffer or CHUNK[lines.translator.device.type]
        chunks = _chunks(reading, size)
        own = {"after": 1, "size": size} if workers is None else {}
        with closing(answers(lines, chunks, count, **own)) as found:
            for answer in found:
                for told in answer.warnings:
                    _warn(told)
                file.write("".join(f"{line}\n" for line in answer.lines))
                file.flush()


def _check(
    append: bool,
    overwrite: bool,
    output: Path | None,
    json_: bool,
    alignments: bool,
    buffer: int | None,
    workers: int | None,
    search: SearchOptions,
) -> None:
    """Refuse options that cannot be together."""
    lists = "nbest" in search.settings() and not json_
    if buffer is not None and not 1 <= buffer <= MOST_BUFFERED:
        raise ConfigError(f"--buffer {buffer}: must be 1 or more, and at most {MOST_BUFFERED}")
    if workers is not None and not 1 <= workers <= MOST_PROCESSES:
        raise ConfigError(f"--workers {workers}: must be 1 or more, and at most {MOST_PROCESSES}")
    if append and output is None:
        raise ConfigError("--append: goes on with a file; name it by --output")
    if overwrite and (append or output is None):
        raise ConfigError("--overwrite: replaces the file of --output; leave it out, or name one without --append")
    if append and lists:
        raise ConfigError("--append: cannot count lines in lists of outputs; leave out --nbest, or write --json")
    if alignments and lists:
        raise ConfigError("--alignments: has no place in lists of outputs; leave out --nbest, or write --json")


@contextmanager
def _opened(
    output: Path | None, input_: Path | None, pass_over: Callable[[int], None], *, append: bool, overwrite: bool
) -> Iterator[TextIO]:
    """Where the lines go; `pass_over` is told how many stand there already."""
    from headway.cli.files import continued, written

    if append and output is not None:
        with continued(output, pass_over, input_) as file:
            yield file
    else:
        with written(output, input_, overwrite=overwrite) as file:
            yield file


def _workers(asked: int | None, buffer: int | None, lines: Lines) -> int:
    """Processes that may translate."""
    from headway.crew import affordable
    from headway.engine import Engine

    alone = lines.translator.device.type != "cpu" or not isinstance(lines.translator.engine, Engine)
    if asked is not None and asked > 1 and alone:
        raise ConfigError(f"--workers {asked}: are for Headway's own engine on a CPU; leave the option out")
    if asked is None:
        return 1 if alone or buffer is not None else affordable()
    return asked


def _chunks(lines: Iterator[tuple[int, str | None]], size: int) -> Iterator[Chunk]:
    while chunk := list(islice(lines, size)):
        yield Chunk(chunk[0][0], [line for _, line in chunk])


def _warn(told: str) -> None:
    print(f"headway: warning: {told}", file=sys.stderr)

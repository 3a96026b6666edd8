"""`headway translate`."""

import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from headway.data.text import Invalid
from headway.errors import ConfigError, DataError

if TYPE_CHECKING:
    from headway.translator import Translation, Translator


def command(
    model: Path,
    /,
    *,
    input_: Annotated[Path | None, Parameter(name="--input")] = None,
    output: Path | None = None,
    beam: int | None = None,
    nbest: int | None = None,
    length_penalty: float | None = None,
    tag: Annotated[list[str] | None, Parameter(negative="")] = None,
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
    invalid: Invalid = "refuse",
    buffer: int = 256,
    device: str | None = None,
) -> None:
    """Translate lines: one in, exactly one out, in order.

    Parameters
    ----------
    model
        A model folder or a run folder.
    input_
        A file, plain or .gz; standard input by default.
    output
        A file; standard output by default.
    beam
        Hypotheses kept for every sentence; 1 is greedy.
    nbest
        Outputs for every line, written as 'line ||| text ||| F0= logprob ||| score'.
    length_penalty
        How much longer outputs are favoured.
    tag
        A tag put before every source, as the model was trained with; may be repeated.
    json_
        Read and write JSON lines: "source" in, "translation" and "score" added, every other field kept.
    invalid
        Lines that are not UTF-8: refuse stops, skip gives an empty line.
    buffer
        Lines read before they are translated and written; 1 answers every line at once.
    device
        cpu, cuda or cuda:N; the best there is by default.
    """
    if buffer < 1:
        raise ConfigError(f"--buffer {buffer}: must be 1 or more")
    from headway.assemble import choose_device
    from headway.cli.files import lines_of, written
    from headway.translator import load

    given = {"beam": beam, "nbest": nbest, "length_penalty": length_penalty, "tags": tag}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    translator = load(model, device=choose_device(device))
    translator.source.tagged(tag or ())  # refuses an unknown one, even where there is no line
    if nbest is not None and beam is None and nbest > translator.decoding.beam:
        options["beam"] = nbest
    name = str(input_ or "standard input")
    with written(output, input_) as file:
        number = 0
        lines = lines_of(input_, invalid)
        while chunk := list(islice(lines, buffer)):
            for line in _answers(translator, chunk, options, (name, number), as_json=json_, many=nbest is not None):
                file.write(line + "\n")
            file.flush()
            number += len(chunk)


def _answers(
    translator: "Translator",
    lines: list[str | None],
    options: dict[str, Any],
    where: tuple[str, int],
    *,
    as_json: bool,
    many: bool,
) -> Iterator[str]:
    """The lines to write for the lines of the file `where[0]` that come after its first `where[1]`."""
    name, first = where
    records = [_record(line, f"{name}: line {first + place}") for place, line in enumerate(lines, 1)] if as_json else []
    sources = [record.get("source", "") for record in records] if as_json else [line or "" for line in lines]
    for place, found in enumerate(translator(sources, **options)):
        if found.cut:
            told = f"line {first + place + 1} is longer than {translator.longest} tokens; only its beginning was read"
            print(f"headway: warning: {name}: {told}", file=sys.stderr)
        if as_json:
            added: dict[str, Any] = {"translation": str(found), "score": found.score}
            yield _dumped(records[place] | added | ({"nbest": _nbest(found)} if many else {})) if records[place] else ""
        elif many:
            for each in _nbest(found):
                yield f"{first + place} ||| {each['text']} ||| F0= {each['logprob']:.6f} ||| {each['score']:.6f}"
        else:
            yield str(found)


def _nbest(found: "Translation") -> list[dict[str, Any]]:
    if not found.hypotheses:  # a blank line has its place in the list too
        return [{"text": "", "logprob": 0.0, "score": 0.0}]
    return [
        {"text": text, "logprob": each.log_probability, "score": each.score}
        for text, each in zip((str(found), *found.alternatives), found.hypotheses, strict=True)
    ]


def _dumped(record: dict[str, Any]) -> str:
    """The record on one line; as it reads where UTF-8 can hold it, else escaped."""
    text = json.dumps(record, ensure_ascii=False)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # half a surrogate pair in a field that is only passed on
        return json.dumps(record)
    return text


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
    try:
        record["source"].encode("utf-8")
    except UnicodeEncodeError:
        raise DataError(f'{where}: "source" holds half a surrogate pair; write the character itself') from None
    return record

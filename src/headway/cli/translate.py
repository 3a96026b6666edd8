"""`headway translate`."""

import json
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

    given = {"beam": beam, "nbest": nbest, "length_penalty": length_penalty}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    translator = load(model, device=choose_device(device))
    if nbest is not None and beam is None and nbest > translator.decoding.beam:
        options["beam"] = nbest
    with written(output, input_) as file:
        number = 0
        lines = lines_of(input_, invalid)
        while chunk := list(islice(lines, buffer)):
            for line in _answers(translator, chunk, options, number, as_json=json_, many=nbest is not None):
                file.write(line + "\n")
            file.flush()
            number += len(chunk)


def _answers(
    translator: "Translator", lines: list[str | None], options: dict[str, Any], first: int, *, as_json: bool, many: bool
) -> Iterator[str]:
    records = [_record(line, first + place) for place, line in enumerate(lines, 1)] if as_json else []
    sources = [record["source"] for record in records] if as_json else [line or "" for line in lines]
    for place, found in enumerate(translator(sources, **options)):
        if as_json:
            added: dict[str, Any] = {"translation": str(found), "score": found.score}
            yield json.dumps(records[place] | added | ({"nbest": _nbest(found)} if many else {}), ensure_ascii=False)
        elif many:
            for each in _nbest(found):
                yield f"{first + place} ||| {each['text']} ||| F0= {each['logprob']:.6f} ||| {each['score']:.6f}"
        else:
            yield str(found)


def _nbest(found: "Translation") -> list[dict[str, Any]]:
    return [
        {"text": text, "logprob": each.log_probability, "score": each.score}
        for text, each in zip((str(found), *found.alternatives), found.hypotheses, strict=False)
    ]


def _record(line: str | None, number: int) -> dict[str, Any]:
    try:
        record = json.loads(line or "")
    except (ValueError, RecursionError):
        raise DataError(f'line {number}: not JSON; give one object a line with a field "source"') from None
    if not isinstance(record, dict) or not isinstance(record.get("source"), str):
        raise DataError(f'line {number}: no text in a field "source"; give one object a line with it')
    return record

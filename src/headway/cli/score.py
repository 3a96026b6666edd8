"""`headway score`."""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from itertools import islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from cyclopts import Parameter

from headway.cli.files import dumped, refuse_halves, written
from headway.cli.options import Flag
from headway.data.text import Invalid, read_lines
from headway.errors import ConfigError, DataError

if TYPE_CHECKING:
    from headway.scoring import Scored
    from headway.translator import Translator

TOGETHER = 1024
"""Pairs read before they are scored and written."""
FEATURE = "Headway="
"""The name of what is added to an n-best list."""


def command(
    model: Path,
    /,
    *,
    source: Path | None = None,
    target: Path | None = None,
    nbest: Path | None = None,
    output: Path | None = None,
    overwrite: Flag = False,
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
    tokens: Annotated[bool, Parameter(negative="")] = False,
    normalise: Annotated[bool, Parameter(negative="")] = False,
    tag: Annotated[list[str] | None, Parameter(negative="")] = None,
    invalid: Invalid = "refuse",
    device: str | None = None,
) -> None:
    """Give the log-probability of targets that are there already: one line for every pair, in order.

    A language model has no --source. What it comes to is told at the end: its perplexity and bits a character.

    Parameters
    ----------
    model
        A model folder or a run folder.
    source
        A file, plain or .gz; with --json and no --target, JSON lines with "source" and "target".
    target
        The targets to score, line by line.
    nbest
        Instead of --target an n-best list, 'line ||| text ||| features', to which the log-probabilities are added.
    output
        A file; standard output by default.
    overwrite
        Replace the output file if it is there already.
    json_
        Write JSON lines: "logprob", "tokens" and "score" added to "source" and "target".
    tokens
        Write the log-probability of every token too, that of the end symbol last.
    normalise
        Divide each log-probability by the number of its tokens, end symbol included.
    tag
        A tag put before every source, as the model was trained with; may be repeated.
    invalid
        Pairs that are not UTF-8, or longer than the model knows: refuse stops, skip gives an empty line.
    device
        cpu, cuda or cuda:N; the best there is by default.
    """
    if (target is None) == (nbest is None) and (target is not None or not json_ or source is None):
        raise ConfigError("give --target or --nbest, or --json with both sides in the file of --source")
    if nbest is not None and (json_ or tokens):
        raise ConfigError("--nbest: is written as an n-best list; leave out --json and --tokens")
    if json_ and normalise:
        raise ConfigError("--normalise: JSON lines hold the sum and the number of tokens; leave it out")
    from headway.assemble import choose_device
    from headway.translator import load

    translator = load(model, device=choose_device(device))
    _check_sides(translator, model, source, tag)
    pairs: Iterator[Pair]
    if nbest is not None:
        pairs = _listed(source, nbest, invalid)
    elif target is None:
        assert source is not None  # refused above
        pairs = _recorded(source, invalid)
    else:
        pairs = _alone(target, invalid) if source is None else _parallel(source, target, invalid)
    shown = _added if nbest is not None else _object if json_ else _numbers
    total, wanted = Total(), Wanted(tokens, normalise)
    inputs = [path for path in (source, target, nbest) if path is not None]
    with written(output, *inputs, overwrite=overwrite) as file:
        while chunk := list(islice(pairs, TOGETHER)):
            for pair, scored in zip(chunk, _scored(translator, chunk, tag or (), invalid), strict=True):
                total.add(pair, scored)
                file.write(("" if scored is None else shown(pair, scored, wanted)) + "\n")
            file.flush()
    print(total.told("pairs" if translator.model.config.reads_source else "texts"), file=sys.stderr)


def _check_sides(translator: "Translator", model: Path, source: Path | None, tags: list[str] | None) -> None:
    """Refuse a source that a model does not read, and a model that lacks one; tags too, even where there is no line."""
    if translator.model.config.reads_source:
        translator.source.tagged(tags or ())
        if source is None:
            raise ConfigError(f"--source: missing; {model} is a model that reads one")
    elif source is not None or tags:
        raise ConfigError(f"{model}: is a language model; leave out --source and --tag, give its texts by --target")


class Pair(NamedTuple):
    """A pair to score, and where it stands; None for a side that is not UTF-8."""

    where: str
    source: str | None
    target: str | None
    given: Any = None
    """What it was read from: an object of JSON, or the fields of an n-best list."""


class Wanted(NamedTuple):
    """What the user wants to see of a score."""

    tokens: bool
    normalise: bool


def _parallel(source: Path, target: Path, invalid: Invalid) -> Iterator[Pair]:
    sides = (((line,) for line in read_lines(path, invalid=invalid)) for path in (source, target))
    for number, (left, right) in enumerate(zip_longest(*sides), start=1):
        if left is None or right is None:
            short, long = (source, target) if left is None else (target, source)
            told = f"{short} has {number - 1} lines and {long} has more"
            raise DataError(f"{told}; line n of one must translate line n of the other")
        yield Pair(f"{source}: line {number}", left[0], right[0])


def _alone(target: Path, invalid: Invalid) -> Iterator[Pair]:
    for number, line in enumerate(read_lines(target, invalid=invalid), start=1):
        yield Pair(f"{target}: line {number}", "", line, {"target": line})


def _recorded(path: Path, invalid: Invalid) -> Iterator[Pair]:
    for number, line in enumerate(read_lines(path, invalid=invalid), start=1):
        where = f"{path}: line {number}"
        if line is None:
            yield Pair(where, None, None)
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            raise DataError(f'{where}: not JSON; give one object a line with "source" and "target"') from None
        if not isinstance(record, dict):
            raise DataError(f'{where}: not an object; give one a line with "source" and "target"')
        yield Pair(where, _text(record, "source", where), _text(record, "target", where), record)


def _text(record: dict[str, Any], name: str, where: str) -> str:
    text = record.get(name)
    if not isinstance(text, str):
        raise DataError(f'{where}: no text in a field "{name}"; give one object a line with "source" and "target"')
    refuse_halves(text, name, where)
    return text


def _listed(source: Path | None, nbest: Path, invalid: Invalid) -> Iterator[Pair]:
    """The entries of an n-best list, whose numbers never fall, each with its source, if there is any."""
    sources = iter(()) if source is None else read_lines(source, invalid=invalid)
    current, text = -1, "" if source is None else None
    for number, line in enumerate(read_lines(nbest, invalid=invalid), start=1):
        where = f"{nbest}: line {number}"
        if line is None:
            yield Pair(where, None, None)
            continue
        fields = [field.strip() for field in line.split("|||")]
        if len(fields) < 2 or not re.fullmatch("[0-9]{1,18}", fields[0]):
            raise DataError(f"{where}: no entry of an n-best list; write 'line ||| text', the line from 0")
        wanted = int(fields[0])
        if wanted < current:
            raise DataError(f"{where}: line {wanted} comes after line {current}; sort the list by its first column")
        while source is not None and current < wanted:
            try:
                current, text = current + 1, next(sources)
            except StopIteration:
                told = f"{where}: names line {wanted} of {source}"
                raise DataError(f"{told}, which has {current + 1}; lines count from 0") from None
        current = wanted
        yield Pair(where, text, fields[1], fields)


def _scored(
    translator: "Translator", pairs: Sequence[Pair], tags: Sequence[str], invalid: Invalid
) -> list["Scored | None"]:
    """The scores of the pairs; None for those that are skipped."""
    from headway.scoring import score_tokens, tokenize, too_long

    scored: list[Scored | None] = [None] * len(pairs)
    texts = [(pair.source, pair.target) for pair in pairs if pair.source is not None and pair.target is not None]
    whole = [place for place, pair in enumerate(pairs) if pair.source is not None and pair.target is not None]
    chosen = []
    for place, ids in zip(whole, tokenize(translator, texts, tags=tags), strict=True):
        problem = too_long(translator, ids)
        if problem is None:
            chosen.append((place, ids))
        elif invalid == "refuse":
            raise DataError(f"{pairs[place].where}: {problem}; split it, or pass over such pairs by --invalid skip")
    for (place, _), each in zip(chosen, score_tokens(translator, [ids for _, ids in chosen]), strict=True):
        scored[place] = each
    return scored


def _number(scored: "Scored", wanted: Wanted) -> str:
    divisor = max(len(scored.token_log_probabilities), 1) if wanted.normalise else 1
    return f"{scored.log_probability / divisor:.6f}"


def _numbers(pair: Pair, scored: "Scored", wanted: Wanted) -> str:
    del pair
    each = " ".join(f"{value:.6f}" for value in scored.token_log_probabilities)
    return _number(scored, wanted) + (f"\t{each}" if wanted.tokens else "")


def _object(pair: Pair, scored: "Scored", wanted: Wanted) -> str:
    values = scored.token_log_probabilities
    record = pair.given if pair.given is not None else {"source": pair.source, "target": pair.target}
    record |= {"logprob": scored.log_probability, "tokens": len(values), "score": scored.score}
    if wanted.tokens:
        record["token_logprobs"] = values
    return dumped(record)


def _added(pair: Pair, scored: "Scored", wanted: Wanted) -> str:
    number, text, *rest = pair.given
    features = f"{rest[0] if rest else ''} {FEATURE} {_number(scored, wanted)}".strip()
    return " ||| ".join((number, text, features, *rest[1:]))


class Total:
    """What all pairs come to."""

    def __init__(self) -> None:
        from headway.scoring import Tally

        self.tally, self.skipped = Tally(), 0

    def add(self, pair: Pair, scored: "Scored | None") -> None:
        """Count one pair more; None for one that was skipped."""
        if scored is None:
            self.skipped += 1
        else:
            self.tally = self.tally.with_text(pair.target or "", scored)

    def told(self, what: str) -> str:
        """The sums in one line; of texts alone also what does not hang on how they are divided into tokens."""
        sums = self.tally
        mean = sums.log_probability / max(sums.tokens, 1)
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        told = f"{sums.texts} {what}{skipped}, {sums.tokens} tokens, {mean:.4f} a token"
        told += f", perplexity {sums.perplexity:.4g}"
        if what == "texts":
            told += f", {sums.word_perplexity:.4g} a word, {sums.bits_per_character:.4f} bits a character"
        return told

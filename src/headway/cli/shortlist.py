"""`headway shortlist`."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from headway.cli.files import refuse_inputs
from headway.cli.options import Flag
from headway.disk import check_output
from headway.errors import ConfigError

if TYPE_CHECKING:
    from headway.cli.terminal import Terminal
    from headway.data.lexicon import Coverage
    from headway.data.pairs import Files
    from headway.translator import Translator

HELD_OUT = 51
"""One pair in so many is not learnt from, to see how much of new text the shortlists cover; odd, as long and short
sentences take turns in some corpora."""
MEASURED = 2000
"""Pairs held out at most."""
ITERATIONS = 5
_CHUNK = 1024

IdPair = tuple[list[int], list[int]]


def command(
    model: Path,
    /,
    *,
    source: Path,
    target: Path | None = None,
    output: Path,
    overwrite: Flag = False,
    candidates: int = 100,
    frequent: int = 200,
) -> None:
    """Learn from training pairs which target tokens a source needs, so that decoding may pass over all others.

    Parameters
    ----------
    model
        A model folder or a run folder.
    source
        The pairs to learn from: their source, plain or .gz; or both sides in one .tsv, .jsonl or .parquet.
    target
        Their target, line by line.
    output
        The file to write, as in shortlist.safetensors.
    overwrite
        Replace the output file if it is there already.
    candidates
        Target tokens for every source token.
    frequent
        Target tokens, the most frequent ones, that every sentence may use.
    """
    if not (1 <= candidates <= 1 << 20 and 0 <= frequent <= 1 << 20):
        raise ConfigError(f"--candidates {candidates} --frequent {frequent}: at least 1 and 0, at most 1048576")
    refuse_inputs(output, (source, target))
    check_output(output, overwrite=overwrite)
    from dataclasses import replace

    from headway.cli.terminal import Terminal
    from headway.data.lexicon import Lexicon, vocabularies
    from headway.data.pairs import Files
    from headway.models.model import translating
    from headway.translator import load

    translator = load(model)
    translating(translator.model, "shortlist")
    learnt: list[IdPair] = []
    held_out: list[IdPair] = []
    with Terminal() as screen:
        lexicon = Lexicon.learn(
            _learnt_from(translator, Files(source, target), learnt, held_out, screen),
            source_size=translator.source.size,
            target_size=translator.target.size,
            candidates=candidates,
            frequent=frequent,
            iterations=ITERATIONS,
            progress=lambda done: screen.working("learning", done, ITERATIONS),
        )
    lexicon = replace(lexicon, vocabularies=vocabularies(translator.source, translator.target))
    lexicon.save(output, overwrite=overwrite)
    known = int((lexicon.candidates >= 0).any(axis=1).sum())
    print(f"{output}: candidates for {known} of {lexicon.source_size} source tokens, {len(lexicon.always)} always")
    for pairs, what in ((learnt, "pairs learnt from"), (held_out, "pairs held out")):
        if pairs:
            print(f"{len(pairs)} {what}: {_told(lexicon.coverage(pairs), lexicon.target_size)}")


def _learnt_from(
    translator: "Translator", files: "Files", learnt: list[IdPair], held_out: list[IdPair], screen: "Terminal"
) -> Iterator[IdPair]:
    """The ids of the pairs but those held out; equally many of them are put in `learnt` too."""
    from headway.data.pairs import read_pairs

    pairs, number = read_pairs(files), 0
    while chunk := list(islice(pairs, _CHUNK)):
        sources = translator.source.encode([pair.source for pair in chunk])
        targets = translator.target.encode([pair.target for pair in chunk])
        for pair in zip(sources, targets, strict=True):
            number += 1
            if number % HELD_OUT == 0 and len(held_out) < MEASURED:
                held_out.append(pair)
                continue
            if number % HELD_OUT == 1 and len(learnt) < MEASURED:
                learnt.append(pair)
            yield pair
        screen.working("reading pairs", number, None)


def _told(found: "Coverage", size: int) -> str:
    share, mean = 100 * found.covered / max(found.tokens, 1), found.allowed / found.pairs
    return (
        f"{share:.2f} % of target tokens are in the shortlist of their source, {mean:.0f} of {size} tokens on average"
    )

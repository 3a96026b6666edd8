"""`headway embed`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from headway.cli.options import Flag

if TYPE_CHECKING:
    from headway.translator import Translator


def command(
    model: Path,
    /,
    *,
    input_: Annotated[Path | None, Parameter(name="--input")] = None,
    output: Path | None = None,
    overwrite: Flag = False,
    tag: Annotated[list[str] | None, Parameter(negative="")] = None,
    device: str | None = None,
) -> None:
    """Give the contextual vector of every token: a JSON line a line, {"tokens": [...], "vectors": [[...]]}.

    Parameters
    ----------
    model
        A model folder or a run folder.
    input_
        A file, plain or .gz; standard input by default.
    output
        A file; standard output by default.
    overwrite
        Replace the output file if it is there already.
    tag
        A tag read before every line, as the model was trained with; may be repeated.
    device
        cpu, cuda or cuda:N; the best there is by default.
    """
    from headway.assemble import choose_device
    from headway.cli.files import lines_of, written
    from headway.models.model import translating
    from headway.translator import load

    translator = load(model, device=choose_device(device))
    translating(translator.model, "embed")
    translator.source.tagged(tag or ())  # refuses an unknown one, even where there is no line
    with written(output, input_, overwrite=overwrite) as file:
        for line in lines_of(input_):
            tokens, vectors = _embedded(translator, line or "", tag or ())
            record = {"tokens": tokens, "vectors": [[round(number, 6) for number in vector] for vector in vectors]}
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
            file.flush()


def _embedded(translator: "Translator", text: str, tags: Sequence[str]) -> tuple[list[str], list[list[float]]]:
    """The tokens of a text as the user wrote them, and the encoder's state of each after the tags."""
    import torch

    from headway.scoring import padded

    first = translator.source.tagged(tags)
    pieces = translator.source.pieces(text)[: translator.longest - len(first)]
    source, _ = padded(translator, [([*first, *(token for token, _ in pieces)], ())])
    with torch.inference_mode():
        states = translator.model.encode(source).states[0].float()
    return [piece for _, piece in pieces], states[len(first) : len(first) + len(pieces)].tolist()

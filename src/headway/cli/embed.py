"""`headway embed`."""

import json
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def command(
    model: Path,
    /,
    *,
    input_: Annotated[Path | None, Parameter(name="--input")] = None,
    output: Path | None = None,
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
    device
        cpu, cuda or cuda:N; the best there is by default.
    """
    from headway.assemble import choose_device
    from headway.cli.files import lines_of, written
    from headway.translator import load

    translator = load(model, device=choose_device(device))
    with written(output, input_) as file:
        for line in lines_of(input_):
            (found,) = translator.embed([line or ""])
            vectors = [[round(float(number), 6) for number in vector] for _, vector in found]
            record = {"tokens": [token for token, _ in found], "vectors": vectors}
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
            file.flush()

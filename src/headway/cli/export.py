"""`headway export`."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter


def command(
    model: Path,
    /,
    *,
    to: Literal["ctranslate2"],
    output: Path,
    int8: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Write a model in the format of another engine, which then needs no Headway.

    Parameters
    ----------
    model
        A model folder or a run folder.
    to
        The engine: ctranslate2, for fast decoding on CPUs.
    output
        The folder to write.
    int8
        Keep the weights as whole numbers of 8 bits: a quarter of the size, and often faster.
    """
    del to  # there is one
    from headway.interop.specification import export
    from headway.translator import load

    export(load(model), output, int8=int8)
    size = sum(path.stat().st_size for path in output.iterdir())
    print(f"{output}: {size / 1e6:.1f} MB")

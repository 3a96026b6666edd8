"""`headway sample`."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headway.cli.options import Flag, Strings
from headway.errors import ConfigError

MOST = 10**9
"""Texts of one call."""
TOGETHER = 64
"""Texts drawn before they are written."""


def command(
    model: Path,
    /,
    *,
    count: int = 1,
    prefix: str = "",
    seed: int | None = None,
    output: Path | None = None,
    overwrite: Flag = False,
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
    device: str | None = None,
    set_: Annotated[Strings, Parameter(name="--set", negative="")] = None,
) -> None:
    """Draw texts from a language model, one a line; the same seed draws the same ones.

    Parameters
    ----------
    model
        A model folder, a run folder, or a checkpoint of a run.
    count
        How many texts.
    prefix
        How each of them begins.
    seed
        Chooses the texts; text number i is the same however many are drawn.
    output
        A file; standard output by default.
    overwrite
        Replace the output file if it is there already.
    json_
        Write JSON lines: "text", "logprob", "tokens", and "finished" where the model chose to end it.
    device
        cpu, cuda or cuda:N; the best there is by default.
    set_
        Any setting of decoding, as in temperature=0.8, top_k=40 or top_p=0.9; may be repeated.
    """
    if not 1 <= count <= MOST:
        raise ConfigError(f"--count {count}: give 1 or more, and at most {MOST}")
    from headway.assemble import choose_device
    from headway.cli.files import dumped, written
    from headway.config import override
    from headway.continuation import continuations
    from headway.translator import load

    options = override({} if seed is None else {"seed": seed}, [each.removeprefix("decoding.") for each in set_ or ()])
    if options.keys() & {"nbest", "mbr"}:
        raise ConfigError("--set: nbest and mbr are for translations; say by --count how many texts are drawn")
    translator = load(model, device=choose_device(device))
    with written(output, overwrite=overwrite) as file:
        for first in range(0, count, TOGETHER):
            beginnings = [prefix] * min(TOGETHER, count - first)
            for text in continuations(translator, beginnings, first=first, **options):
                (best,) = text.hypotheses
                record = {"text": str(text), "logprob": best.log_probability}
                record |= {"tokens": len(best.token_log_probabilities), "finished": best.finished}
                file.write((dumped(record) if json_ else str(text)) + "\n")
            file.flush()

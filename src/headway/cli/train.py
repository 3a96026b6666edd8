"""`headway train`."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headway.cli.options import Time
from headway.cli.recipes import choose_devices, overrides, read_recipe
from headway.errors import ConfigError


def command(
    recipe: Path | None = None,
    /,
    *,
    source: Path | None = None,
    target: Path | None = None,
    text: Path | None = None,
    out: Path | None = None,
    data: Path | None = None,
    time: Time = None,
    device: str | None = None,
    from_: Annotated[Path | None, Parameter(name="--from")] = None,
    processes: int = 1,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    resume: Annotated[bool, Parameter(negative="")] = False,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative="")] = None,
) -> None:
    """Train a model: from two text files, a language model from one, or from a recipe that 'headway init' writes.

    Parameters
    ----------
    recipe
        A TOML recipe; not needed with --source and --target, or --text.
    source
        Text to learn from, a sentence a line, which may be .gz; or both sides in one .tsv, .jsonl or .parquet.
        A glob in quotes, as in 'train-*.en', means shards.
    target
        Its translation, line by line.
    text
        Instead of both, text to learn a language model from: each line a text of its own.
    out
        The run folder to create.
    data
        Where the relative paths of the recipe start.
    time
        A wall-clock budget such as 90s, 30m or 2h; schedule and validation are fitted to it.
    device
        cpu, cuda or cuda:N; the best there is by default.
    from_
        A model or run folder to go on from: its weights, and its vocabulary, which 'start.extend' may extend.
    processes
        Processes on this machine that train together, one a GPU; more machines: see torchrun in the documentation.
    dry_run
        Overfit one batch and say whether loss, masks, memory and speed are sane; nothing is written.
    resume
        Go on with the run in --out, exactly where it stopped.
    set_
        Any setting of the recipe, as in --set training.learning_rate=3e-4; may be repeated.
    """
    sides = {"data__source": source, "data__target": target, "data__text": text}
    changes = overrides(set_, **sides, data__folder=data, training__time=time, start__model=from_)
    if out is None and not dry_run:
        raise ConfigError("--out: missing; name the run folder to create, as in --out runs/first")
    from headway.assemble import train as run
    from headway.beginning import begin
    from headway.cli.terminal import Terminal
    from headway.training.parallel import launch, started_by_torchrun

    chosen, where = read_recipe(recipe, changes, out if resume else None), choose_devices(device, processes)
    with Terminal(chosen.training.log_every) as screen:
        if dry_run:
            from headway.rehearsal import rehearse

            rehearse(chosen, device=where, screen=screen)
            return
        assert out is not None  # refused above
        if processes == 1 or started_by_torchrun():
            run(chosen, out, device=where, screen=screen, resume=resume)
            return
        if not resume:
            begin(chosen, out, device=where, screen=screen, processes=processes)
    given = [str(recipe)] if recipe is not None and resume else []  # a new run is in its folder by now
    given += [part for change in changes for part in ("--set", change)] if resume else []
    given += ["--device", device] if device is not None else []
    launch(processes, ["train", "--out", str(out), "--resume", *given])

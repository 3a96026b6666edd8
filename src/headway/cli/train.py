"""`headway train`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from headway.errors import ConfigError

if TYPE_CHECKING:
    from headway.recipe import Recipe


def command(
    recipe: Path | None = None,
    /,
    *,
    source: Path | None = None,
    target: Path | None = None,
    out: Path | None = None,
    data: Path | None = None,
    time: str | None = None,
    device: str | None = None,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    resume: Annotated[bool, Parameter(negative="")] = False,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative="")] = None,
) -> None:
    """Train a model: from two text files, or from a recipe that 'headway init' writes.

    Parameters
    ----------
    recipe
        A TOML recipe; not needed with --source and --target.
    source
        Text to learn from, a sentence a line; or both sides in one .tsv or .jsonl. Any file may be .gz.
    target
        Its translation, line by line.
    out
        The run folder to create.
    data
        Where the relative paths of the recipe start.
    time
        A wall-clock budget such as 90s, 30m or 2h; schedule and validation are fitted to it.
    device
        cpu, cuda or cuda:N; the best there is by default.
    dry_run
        Overfit one batch and say whether loss, masks, memory and speed are sane; nothing is written.
    resume
        Go on with the run in --out, exactly where it stopped.
    set_
        Any setting of the recipe, as in --set training.learning_rate=3e-4; may be repeated.
    """
    given = {"source": source, "target": target, "folder": data}
    overrides = [f"data.{name}={_quoted(path)}" for name, path in given.items() if path is not None]
    overrides += [f"training.time={_quoted(time)}"] if time is not None else []
    overrides += set_ or []
    if out is None and not dry_run:
        raise ConfigError("--out: missing; name the run folder to create, as in --out runs/first")
    from headway.assemble import choose_device
    from headway.assemble import train as run
    from headway.cli.terminal import Terminal

    chosen, where = _recipe(recipe, overrides, out if resume else None), choose_device(device)
    with Terminal(chosen.training.log_every) as screen:
        if dry_run:
            from headway.rehearsal import rehearse

            rehearse(chosen, device=where, screen=screen)
            return
        assert out is not None  # refused above
        folder = run(chosen, out, device=where, screen=screen, resume=resume)
        screen.say(f"the model is in {folder}; try: headway translate {out} < FILE")


def _recipe(path: Path | None, overrides: list[str], resumed: Path | None) -> "Recipe":
    """The recipe of the file, of the run to be resumed, or of the options alone."""
    from headway.config import override, read_toml, validated
    from headway.recipe import Recipe

    tree: dict[str, Any] = {}
    if path is not None:
        tree = read_toml(path)
    elif resumed is not None:
        from headway.assemble import stored_recipe

        tree = stored_recipe(resumed).model_dump(mode="json", exclude_none=True)
    tree = override(tree, overrides)
    group = tree.get("data", {})
    if isinstance(group, dict) and "source" not in group:
        raise ConfigError("nothing to learn from: give --source and --target, or a recipe ('headway init' writes one)")
    return validated(Recipe, tree, str(path or "options"))


def _quoted(value: object) -> str:
    import json

    return json.dumps(str(value), ensure_ascii=False)

"""`headway backtranslate`."""

import random
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from headway.cli.options import Time
from headway.errors import ConfigError

if TYPE_CHECKING:
    from headway.cli.synthetic import Run
    from headway.data.config import DataConfig
    from headway.recipe import Recipe

TAG = "back-translated"
"""The tag before every synthetic source, so that the model can tell them from true ones (Caswell et al. 2019)."""
VALID = "valid"


def command(
    reverse: Path,
    /,
    *,
    monolingual: Path,
    out: Path,
    source: Path | None = None,
    target: Path | None = None,
    noise: float = 0.0,
    seed: int = 1,
    beam: int | None = None,
    time: Time = None,
    device: str | None = None,
    resume: Annotated[bool, Parameter(negative="")] = False,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative="")] = None,
) -> None:
    """Make training pairs from text in the target language alone (back-translation, Sennrich et al. 2016).

    A model of the reverse direction translates the text; its outputs are synthetic sources. With true pairs beside
    them, a model is trained on both. After a stop or a kill the same command goes on,
    with --resume once training has begun.

    Parameters
    ----------
    reverse
        A model folder or a run folder that translates from the target language into the source language.
    monolingual
        Text in the target language, a sentence a line, plain or .gz.
    out
        The folder to create: translations, pairs and, with true pairs, the model.
    source
        True pairs to train on as well: their source; or both sides in one .tsv, .jsonl or .parquet.
    target
        Their target, line by line.
    noise
        Probability of leaving out and of blanking a word of a synthetic source, as in --noise 0.1; words then move too.
    seed
        The source of the noise.
    beam
        Hypotheses kept for every sentence; 1 is greedy and fast.
    time
        A wall-clock budget for training, such as 90s, 30m or 2h.
    device
        cpu, cuda or cuda:N; the best there is by default.
    resume
        Go on with the training where it stopped.
    set_
        Any setting of the recipe, as in --set model.preset=small; may be repeated.
    """
    if not 0.0 <= noise < 1.0:
        raise ConfigError(f"--noise {noise}: is not a probability below 1; try 0.1")
    if not 0 <= seed < 1 << 32:
        raise ConfigError(f"--seed {seed}: give 0 or more, and less than {1 << 32}")
    if source is None and (target is not None or time is not None or resume or set_):
        raise ConfigError("--source: missing; without true pairs nothing is trained")
    from headway.assemble import choose_device
    from headway.cli.synthetic import Run
    from headway.cli.terminal import Terminal
    from headway.data.noise import noised
    from headway.data.text import read_lines, refuse_streams
    from headway.synthesis import translations

    refuse_streams(monolingual, source, target)
    run = Run(out, choose_device(device), resume=resume, time=time, settings=set_ or ())
    if run.begun:
        return run.go_on()
    model = run.load(reverse, beam)
    work = translations(model, reverse, (monolingual,), lambda: read_lines(monolingual), out / "translations")

    def pairs(counts: Counter[str]) -> Iterator[tuple[str, str]]:
        for number, (line, output) in enumerate(work.pairs(counts)):
            yield noised(output, noise, random.Random(f"{seed} {number}")) if noise else output, line

    with Terminal() as screen:
        if source is not None:
            run.rehearse(work, lambda folder: _mixture(run, source, target, folder), screen)
        folder = run.make(work, pairs, {"noise": noise, "seed": seed}, screen)
        if source is not None:
            run.train(_mixture(run, source, target, out), screen)
    if source is None:
        print(folder)
    return None


def _mixture(run: "Run", source: Path, target: Path | None, folder: Path) -> "Recipe":
    """True pairs and the synthetic ones of the folder, these with a tag; those to validate on are true ones there."""
    from headway.cli.synthetic import PAIRS, sides_of

    true = {"source": str(source.absolute())} | ({} if target is None else {"target": str(target.absolute())})
    data: dict[str, Any] = {"corpora": [true, sides_of(folder / PAIRS) | {"tags": [TAG]}]}
    if "valid_source" in run.given.get("data", {}):
        return run.recipe({"data": data}, folder)
    data |= {f"valid_{side}": path for side, path in sides_of(folder / VALID).items()}
    recipe = run.recipe({"data": data}, folder)
    _hold_out(recipe.data, folder / VALID)
    return recipe


def _hold_out(data: "DataConfig", folder: Path) -> None:
    """Write evenly spaced true pairs to validate on; training leaves pairs with their sources out of itself.

    Were it left to training to choose them, synthetic ones would be among them.
    """
    from headway.data.pairs import read_pairs
    from headway.folders import sha256
    from headway.synthesis import write_pairs

    true = data.training()[0]

    def pairs() -> Iterator[tuple[str, str]]:
        every = read_pairs(true, invalid=data.invalid)
        return ((pair.source, pair.target) for pair in every if pair.source.strip() and pair.target.strip())

    total = sum(1 for _ in pairs())
    step = total // data.held_out_of(total) if total >= 20 else 2
    facts = {"text": [sha256(path) for path in true.paths], "step": step}
    write_pairs(folder, lambda _: islice(pairs(), step // 2, None, step), facts)

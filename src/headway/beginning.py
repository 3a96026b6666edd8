"""Runs that begin and go on: data prepared, every choice made, both written down."""

from pathlib import Path

import torch

from headway.building import arithmetic_of, build_model, capturable, feed_of, longest_of, objective_of, optimiser_of
from headway.choices import Choices, choose, conditions
from headway.config import read_toml, validated, write_toml
from headway.data.preparation import Prepared, divide, overlap, prepare, reopen
from headway.disk import write_text
from headway.errors import ConfigError, FolderError
from headway.objectives import check_alignable, check_guidance, without_path
from headway.recipe import MAY_CHANGE, Recipe, differences
from headway.run_folder import CONFIG, DATA, held, undone
from headway.screen import Screen
from headway.start import open_start
from headway.training.config import TrainingConfig
from headway.training.memory import Probe, largest_budget
from headway.training.optimiser import freeze
from headway.training.passes import Pass
from headway.training.signals import Stopper

MOST_VALIDATIONS = 30
"""Validations of a run that is to end after a number of epochs, unless they are far apart."""
AGAIN = "give the same command again"
"""What to do when nothing was begun yet."""


def begin(
    recipe: Recipe,
    out: Path,
    *,
    device: torch.device,
    screen: Screen,
    processes: int = 1,
    pairs: int | None = None,
) -> None:
    """Prepare a run in `out`, so that so many other processes can resume it at step 0.

    Where the corpus is a sample, `pairs` are those of the whole.
    """
    with Stopper() as stopper, held(out) as run, undone(run):
        stopper.hasty = AGAIN
        prepare_run(recipe, out, device, screen, processes, pairs)


def prepare_run(
    recipe: Recipe, out: Path, device: torch.device, screen: Screen, processes: int, pairs: int | None = None
) -> None:
    """Prepare the data, make every open choice and write both down; the run then only has to be resumed."""
    if (out / CONFIG).exists():
        raise FolderError(f"{out}: already holds a run; go on with --resume, or choose another --out")
    start = open_start(recipe.start) if recipe.start is not None else None
    if start is not None:
        kept = {"model": start.model_config(recipe.model), "tokenizer": start.tokenizer_config(recipe.tokenizer)}
        recipe = recipe.model_copy(update=kept)
    split = divide(recipe.data, screen.working)
    given, followed = recipe, conditions(recipe, split, device, processes, pairs)
    chosen = choose(given, *followed)
    recipe = chosen.recipe
    _say(chosen, screen)
    assert recipe.model is not None and recipe.training.layout is not None  # chosen just now
    training = recipe.training
    check_guidance(training.guided_alignment, recipe.data, recipe.tokenizer, training.layout, recipe.model)
    check_alignable(recipe.model, recipe.data, recipe.tokenizer)
    prepared = prepare(
        recipe.data,
        recipe.tokenizer,
        out / DATA,
        longest=recipe.model.longest,
        split=split,
        report=screen.working,
        tokenizers=start.tokenizers(recipe.data, split, screen.working) if start is not None else None,
        aligned=recipe.model.aligned,
    )
    long = {f"over {recipe.model.longest - 1} tokens": prepared.store.dropped}
    left = "".join(f", {n} left out ({why})" for why, n in (prepared.split.left_out | long).items() if n)
    units = "pairs" if recipe.data.text is None else "texts"
    screen.say(f"{len(prepared.store)} training {units}, {len(split.valid)} for validation{left}")
    if len(prepared.store.corpora) > 1:
        sizes = zip(recipe.data.names, prepared.store.corpora, strict=True)
        screen.say("; ".join(f"{pairs} pairs of {name}" for name, pairs in sizes))
    store = prepared.store
    if lost := without_path(recipe.model, store.source_lengths, store.target_lengths):
        screen.say(f"{lost} training pairs have more target tokens than slots: raise model.upsample to learn from them")
    common = overlap(recipe.data, split)
    if common:
        screen.say(f"warning: the sources of {common} training pairs stand in {recipe.data.test_source} too")
    with torch.device("meta"):  # what is wrong with the model is said before hours pass
        freeze(build_model(recipe, prepared), recipe.training.freeze)
    if recipe.training.batch_tokens == "auto":
        found = _largest_budget(recipe, prepared, device, screen, pairs)
        chosen = choose(_changed(given, batch_tokens=found), *followed)  # what follows from the batch
        recipe = chosen.recipe
        _say(chosen, screen)
    epoch = len(feed_of(recipe, prepared, out).plan(recipe.training.curriculum))
    if recipe.training.validate_every is None and recipe.training.time is None:
        recipe = _changed(recipe, validate_every=validation_interval(recipe.training, epoch, processes))
    write_text(out / CONFIG, write_toml(recipe))


def _say(chosen: Choices, screen: Screen) -> None:
    """Say what was chosen and what there is to know before time is spent."""
    for line in (chosen.summary, *chosen.warnings):
        screen.say(line)


def validation_interval(training: TrainingConfig, batches: int, processes: int) -> int:
    """Updates between validations where no steps or time are set, by the batches of an epoch."""
    updates = batches // (training.accumulate * processes)
    return max(100, min(updates, 5000), updates * (training.epochs or 0) // MOST_VALIDATIONS)


def _changed(recipe: Recipe, **training: object) -> Recipe:
    return recipe.model_copy(update={"training": recipe.training.model_copy(update=training)})


def _largest_budget(recipe: Recipe, prepared: Prepared, device: torch.device, screen: Screen, pairs: int | None) -> int:
    """What `batch_tokens = "auto"` stands for: as large as memory allows, but no fewer than 20 batches an epoch."""
    screen.working("looking for the largest batch", 0, None)
    training, store = recipe.training, prepared.store
    model = build_model(recipe, prepared).to(device)
    freeze(model, training.freeze)
    forward = Pass(model, objective_of(recipe), recompute=training.recompute)
    optimiser = optimiser_of(training, model)
    longest = longest_of(recipe, prepared)
    probe = Probe(
        forward, optimiser, arithmetic_of(training, device), device, longest, packed=training.layout == "packed"
    )
    tokens = (max(store.manifest["tokens"]) + len(store)) * (pairs or len(store)) // len(store)
    room = probe.room // 2 if capturable(recipe, device) else probe.room  # a pass beside the memory of the graphs
    found = largest_budget(probe, smallest=longest, most=max(longest, tokens // 20), room=room)
    del forward, optimiser, probe, model
    if device.type == "cuda":
        torch.cuda.empty_cache()  # other processes may be going to need it
    screen.say(f"batch_tokens auto: {found}")
    return found


def stored_recipe(out: Path) -> Recipe:
    """The recipe a run was begun with, every choice made."""
    path = out / CONFIG
    if not path.is_file():
        raise FolderError(f"{out}: holds no run to resume; leave out --resume to begin one")
    return validated(Recipe, read_toml(path), str(path))


def repair(out: Path, screen: Screen) -> None:
    """Build again what is damaged in the data of a run and can be made from its corpus."""
    reopen(stored_recipe(out).data, out / DATA, screen.working)


def resumed(recipe: Recipe, out: Path, screen: Screen) -> tuple[Recipe, Prepared]:
    """The recipe of a begun run, with what may change at resume, and its data."""
    stored = stored_recipe(out)
    recipe = _completed(recipe, stored)  # every choice was made when the run began
    refused = [name for name in differences(stored, recipe) if name not in MAY_CHANGE]
    if refused:
        raise ConfigError(f"--resume: changed since the run began: {', '.join(refused)}; change them back")
    return recipe, reopen(stored.data, out / DATA, screen.working)


def _completed(recipe: Recipe, stored: Recipe) -> Recipe:
    """The recipe with what it leaves open taken from the stored one."""
    given = recipe.model_dump(exclude_unset=True, exclude_none=True)
    if given.get("training", {}).get("batch_tokens") == "auto":
        del given["training"]["batch_tokens"]  # it was found when the run began
    tree = stored.model_dump(exclude_none=True)
    changed = {name: value for name, value in given.get("training", {}).items() if value != tree["training"].get(name)}
    if "epochs" not in given.get("training", {}) and not changed.keys().isdisjoint({"steps", "time"}):
        tree["training"].pop("epochs", None)  # another end takes its place
    if recipe.model is not None and stored.model is not None and recipe.model.architecture != stored.model.architecture:
        raise ConfigError("--resume: changed since the run began: model.architecture; change it back")
    return Recipe.model_validate(
        {name: {**tree.get(name, {}), **given.get(name, {})} for name in tree.keys() | given.keys()}
    )

"""The composition root: from a recipe to everything wired; the only file that knows everything."""

import copy
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from torch import nn

from headway.allocator import keep_freed_memory
from headway.config import read_toml, validated, write_toml
from headway.data.feed import Feed
from headway.data.preparation import Prepared, divide, overlap, prepare, reopen
from headway.errors import ConfigError, FolderError, HeadwayError, UserError
from headway.finish import finish
from headway.folders import locked, write_text
from headway.models.catalog import CATALOG, Model, ModelConfig
from headway.nn.compiling import compiles
from headway.objectives import (
    ConsistentLikelihood,
    GuidedLikelihood,
    LabelSmoothedLikelihood,
    Objective,
    ScheduledSampling,
    check_guidance,
)
from headway.recipe import BIASED, MAY_CHANGE, Recipe, choose, differences
from headway.start import open_start, start_from_vectors
from headway.training.average import MovingAverage
from headway.training.captured import CapturedUpdates
from headway.training.checkpoint import Checkpoints
from headway.training.config import TrainingConfig
from headway.training.gradients import Gradients
from headway.training.journal import Journal, Unwritten
from headway.training.memory import Probe, largest_budget, out_of_memory
from headway.training.optimiser import Optimiser, freeze
from headway.training.parallel import Parallel, joined, own_device, restarted
from headway.training.progress import Progress
from headway.training.signals import Stopper
from headway.training.trainer import Pass, Trainer, Update
from headway.validation import Validator, validation_batches


@runtime_checkable
class Screen(Protocol):
    """Where a person follows the work."""

    def say(self, line: str) -> None:
        """Show a line that stays."""
        ...

    def working(self, what: str, done: int, total: int | None) -> None:
        """Show how far a piece of work is."""
        ...

    def updated(self, update: Update) -> None:
        """Show the latest update."""
        ...


class Silent:
    """The screen of a process that leaves speaking to the first one."""

    def say(self, line: str) -> None:
        """Show nothing."""

    def working(self, what: str, done: int, total: int | None) -> None:
        """Show nothing."""

    def updated(self, update: Update) -> None:
        """Show nothing."""


AGAIN = "give the same command again"
"""What to do when nothing was begun yet."""
SAMPLING_RAMP = 100_000
"""Updates scheduled sampling reckons with where their number is not known."""


def choose_device(name: str | None) -> torch.device:
    """The device by name, or the best there is."""
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"--device {name}: no such kind of device; use cpu, cuda or cuda:N")
    device = own_device(device)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"--device {name}: PyTorch sees {torch.cuda.device_count()} GPUs here; use --device cpu")
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)  # our kernels and graphs go to the current one
    return device


def train(recipe: Recipe, out: Path, *, device: torch.device, screen: Screen, resume: bool = False) -> Path:
    """Train in the run folder `out` and return the model folder; a mistake of the user's leaves nothing behind.

    Where torchrun has started several processes, all of them call this and train one model.
    """
    if resume:
        stored_recipe(out)  # which says that there is none before anything is made there
    training = recipe.training
    with Stopper() as stopper, deterministic(training), joined(device, sharded=training.sharded) as parallel:
        stopper.hasty = AGAIN  # there is nothing to save yet
        screen = screen if parallel.first else Silent()
        again = resume or (restarted() and (out / "config.toml").exists())
        begun = bool(parallel.exchange(int(again))[0][0])
        with _held(out) if parallel.first else nullcontext() as before:
            with _undone(before) if before and not begun else nullcontext():
                if not begun:
                    parallel.in_turn(lambda: _begin(recipe, out, device, screen, parallel.world))
                stopper.hasty = "go on with --resume"
                recipe, prepared = _resumed(recipe, out, device)
                trainer = trainer_of(recipe, prepared, out, device, screen, parallel, stopper)
            with trainer.journal:
                screen.say(f"training on {device}: {_described(trainer.model, prepared, recipe, parallel)}")
                stopper.hasty = ""
                reason = _fitted(trainer)
                screen.say(f"training ends: {reason}")
                parallel.in_turn(lambda: finish(trainer, prepared, recipe, out, screen.say))
                screen.say(f"the model is in {out / 'best'}; try: headway translate {out} < FILE")
    return out / "best"


def _fitted(trainer: Trainer) -> str:
    try:
        return trainer.fit()
    except RuntimeError as error:
        if not out_of_memory(error):
            raise
        told = f"step {trainer.progress.step}: memory ran out in a validation or in the optimiser"
        raise HeadwayError(f"{told}; lower training.batch_tokens or the size of the model and resume") from None


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
    with Stopper() as stopper, _held(out) as before, _undone(before):
        stopper.hasty = AGAIN
        _begin(recipe, out, device, screen, processes, pairs)


@contextmanager
def deterministic(training: TrainingConfig) -> Iterator[None]:
    """Compute with deterministic kernels where the settings ask for them."""
    before = torch.are_deterministic_algorithms_enabled()
    if training.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when the GPU is first used
        torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


@dataclass(frozen=True)
class _Before:
    """A run folder as it was before a run began there."""

    out: Path
    missing: list[Path]
    """It and its parents, as far as they had to be made, innermost first."""
    held: set[Path]


@contextmanager
def _held(out: Path) -> Iterator[_Before]:
    """Hold the run folder, and remember what it was."""
    missing = [path for path in (out, *out.parents) if not path.exists()]
    with locked(out):
        yield _Before(out, missing, set(out.iterdir()))


@contextmanager
def _undone(before: _Before) -> Iterator[None]:
    """Where the user made a mistake, remove what was written, but never what was there or others put there."""
    try:
        yield
    except UserError:
        for path in set(before.out.iterdir()) - before.held:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        if before.held == {before.out / "lock"}:
            (before.out / "lock").unlink()
        with suppress(OSError):  # not empty
            for folder in before.missing:
                folder.rmdir()
        raise


def _begin(
    recipe: Recipe, out: Path, device: torch.device, screen: Screen, processes: int, pairs: int | None = None
) -> None:
    """Prepare the data, make every open choice and write both down; the run then only has to be resumed."""
    if (out / "config.toml").exists():
        raise FolderError(f"{out}: already holds a run; go on with --resume, or choose another --out")
    start = open_start(recipe.start) if recipe.start is not None else None
    if start is not None:
        kept = {"model": start.model_config(recipe.model), "tokenizer": start.tokenizer_config(recipe.tokenizer)}
        recipe = recipe.model_copy(update=kept)
    split = divide(recipe.data, screen.working)
    recipe = choose(recipe, split.pairs, device)
    assert recipe.model is not None and recipe.training.layout is not None  # chosen just now
    check_guidance(recipe.training.guided_alignment, recipe.data, recipe.tokenizer, recipe.training.layout)
    prepared = prepare(
        recipe.data,
        recipe.tokenizer,
        out / "data",
        longest=recipe.model.longest,
        split=split,
        report=screen.working,
        tokenizers=start.tokenizers(recipe.data, split, screen.working) if start is not None else None,
    )
    long = {f"over {recipe.model.longest - 1} tokens": prepared.store.dropped}
    left = "".join(f", {n} left out ({why})" for why, n in (prepared.split.left_out | long).items() if n)
    screen.say(f"{len(prepared.store)} training pairs, {len(split.valid)} for validation{left}")
    if len(prepared.store.corpora) > 1:
        sizes = zip(recipe.data.names, prepared.store.corpora, strict=True)
        screen.say("; ".join(f"{pairs} pairs of {name}" for name, pairs in sizes))
    common = overlap(recipe.data, split)
    if common:
        screen.say(f"warning: the sources of {common} training pairs stand in {recipe.data.test_source} too")
    with torch.device("meta"):  # what is wrong with the model is said before hours pass
        freeze(build_model(recipe, prepared), recipe.training.freeze)
    if recipe.training.batch_tokens == "auto":
        recipe = _changed(recipe, batch_tokens=_largest_budget(recipe, prepared, device, screen, pairs))
    epoch = len(feed_of(recipe, prepared, out).plan(recipe.training.curriculum))
    if recipe.training.validate_every is None and recipe.training.time is None:
        updates = epoch // (recipe.training.accumulate * processes)
        recipe = _changed(recipe, validate_every=max(100, min(updates, 5000)))
    write_text(out / "config.toml", write_toml(recipe))


def _changed(recipe: Recipe, **training: object) -> Recipe:
    return recipe.model_copy(update={"training": recipe.training.model_copy(update=training)})


def _largest_budget(recipe: Recipe, prepared: Prepared, device: torch.device, screen: Screen, pairs: int | None) -> int:
    """What `batch_tokens = "auto"` stands for: as large as memory allows, but no fewer than 20 batches an epoch."""
    screen.working("looking for the largest batch", 0, None)
    training, store = recipe.training, prepared.store
    model = build_model(recipe, prepared).to(device)
    freeze(model, training.freeze)
    forward, optimiser = Pass(model, objective_of(training)), optimiser_of(training, model)
    longest = _longest(recipe, prepared)
    probe = Probe(
        forward, optimiser, _arithmetic(training, device), device, longest, packed=training.layout == "packed"
    )
    tokens = (max(store.manifest["tokens"]) + len(store)) * (pairs or len(store)) // len(store)
    room = probe.room // 2 if _capturable(recipe, device) else probe.room  # a pass beside the memory of the graphs
    found = largest_budget(probe, smallest=longest, most=max(longest, tokens // 20), room=room)
    del forward, optimiser, probe, model
    if device.type == "cuda":
        torch.cuda.empty_cache()  # other processes may be going to need it
    screen.say(f"batch_tokens auto: {found}")
    return found


def _longest(recipe: Recipe, prepared: Prepared) -> int:
    """Cells of the longest sentence that training may meet."""
    assert recipe.model is not None  # chosen before
    if recipe.tokenizer.dropout:
        return recipe.model.longest
    store = prepared.store
    return 1 + max(int(lengths.max()) for lengths in (store.source_lengths, store.target_lengths))


def _arithmetic(training: TrainingConfig, device: torch.device) -> Callable[[], AbstractContextManager[object]]:
    """Where matrix products are computed in the configured precision."""
    return partial(torch.autocast, device.type, torch.bfloat16, enabled=training.precision == "bf16")


def stored_recipe(out: Path) -> Recipe:
    """The recipe a run was begun with, every choice made."""
    path = out / "config.toml"
    if not path.is_file():
        raise FolderError(f"{out}: holds no run to resume; leave out --resume to begin one")
    return validated(Recipe, read_toml(path), str(path))


def _resumed(recipe: Recipe, out: Path, device: torch.device) -> tuple[Recipe, Prepared]:
    stored = stored_recipe(out)
    recipe = choose(_completed(recipe, stored), 0, device)  # every choice was made when the run began
    refused = [name for name in differences(stored, recipe) if name not in MAY_CHANGE]
    if refused:
        raise ConfigError(f"--resume: changed since the run began: {', '.join(refused)}; change them back")
    prepared = reopen(stored.data, out / "data")
    if prepared is None:
        raise FolderError(f"{out}: its data was never prepared; remove the folder and begin again")
    return recipe, prepared


def _completed(recipe: Recipe, stored: Recipe) -> Recipe:
    """The recipe with what it leaves open taken from the stored one."""
    given = recipe.model_dump(exclude_unset=True, exclude_none=True)
    if given.get("training", {}).get("batch_tokens") == "auto":
        del given["training"]["batch_tokens"]  # it was found when the run began
    tree = stored.model_dump(exclude_none=True)
    return Recipe.model_validate(
        {name: {**tree.get(name, {}), **given.get(name, {})} for name in tree.keys() | given.keys()}
    )


def trainer_of(
    recipe: Recipe,
    prepared: Prepared,
    out: Path,
    device: torch.device,
    screen: Screen,
    parallel: Parallel,
    stopper: Stopper,
) -> Trainer:
    """Everything a begun run needs, wired, at its latest checkpoint."""
    training = recipe.training
    torch.manual_seed(training.seed)
    model = build_model(recipe, prepared)
    assert recipe.model is not None  # chosen before
    facts = {
        "kind": "checkpoint",
        "data": prepared.store.manifest["key"]["tokenizers"],
        "seed": training.seed,
        "model": recipe.model.model_dump(mode="json", exclude_defaults=True),
    }
    checkpoints = Checkpoints(out / "checkpoints", facts)
    latest = checkpoints.latest(screen.say) if parallel.first else None
    found = int(parallel.exchange(-1 if latest is None else latest)[0][0])
    if found < 0:
        _start(model, recipe, prepared, screen)
    if parallel.rank:  # the model began alike everywhere; from here on every process draws for itself
        torch.manual_seed((training.seed << 16) + parallel.rank)
    freeze(model, training.freeze)
    keep_freed_memory()
    divided = parallel.sharded and parallel.world > 1
    judged = copy.deepcopy(model).to(device) if training.ema or divided else None
    forward = parallel.distributed(Pass(model.to(device), objective_of(training), divided=divided), model)
    optimiser = optimiser_of(training, model)
    average = MovingAverage(model, training.ema) if training.ema else None
    progress = Progress(steps=_planned(training), time=training.time, world=parallel.world)
    if found >= 0:
        progress = _restored(checkpoints.load(found, model, optimiser, average, parallel), training, parallel, screen)
    arithmetic = _arithmetic(training, device)
    return Trainer(
        config=training,
        model=model,
        gradients=Gradients(forward, optimiser, parallel, device, arithmetic, screen.say, progress.cells),
        captured=_captured(recipe, prepared, forward, optimiser, arithmetic, device) if parallel.world == 1 else None,
        judged=judged,
        optimiser=optimiser,
        average=average,
        feed=feed_of(recipe, prepared, out),
        validate=Validator(
            source=prepared.source,
            target=prepared.target,
            pairs=prepared.split.valid,
            batches=validation_batches(prepared, recipe.model.longest),
            device=device,
            translated=training.validation_sentences,
            samples=training.samples,
        ),
        checkpoints=checkpoints,
        journal=Journal(out, screen.say, begins_at=progress.step) if parallel.first else Unwritten(),
        on_update=screen.updated,
        device=device,
        parallel=parallel,
        stopper=stopper,
        progress=progress,
    )


def _captured(
    recipe: Recipe,
    prepared: Prepared,
    forward: nn.Module,
    optimiser: Optimiser,
    arithmetic: Callable[[], AbstractContextManager[object]],
    device: torch.device,
) -> CapturedUpdates | None:
    """What takes updates by replaying graphs, where all of an update can be captured."""
    if not _capturable(recipe, device):
        return None
    budget, longest = recipe.training.batch_tokens, _longest(recipe, prepared)
    assert isinstance(budget, int)  # chosen before
    return CapturedUpdates(forward, optimiser, arithmetic, device, recipe.training.clip, budget, longest)


def _capturable(recipe: Recipe, device: torch.device) -> bool:
    """Whether nothing in an update depends on what the host knows only then, or takes room for every sentence."""
    training, model = recipe.training, recipe.model
    assert model is not None  # chosen before
    plain = training.accumulate == 1 and training.optimiser != "muon"
    plain = plain and not training.scheduled_sampling and not training.guided_alignment
    packed = training.layout == "packed" and training.precision == "bf16"
    packed = packed and model.positions not in BIASED and model.feedforward != "convolutional"
    return device.type == "cuda" and plain and packed and compiles()


def _planned(training: TrainingConfig) -> int | None:
    return training.steps if training.time is None else None


def _restored(progress: Progress, training: TrainingConfig, parallel: Parallel, screen: Screen) -> Progress:
    """The progress of a checkpoint under the settings and the number of processes of now."""
    if training.time is None or training.time != progress.time:
        progress = replace(progress, steps=_planned(training), time=training.time)
    screen.say(f"resuming at step {progress.step}")
    if progress.world != parallel.world:
        told = f"now with {parallel.world} instead of {progress.world} processes: dropout and sums differ from here on"
        screen.say(f"{told}; no pair is lost or repeated")
    # Divided models need as many passes in every process.
    return replace(progress, world=parallel.world, cells=None if parallel.sharded else progress.cells)


def objective_of(training: TrainingConfig) -> Objective:
    """What training minimises."""
    smoothing = training.label_smoothing
    if training.r_drop:
        return ConsistentLikelihood(smoothing, training.r_drop)
    if training.scheduled_sampling:
        ramp = (training.steps or SAMPLING_RAMP) // 2
        return ScheduledSampling(smoothing, training.scheduled_sampling, ramp)
    if training.guided_alignment:
        return GuidedLikelihood(smoothing, training.guided_alignment)
    return LabelSmoothedLikelihood(smoothing)


def optimiser_of(training: TrainingConfig, model: Model) -> Optimiser:
    """What moves the weights."""
    return Optimiser(model, training.optimiser, (training.beta1, training.beta2), training.weight_decay)


def _start(model: Model, recipe: Recipe, prepared: Prepared, screen: Screen) -> None:
    """Begin from another model, or from vectors, where the recipe says so."""
    if recipe.start is not None:
        open_start(recipe.start).fill(model, prepared.source, prepared.target)
        screen.say(f"beginning from the model in {recipe.start.model}")
    data = recipe.data
    sides = (
        (data.source_vectors, model.source_embedding, prepared.source),
        (data.target_vectors, model.target_embedding, prepared.target),
    )
    for path, embedding, tokenizer in sides:
        if path is not None:
            count = start_from_vectors(embedding, data.folder / path, tokenizer)
            screen.say(f"{count} of {tokenizer.size} tokens start from the vectors in {path}")


def build_model(recipe: Recipe, prepared: Prepared) -> Model:
    """A new model for the recipe."""
    assert recipe.model is not None  # chosen before
    _refuse_too_large(recipe.model, prepared.target.size)
    _, architecture = CATALOG[recipe.model.architecture]
    try:
        return architecture(recipe.model, prepared.source.size, prepared.target.size)
    except ValueError as error:
        raise ConfigError(f"model: {error}") from None


def _refuse_too_large(config: ModelConfig, vocabulary: int) -> None:
    """Refuse a model that this machine could not hold, before it is tried."""
    count = config.fewest_parameters(vocabulary)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if 16 * count > memory:  # weights, gradients and two moments of four bytes each
        told = f"{count / 1e6:,.0f} M parameters take {16 * count / 2**30:,.0f} GiB to train"
        raise ConfigError(f"model: {told}, the machine has {memory / 2**30:,.0f}; lower dim, hidden or the layers")


def feed_of(recipe: Recipe, prepared: Prepared, out: Path) -> Feed:
    """The batches of every epoch, as the recipe wants them."""
    training = recipe.training
    assert isinstance(training.batch_tokens, int) and training.layout and recipe.model is not None  # chosen before
    return Feed(
        prepared,
        seed=training.seed,
        budget=training.batch_tokens,
        layout=training.layout,
        folder=out / "data" / "plans",
        dropout=recipe.tokenizer.dropout,
        longest=recipe.model.longest - 1,
        curriculum=training.curriculum,
        word_dropout=recipe.data.word_dropout,
    )


def _described(model: Model, prepared: Prepared, recipe: Recipe, parallel: Parallel) -> str:
    count = sum(weight.numel() for weight in model.parameters())
    config, training = model.config, recipe.training
    kind = f"{training.layout}, {training.precision}"
    if parallel.world > 1:
        kind += f", {parallel.world} processes{' (sharded)' if parallel.sharded else ''}"
    return (
        f"{count / 1e6:.1f} M parameters, {config.encoder_layers}+{config.decoder_layers} layers of {config.dim}, "
        f"{prepared.target.size} known tokens, {training.batch_tokens} a batch, {kind}"
    )

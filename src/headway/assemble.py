"""The composition root: from a recipe to everything wired; the only file that knows everything."""

import copy
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from headway.allocator import keep_freed_memory
from headway.beginning import AGAIN, prepare_run, repair, resumed, stored_recipe
from headway.building import (
    arithmetic_of,
    build_model,
    capturable,
    feed_of,
    judged_by,
    longest_of,
    objective_of,
    optimiser_of,
)
from headway.data.preparation import Prepared
from headway.disk import present
from headway.errors import ConfigError, FolderError, HeadwayError, out_of_memory
from headway.finish import finish
from headway.models.model import Autoregressive, Model
from headway.recipe import Recipe
from headway.run_folder import BEST, CHECKPOINTS, CONFIG, held, undone
from headway.runtime.threads import limit_torch_threads
from headway.screen import Screen, Silent
from headway.start import initialise_tables, open_start, start_from_vectors
from headway.training.average import MovingAverage
from headway.training.captured import CapturedUpdates
from headway.training.checkpoint import Checkpoints, parameters
from headway.training.config import TrainingConfig
from headway.training.gradients import Gradients
from headway.training.journal import Journal, Unwritten
from headway.training.optimiser import Optimiser, freeze
from headway.training.parallel import Parallel, joined, own_device, restarted
from headway.training.passes import Pass
from headway.training.progress import Progress
from headway.training.signals import Stopper
from headway.training.trainer import Trainer
from headway.validation import Validator, log_frequencies, validation_batches


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
    limit_torch_threads()
    training = recipe.training
    with Stopper() as stopper, deterministic(training), joined(device, sharded=training.sharded) as parallel:
        stopper.hasty = AGAIN  # there is nothing to save yet
        screen = screen if parallel.first else Silent()
        again = resume or (restarted() and (out / CONFIG).exists())
        begun = bool(parallel.exchange(int(again))[0][0])
        with held(out) if parallel.first else nullcontext() as run:
            with undone(run) if run and not begun else nullcontext():
                if not begun:
                    parallel.in_turn(lambda: prepare_run(recipe, out, device, screen, parallel.world))
                elif parallel.world > 1:  # what is damaged is built again once
                    parallel.in_turn(lambda: repair(out, screen))
                stopper.hasty = "go on with --resume"
                recipe, prepared = resumed(recipe, out, screen)
                trainer = trainer_of(recipe, prepared, out, device, screen, parallel, stopper)
            with trainer.journal:
                screen.say(f"training on {device}: {_described(trainer.model, prepared, recipe, parallel)}")
                stopper.hasty = ""
                reason = _fitted(trainer)
                screen.say(f"training ends: {reason}")
                parallel.in_turn(lambda: finish(trainer, prepared, recipe, out, screen.say))
                use = f"translate {out} < FILE" if recipe.data.text is None else f"sample {out}"
                screen.say(f"the model is in {out / BEST}; try: headway {use}")
    return out / BEST


def _fitted(trainer: Trainer) -> str:
    try:
        return trainer.fit()
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        told = f"step {trainer.progress.step}: memory ran out in a validation or in the optimiser"
        raise HeadwayError(f"{told}; lower training.batch_tokens or the size of the model and resume") from None


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
    assert recipe.model is not None and training.validation_sentences is not None  # chosen before
    facts = {
        "kind": "checkpoint",
        "data": [prepared.source.fingerprint(), prepared.target.fingerprint()],
        "seed": training.seed,
        "model": recipe.model.model_dump(mode="json", exclude_defaults=True),
    }
    checkpoints = Checkpoints(out / CHECKPOINTS, facts)
    latest = _latest(checkpoints, out, screen) if parallel.first else None
    found = int(parallel.exchange(-1 if latest is None else latest)[0][0])
    if found < 0:
        _start(model, recipe, prepared, screen)
    if parallel.rank:  # the model began alike everywhere; from here on every process draws for itself
        torch.manual_seed((training.seed << 16) + parallel.rank)
    freeze(model, training.freeze)
    keep_freed_memory()
    divided = parallel.sharded and parallel.world > 1
    judged = copy.deepcopy(model).to(device) if training.ema or divided else None
    step = Pass(model.to(device), objective_of(recipe), divided=divided, recompute=training.recompute)
    forward = parallel.distributed(step, model)
    optimiser = optimiser_of(training, model)
    average = MovingAverage(model, training.ema) if training.ema else None
    progress = replace(Progress(world=parallel.world), **_ends(training))
    if found >= 0:
        progress = _restored(checkpoints.load(found, model, optimiser, average, parallel), training, parallel, screen)
    arithmetic = arithmetic_of(training, device)
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
            batches=validation_batches(prepared, recipe.model.longest, most=training.validation_pairs),
            device=device,
            translated=training.validation_sentences,
            samples=training.samples,
            objective=judged_by(recipe.model),
        ),
        checkpoints=checkpoints,
        journal=Journal(out, screen.say, begins_at=progress.step) if parallel.first else Unwritten(),
        on_update=screen.updated,
        device=device,
        parallel=parallel,
        stopper=stopper,
        progress=progress,
        initial_weights=partial(_initial_weights, recipe, prepared, device),
    )


def _latest(checkpoints: Checkpoints, out: Path, screen: Screen) -> int | None:
    """The newest sound checkpoint; None where training has not come to one. A run that has lost them is refused."""
    told: list[str] = []
    latest = checkpoints.latest(told.append)
    if latest is None and (checkpoints.steps() or present(out / BEST)):
        lost = (
            told[0].removeprefix("skipped a checkpoint: ") if told else f"{checkpoints.folder}: no checkpoint is left"
        )
        remedy = f"begin another run with --from {out}" if present(out / BEST) else "begin another run"
        raise FolderError(f"{lost.partition(';')[0]}; the run cannot be resumed, {remedy} in another --out")
    for line in told:
        screen.say(line)
    checkpoints.refuse_foreign(-1 if latest is None else latest)
    return latest


def _initial_weights(recipe: Recipe, prepared: Prepared, device: torch.device) -> dict[str, Tensor]:
    """The weights a run begins with, built once more; no generator moves on."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(recipe.training.seed)
        model = build_model(recipe, prepared)
        _start(model, recipe, prepared, Silent())
    return parameters(model)


def _captured(
    recipe: Recipe,
    prepared: Prepared,
    forward: nn.Module,
    optimiser: Optimiser,
    arithmetic: Callable[[], AbstractContextManager[object]],
    device: torch.device,
) -> CapturedUpdates | None:
    """What takes updates by replaying graphs, where all of an update can be captured."""
    if not capturable(recipe, device):
        return None
    budget, longest = recipe.training.batch_tokens, longest_of(recipe, prepared)
    assert isinstance(budget, int)  # chosen before
    return CapturedUpdates(forward, optimiser, arithmetic, device, recipe.training.clip, budget, longest)


def _ends(training: TrainingConfig) -> dict[str, Any]:
    """What is asked for as the end of a run, and the steps planned for it where they are known before it begins."""
    planned = training.steps if training.time is None else None
    return {"steps": planned, "time": training.time, "asked": training.steps, "epochs": training.epochs}


def _restored(progress: Progress, training: TrainingConfig, parallel: Parallel, screen: Screen) -> Progress:
    """The progress of a checkpoint under the settings and the number of processes of now."""
    ends = _ends(training)
    same = all(getattr(progress, name) == ends[name] for name in ("time", "asked", "epochs"))
    counted = training.time is None and training.epochs is not None  # the steps of so many epochs
    if not same or (counted and progress.world != parallel.world):
        progress = replace(progress, **ends)
    screen.say(f"resuming at step {progress.step}")
    if progress.world != parallel.world:
        told = f"now with {parallel.world} instead of {progress.world} processes: dropout and sums differ from here on"
        screen.say(f"{told}; no pair is lost or repeated")
    # Divided models need as many passes in every process.
    return replace(progress, world=parallel.world, cells=None if parallel.sharded else progress.cells)


def _start(model: Model, recipe: Recipe, prepared: Prepared, screen: Screen) -> None:
    """Begin from another model, or from vectors, where the recipe says so; else set what can be known before."""
    if recipe.start is not None:
        open_start(recipe.start).fill(model, prepared.source, prepared.target)
        screen.say(f"beginning from the model in {recipe.start.model}")
    elif isinstance(model, Autoregressive):
        initialise_tables(model, log_frequencies(prepared))
    data = recipe.data
    sides = (
        (data.source_vectors, model.source_embedding, prepared.source),
        (data.target_vectors, model.target_embedding, prepared.target),
    )
    for path, embedding, tokenizer in sides:
        if path is not None:
            count = start_from_vectors(embedding, data.folder / path, tokenizer)
            screen.say(f"{count} of {tokenizer.size} tokens start from the vectors in {path}")


def _described(model: Model, prepared: Prepared, recipe: Recipe, parallel: Parallel) -> str:
    count = sum(weight.numel() for weight in model.parameters())
    config, training = model.config, recipe.training
    kind = f"{training.layout}, {training.precision}"
    if parallel.world > 1:
        kind += f", {parallel.world} processes{' (sharded)' if parallel.sharded else ''}"
    return (
        f"{count / 1e6:.1f} M parameters, {config.shape_in_words}, "
        f"{prepared.target.size} known tokens, {training.batch_tokens} a batch, {kind}"
    )

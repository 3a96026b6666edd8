"""The composition root: from a recipe to everything wired; the only file that knows everything."""

import os
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch

import headway
from headway.allocator import keep_freed_memory
from headway.config import read_toml, validated, write_toml
from headway.data.feed import Feed
from headway.data.preparation import Prepared, divide, overlap, prepare, reopen
from headway.data.tokenizer import Tokenizer
from headway.data.vectors import read_vectors
from headway.errors import ConfigError, FolderError, UserError
from headway.folders import locked, read_manifest, write_text
from headway.models.catalog import CATALOG, Model, ModelConfig
from headway.nn.embedding import Embedding
from headway.objectives import LabelSmoothedLikelihood
from headway.recipe import MAY_CHANGE, Recipe, choose, differences
from headway.training.checkpoint import Checkpoints, load_parameters
from headway.training.journal import Journal
from headway.training.progress import Progress
from headway.training.trainer import Trainer, Update, Validation
from headway.translator import Translator
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


def choose_device(name: str | None) -> torch.device:
    """The device by name, or the best there is."""
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"--device {name}: no such kind of device; use cpu, cuda or cuda:N")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"--device {name}: PyTorch sees {torch.cuda.device_count()} GPUs here; use --device cpu")
    return device


def train(recipe: Recipe, out: Path, *, device: torch.device, screen: Screen, resume: bool = False) -> Path:
    """Train in the run folder `out` and return the model folder; a mistake of the user's leaves nothing behind."""
    missing = [path for path in (out, *out.parents) if not path.exists()]
    with locked(out):
        before = set(out.iterdir())
        try:
            recipe, prepared = _resumed(recipe, out, device) if resume else _begun(recipe, out, device, screen)
            trainer = _trainer(recipe, prepared, out, device, screen, resume=resume)
        except UserError:
            if not resume:
                _remove(out, before, missing)
            raise
        with trainer.journal:
            screen.say(f"training on {device}: {_described(trainer.model, prepared, recipe)}")
            reason = trainer.fit()
            screen.say(f"training ends: {reason}")
            return _finished(trainer, prepared, recipe, out, screen)


def _remove(out: Path, before: set[Path], missing: list[Path]) -> None:
    """Remove what a refused run has written and the folders made for it, but never what was there or others put there.

    Called while the lock is held.
    """
    for path in set(out.iterdir()) - before:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    if before == {out / "lock"}:
        (out / "lock").unlink()
    with suppress(OSError):  # not empty
        for folder in missing:
            folder.rmdir()


def _begun(recipe: Recipe, out: Path, device: torch.device, screen: Screen) -> tuple[Recipe, Prepared]:
    if (out / "config.toml").exists():
        raise FolderError(f"{out}: already holds a run; go on with --resume, or choose another --out")
    split = divide(recipe.data, screen.working)
    recipe = choose(recipe, split.pairs, device)
    assert recipe.model is not None  # chosen just now
    prepared = prepare(
        recipe.data, recipe.tokenizer, out / "data", longest=recipe.model.longest, split=split, report=screen.working
    )
    long = {f"over {recipe.model.longest - 1} tokens": prepared.store.dropped}
    left = "".join(f", {n} left out ({why})" for why, n in (prepared.split.left_out | long).items() if n)
    screen.say(f"{len(prepared.store)} training pairs, {len(split.valid)} for validation{left}")
    common = overlap(recipe.data, split)
    if common:
        screen.say(f"warning: the sources of {common} training pairs stand in {recipe.data.test_source} too")
    epoch = len(feed_of(recipe, prepared, out).plan(0)) // recipe.training.accumulate
    if recipe.training.validate_every is None and recipe.training.time is None:
        training = recipe.training.model_copy(update={"validate_every": max(100, min(epoch, 5000))})
        recipe = recipe.model_copy(update={"training": training})
    write_text(out / "config.toml", write_toml(recipe))
    return recipe, prepared


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
    groups = {name: getattr(stored, name) for name in Recipe.model_fields}
    given = recipe.model_dump(exclude_none=True)
    return Recipe.model_validate(
        {name: {**group.model_dump(), **given.get(name, {})} for name, group in groups.items()}
    )


def _trainer(
    recipe: Recipe, prepared: Prepared, out: Path, device: torch.device, screen: Screen, *, resume: bool
) -> Trainer:
    torch.manual_seed(recipe.training.seed)
    model = build_model(recipe, prepared)
    keep_freed_memory()
    training = recipe.training
    facts = {"kind": "checkpoint", "data": prepared.store.manifest["key"]["tokenizers"]}
    checkpoints = Checkpoints(out / "checkpoints", facts)
    optimiser = torch.optim.Adam(
        model.to(device).parameters(), lr=0.0, betas=(training.beta1, training.beta2), eps=1e-9, fused=True
    )
    planned = training.steps if training.time is None else None
    progress = Progress(steps=planned, time=training.time)
    found = checkpoints.latest(screen.say) if resume else None
    if found is None:
        _start_from_vectors(model, recipe, prepared, screen)
    else:
        progress = checkpoints.load(found, model, optimiser)
        if training.time is None or training.time != progress.time:
            progress = replace(progress, steps=planned, time=training.time)
        screen.say(f"resuming at step {progress.step}")
    assert recipe.model is not None  # chosen before
    return Trainer(
        config=training,
        model=model,
        optimiser=optimiser,
        objective=LabelSmoothedLikelihood(training.label_smoothing),
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
        journal=Journal(out, screen.say, resumed_at=progress.step if resume else None),
        on_update=screen.updated,
        device=device,
        progress=progress,
    )


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


def _start_from_vectors(model: Model, recipe: Recipe, prepared: Prepared, screen: Screen) -> None:
    data = recipe.data
    sides = (
        (data.source_vectors, model.source_embedding, prepared.source),
        (
            data.target_vectors,
            model.target_embedding,
            prepared.target,
        ),
    )
    for path, embedding, tokenizer in sides:
        if path is not None:
            count = start_from_vectors(embedding, data.folder / path, tokenizer)
            screen.say(f"{count} of {tokenizer.size} tokens start from the vectors in {path}")


def start_from_vectors(embedding: Embedding, path: Path, tokenizer: Tokenizer) -> int:
    """Set the embedding of every token that is a word of the vector file; returns how many were found.

    A looked-up embedding then is the vector itself.
    """
    words = tokenizer.words()
    vectors, width = read_vectors(path, words.keys())
    if width != embedding.weight.shape[1]:
        raise ConfigError(f"{path}: vectors of {width} features, model.dim is {embedding.weight.shape[1]}; set it so")
    with torch.no_grad():
        for word, vector in vectors.items():
            embedding.weight[words[word]] = torch.from_numpy(vector) / embedding.scale
    return len(vectors)


def feed_of(recipe: Recipe, prepared: Prepared, out: Path) -> Feed:
    """The batches of every epoch, as the recipe wants them."""
    training = recipe.training
    assert training.batch_tokens and training.layout and recipe.model is not None  # chosen before
    return Feed(
        prepared,
        seed=training.seed,
        budget=training.batch_tokens,
        layout=training.layout,
        folder=out / "data" / "plans",
        dropout=recipe.tokenizer.dropout,
        longest=recipe.model.longest - 1,
    )


def _described(model: Model, prepared: Prepared, recipe: Recipe) -> str:
    count = sum(weight.numel() for weight in model.parameters())
    config, training = model.config, recipe.training
    return (
        f"{count / 1e6:.1f} M parameters, {config.encoder_layers}+{config.decoder_layers} layers of {config.dim}, "
        f"{prepared.target.size} known tokens, {training.batch_tokens} a batch, {training.layout}, {training.precision}"
    )


def _finished(trainer: Trainer, prepared: Prepared, recipe: Recipe, out: Path, screen: Screen) -> Path:
    """Average the best checkpoints, keep the average if it is better than the best one, and write the model."""
    folder, step = out / "best", trainer.progress.step
    if folder.is_dir() and read_manifest(folder).get("step") == step:
        screen.say(f"the model in {folder} is already that of step {step}: nothing to do")
        return folder
    steps = [number for _, number in trainer.progress.best if trainer.checkpoints.sound(number, screen.say)]
    if not steps:
        raise FolderError(f"{out}: none of its best checkpoints is whole; train again in another folder")
    candidates = [steps[:1], steps] if len(steps) > 1 else [steps]
    model, outcomes = trainer.model.eval(), []
    for candidate in candidates:
        load_parameters(model, trainer.checkpoints.average(candidate), str(out))
        with torch.no_grad(), trainer.arithmetic():
            outcomes.append((trainer.validate(model, lambda: None), candidate))
    sign = 1 if recipe.training.metric == "loss" else -1
    found, chosen = min(outcomes, key=lambda outcome: sign * outcome[0].scores[recipe.training.metric])
    if chosen != candidates[-1]:
        load_parameters(model, trainer.checkpoints.average(chosen), str(out))
    told = ", ".join(f"{name} {value:.3f}" for name, value in found.scores.items())
    kind = f"the average of {len(chosen)} checkpoints" if len(chosen) > 1 else "the best checkpoint"
    screen.say(f"the model is {kind}: {told}")
    trainer.journal.scalars(step, {f"final/{name}": value for name, value in found.scores.items()})
    translator = Translator(model, prepared.source, prepared.target, recipe.decoding)
    old = out / "best.old"
    shutil.rmtree(old, ignore_errors=True)  # what a kill has left
    if folder.exists():
        folder.rename(old)
    translator.save(folder, scores=found.scores, readme=model_card(recipe, found, step), step=step)
    shutil.rmtree(old, ignore_errors=True)
    return folder


def model_card(recipe: Recipe, found: Validation, step: int) -> str:
    """The README of a model folder."""
    scores = "\n".join(f"| {name} | {value:.3f} |" for name, value in found.scores.items())
    return f"""# A Headway model

Trained by Headway {headway.__version__} for {step} updates on `{recipe.data.source.name}`.
The licence of the training data decides how it may be used.

| validation | |
| --- | --- |
{scores}

BLEU and chrF are sacreBLEU's with default settings, greedy decoding, on at most
{recipe.training.validation_sentences} validation sentences.

    headway translate FOLDER < in > out
"""

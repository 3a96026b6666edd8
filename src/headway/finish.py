"""The end of a run: the best checkpoints become the model."""

from collections.abc import Callable
from pathlib import Path

import torch

import headway
from headway.data.preparation import Prepared
from headway.errors import FolderError, HeadwayError
from headway.folders import verify_folder
from headway.models.model import Autoregressive, Model
from headway.objectives import guided_head
from headway.recipe import Recipe
from headway.run_folder import BEST
from headway.training.checkpoint import load_parameters
from headway.training.trainer import Trainer, Validation
from headway.translator import Translator
from headway.validation import Validator, unigram_loss


def finish(trainer: Trainer, prepared: Prepared, recipe: Recipe, out: Path, say: Callable[[str], None]) -> None:
    """Average the best checkpoints, keep the average if it is better than the best one, and write the model."""
    folder, step = out / BEST, trainer.progress.step
    if _finished(folder, step):
        say(f"the model in {folder} is already that of step {step}: nothing to do")
        return
    if not trainer.progress.best:
        raise HeadwayError(f"{out}: no validation was finite; lower the learning rate and train in another folder")
    steps = [number for _, number in trainer.progress.best if trainer.checkpoints.sound(number, say)]
    if not steps:
        raise FolderError(f"{out}: none of its best checkpoints is whole; train again in another folder")
    candidates = [steps[:1], steps] if len(steps) > 1 else [steps]
    model, outcomes = (trainer.judged or trainer.model).eval(), []
    for candidate in candidates:
        load_parameters(model, trainer.checkpoints.average(candidate), str(out))
        with torch.no_grad(), trainer.arithmetic():
            outcomes.append((trainer.validate(model, lambda: trainer.stopper.check(step)), candidate))
    found, chosen = min(outcomes, key=lambda outcome: trainer.rank(outcome[0].scores))
    if chosen != candidates[-1]:
        load_parameters(model, trainer.checkpoints.average(chosen), str(out))
    told = ", ".join(f"{name} {value:.3f}" for name, value in found.scores.items())
    kind = f"the average of {len(chosen)} checkpoints" if len(chosen) > 1 else "the best checkpoint"
    say(f"the model is {kind}: {told}")
    assert isinstance(trainer.validate, Validator)
    _warn_if_untrained(model, found, unigram_loss(prepared, trainer.validate.batches), say)
    trainer.journal.scalars(step, {f"final/{name}": value for name, value in found.scores.items()})
    guided = guided_head(model.config) if recipe.training.guided_alignment else None
    translator = Translator(model, prepared.source, prepared.target, recipe.decoding, guided=guided)
    translator.save(folder, scores=found.scores, readme=model_card(recipe, found, step), step=step, replace=True)


def _warn_if_untrained(model: Model, found: Validation, unigram: float, say: Callable[[str], None]) -> None:
    """Say so where a model has learned next to nothing."""
    loss = found.scores["loss"]
    if isinstance(model, Autoregressive) and loss > unigram:
        told = f"its loss {loss:.2f} is no better than guessing by frequency ({unigram:.2f})"
        say(f"warning: the model has learned next to nothing: {told}; train longer or give more data")
    elif found.constant:
        say("warning: the model gives the same translation for every input; train longer or give more data")


def _finished(folder: Path, step: int) -> bool:
    """Whether the model of this step is there, whole."""
    try:
        return bool(verify_folder(folder).get("step") == step)
    except FolderError:
        return False


def model_card(recipe: Recipe, found: Validation, step: int) -> str:
    """The README of a model folder."""
    scores = "\n".join(f"| {name} | {value:.3f} |" for name, value in found.scores.items())
    told = f"""BLEU and chrF are sacreBLEU's with default settings, greedy decoding, on at most
{recipe.training.validation_sentences} validation sentences.

    headway translate FOLDER < in > out"""
    if recipe.data.text is not None:
        told = """Loss is in nats a token, perplexity is e to it.

    headway sample FOLDER
    headway score FOLDER --target FILE"""
    return f"""# A Headway model

Trained by Headway {headway.__version__} for {step} updates on `{"`, `".join(recipe.data.names)}`.
The licence of the training data decides how it may be used.

| validation | |
| --- | --- |
{scores}

{told}
"""

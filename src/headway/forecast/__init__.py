"""A forecast: what a run will take of this machine's memory and of your time, before an hour is spent."""

import math
import os
import platform
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from headway.assemble import deterministic, trainer_of
from headway.beginning import validation_interval
from headway.data.feed import Feed
from headway.forecast.ending import Epochs, ending
from headway.forecast.measurement import Measured, measure
from headway.forecast.report import Forecast
from headway.forecast.sizes import Shapes, memory_by_part, outline, parameters, traffic
from headway.models.model import Model
from headway.recipe import Recipe
from headway.runtime.threads import limit_torch_threads
from headway.screen import Screen
from headway.training.config import TrainingConfig
from headway.training.parallel import ALONE
from headway.training.signals import Stopper
from headway.training.trainer import Trainer
from headway.trial import Sample, memory, sample

__all__ = ["SAMPLE", "Forecast", "forecast"]

SAMPLE = 30_000
"""Pairs looked at, spread over the corpus."""
SETTINGS = ("batch_tokens", "accumulate", "layout", "precision", "optimiser")
"""Settings of training that decide what an update costs."""


def forecast(recipe: Recipe, *, device: torch.device, screen: Screen, processes: int = 1) -> Forecast:
    """Measure a few seconds of the recipe's training on a sample of its corpus, and reckon up the rest.

    Nothing is kept. With several processes a CPU's threads are divided among them, as in training.
    """
    limit_torch_threads()
    threads = torch.get_num_threads()
    with tempfile.TemporaryDirectory(prefix="headway-") as name, deterministic(recipe.training):
        begun, run = time.monotonic(), Path(name) / "run"
        taken = sample(recipe, Path(name), most=SAMPLE, device=device, screen=screen, processes=processes)
        if recipe.training.validate_every is None and recipe.training.steps is None:  # an epoch of the sample is short
            taken = replace(taken, recipe=_validated_every(taken.recipe, None))
        preparation = (time.monotonic() - begun) * taken.pairs / len(taken.prepared.store)
        if device.type == "cpu":
            torch.set_num_threads(max(1, threads // processes))
        try:
            trainer = trainer_of(taken.recipe, taken.prepared, run, device, screen, ALONE, Stopper())
            if device.type == "cuda":
                torch.cuda.reset_peak_memory_stats(device)  # of finding the largest batch
            assert isinstance(trainer.feed, Feed)
            plan = trainer.feed.plan(taken.recipe.training.curriculum)
            shapes = Shapes.of(plan, taken.prepared.store.source_lengths, taken.prepared.store.target_lengths)
            with trainer.journal:
                measured = measure(trainer, plan, _costs(shapes, taken), taken.valid, screen.working)
        finally:
            torch.set_num_threads(threads)
        return _drawn_up(taken, shapes, measured, _epochs(taken, trainer, processes), device, processes, preparation)


def _validated_every(recipe: Recipe, updates: int | None) -> Recipe:
    return recipe.model_copy(update={"training": recipe.training.model_copy(update={"validate_every": updates})})


def _epochs(taken: Sample, trainer: Trainer, processes: int) -> Epochs:
    """Of the whole corpus, by those of the sample."""
    training, feed = taken.recipe.training, trainer.feed
    assert isinstance(feed, Feed)
    full = len(feed.plan(training.curriculum))
    shortened = sum((1 - len(feed.plan(number)) / full for number in range(training.curriculum)), 0.0)
    batches = full * taken.pairs / len(taken.prepared.store)
    together = training.accumulate * processes
    return Epochs(math.ceil(batches / together), shortened, validation_interval(training, int(batches), processes))


def _costs(shapes: Shapes, taken: Sample) -> NDArray[np.float64]:
    assert taken.recipe.model is not None  # chosen when the sample was taken
    return shapes.operations(taken.recipe.model, taken.prepared.target.size, taken.recipe.training)


def _drawn_up(
    taken: Sample,
    shapes: Shapes,
    measured: Measured,
    epochs: Epochs,
    device: torch.device,
    processes: int,
    preparation: float,
) -> Forecast:
    recipe, training = taken.recipe, taken.recipe.training
    assert recipe.model is not None  # chosen when the sample was taken
    model = outline(recipe.model, taken.prepared.source.size, taken.prepared.target.size)
    together = training.accumulate * processes
    _, machine_memory = memory(device)
    kept, host = _memory(model, training, measured, device, processes)
    return Forecast(
        machine=_machine(device),
        notes=taken.notes,
        pairs=taken.pairs,
        exact=taken.whole,
        vocabulary=taken.prepared.target.size,
        model=recipe.model.shape_in_words,
        settings={name: getattr(training, name) for name in SETTINGS},
        processes=processes,
        parameters=parameters(model),
        memory=kept,
        host_memory=host,
        machine_memory=machine_memory,
        flops=together * float(_costs(shapes, taken).mean()),
        tokens=together * float(shapes.tokens.mean()),
        seconds_per_update=measured.update,
        timed_updates=measured.updates,
        seconds_per_validation=measured.loss + measured.translating,
        seconds_per_checkpoint=measured.saving,
        checkpoint=measured.checkpoint,
        updates_per_epoch=epochs.updates,
        preparation=preparation,
        traffic=traffic(model, training, processes),
        ending=ending(training, epochs, measured),
        patience=training.patience,
    )


def _memory(
    model: Model, training: TrainingConfig, measured: Measured, device: torch.device, processes: int
) -> tuple[dict[str, int], dict[str, int]]:
    """Bytes by part on the device and, where that is a GPU, beside it.

    What no formula knows is what else was in use at the peak, which was measured in a process that shares with none.
    """
    alone, parts = memory_by_part(model, training, 1), memory_by_part(model, training, processes)
    host = {"copy for saving": parts["copy for saving"]} if device.type == "cuda" else {}
    for each in (alone, parts):
        for name in host:
            del each[name]
    other = measured.peak - measured.activations - sum(alone.values())
    return parts | {"activations": measured.activations, "everything else": max(0, other)}, host


def _machine(device: torch.device) -> str:
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, {device}"
    return f"{platform.machine()} CPU, {torch.get_num_threads()} of {os.cpu_count()} threads"

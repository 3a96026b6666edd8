"""Headway and Marian trained on the same pairs for the same time, and the weights they have at some moments of it."""

import argparse
import copy
import math
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headway.assemble import trainer_of
from headway.engine.readiness import ready
from headway.models.transformer import TransformerConfig
from headway.recipe import Recipe
from headway.screen import Silent
from headway.training.parallel import ALONE
from headway.training.signals import Stopper
from headway.translator import Translator
from peers.gpu_work import Size, cut
from peers.training_gpu import Unkept, compiled, marian_model, marian_objective, peer_update

FREE = 20
"""Steps before the clock starts."""
TRIAL = 3.0
"""Seconds in which a speed is found out."""
BEAM = 5

Weights = dict[str, Tensor]


class _OverError(Exception):
    """The time is over."""


@dataclass
class Budget:
    """Seconds of training, and the weights at some of its moments; copying them costs no time."""

    seconds: float
    moments: list[float]
    """Fractions of the seconds, ascending."""
    device: torch.device
    found: list[dict[str, Any]] = field(default_factory=list)
    weights: list[Weights] = field(default_factory=list)
    began: float | None = None
    first: int = 0

    def elapsed(self) -> float:
        return 0.0 if self.began is None else time.perf_counter() - self.began

    def start(self, step: int) -> None:
        self._wait()
        self.began, self.first = time.perf_counter(), step

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def tick(self, step: int, model: torch.nn.Module) -> None:
        """Hear that so many steps are done; raises when the last moment has come."""
        if self.began is None:
            if step >= FREE:
                self.start(step)
            return
        while self.moments and self.elapsed() >= self.moments[0] * self.seconds:
            self.keep(step, model, self.moments.pop(0))
            if not self.moments:
                raise _OverError

    def keep(self, step: int, model: torch.nn.Module, moment: float) -> None:
        self._wait()
        seconds, paused = self.elapsed(), time.perf_counter()
        self.weights.append({name: weight.detach().cpu().clone() for name, weight in model.state_dict().items()})
        line = {"fraction": moment, "seconds": round(seconds, 2), "steps": step - self.first}
        self.found.append(line | {"updates_per_second": round((step - self.first) / seconds, 1)})
        assert self.began is not None
        self.began += time.perf_counter() - paused


class Listening(Silent):
    """A screen that keeps a budget."""

    def __init__(self, budget: Budget) -> None:
        self.budget, self.trainer = budget, None

    def updated(self, update: Any) -> None:
        if self.trainer is not None and update.step == self.trainer.progress.step:  # the last of a group
            self.budget.tick(update.step, self.trainer.model)


@dataclass(frozen=True)
class Task:
    """A corpus, prepared, and all settings."""

    name: str
    recipe: Recipe
    prepared: Any
    folder: Path
    sources: list[str]
    references: list[str]
    device: torch.device
    options: argparse.Namespace

    def training(self, **changed: Any) -> Recipe:
        return self.recipe.model_copy(update={"training": self.recipe.training.model_copy(update=changed)})

    def warmup(self, speed: float, fraction: float = 1.0) -> int:
        """A share of the steps that are to be expected."""
        return max(1, min(4000, int(self.options.warmup_share * speed * self.options.seconds * fraction)))

    @property
    def rate(self) -> float:
        assert self.recipe.training.learning_rate is not None
        return self.recipe.training.learning_rate


class Headway:
    """Headway's trainer in its own loop."""

    name = "headway"

    def __init__(self, task: Task) -> None:
        self.task = task
        self.told = {"learning_rate": task.rate}
        began = time.perf_counter()
        budget, _ = self._run(task.training(), Budget(TRIAL, [1.0], task.device))
        self.speed = budget.found[-1]["steps"] / budget.found[-1]["seconds"]
        self.told |= {"warm_up_seconds": round(time.perf_counter() - began - TRIAL, 1)}

    def train(self, seed: int, fractions: list[float], schedule: str) -> Budget:
        seconds = self.task.options.seconds
        if schedule == "inverse_sqrt":
            recipe = self.task.training(seed=seed, warmup=self.task.warmup(self.speed))
            return self._run(recipe, Budget(seconds, list(fractions), self.task.device))[0]
        whole = Budget(seconds, [], self.task.device)
        for fraction in fractions:
            steps, warmup = int(self.speed * seconds * fraction), self.task.warmup(self.speed, fraction)
            recipe = self.task.training(seed=seed, warmup=warmup, schedule="linear", steps=FREE + steps)
            budget, trainer = self._run(recipe, Budget(seconds, [math.inf], self.task.device))
            budget.keep(trainer.progress.step, trainer.model, fraction)
            whole.found += budget.found
            whole.weights += budget.weights
        return whole

    def _run(self, recipe: Recipe, budget: Budget) -> tuple[Budget, Any]:
        task, screen = self.task, Listening(budget)
        with tempfile.TemporaryDirectory(dir=task.folder) as name:
            trainer = trainer_of(recipe, task.prepared, Path(name), task.device, screen, ALONE, Stopper())
            trainer.checkpoints, screen.trainer = Unkept(), trainer
            trainer.progress = replace(trainer.progress, validated=1 << 40)  # it never is
            with trainer.journal, suppress(_OverError):
                trainer.fit()
        self.model = copy.deepcopy(trainer.model).cpu()
        return budget, trainer

    def translate(self, weights: Weights) -> list[str]:
        task, model = self.task, copy.deepcopy(self.model)
        model.load_state_dict(weights)
        ready(model.to(task.device), "bf16" if task.device.type == "cuda" else "fp32")
        translator = Translator(model, task.prepared.source, task.prepared.target, task.recipe.decoding)
        return [str(each) for each in translator(task.sources, beam=BEAM)]


class Marian:
    """Hugging Face's Marian in a loop as a careful user writes it."""

    name = "marian"

    def __init__(self, task: Task) -> None:
        self.task, config, symbols = task, task.recipe.model, task.prepared.target
        assert isinstance(config, TransformerConfig)
        self.rate = task.options.peer_learning_rate or task.rate
        self.size = Size(task.options.preset, config.dim, config.heads, config.hidden, config.encoder_layers,
                         vocabulary=symbols.size, tokens=task.recipe.training.batch_tokens)  # fmt: skip
        self.settings = {
            "dropout": config.dropout,
            "activation_dropout": config.activation_dropout,
            "attention_dropout": config.attention_dropout,
            "pad_token_id": symbols.padding,
            "eos_token_id": symbols.end,
            "decoder_start_token_id": symbols.start,
        }
        self.model = self._fresh(0).to(task.device).train()
        began, eager = time.perf_counter(), marian_objective(self.model, symbols.padding)
        self.batches = self._batches(0)
        speeds = {}
        self.told = {"learning_rate": self.rate}
        for way, objective in {"eager": eager, "compiled": compiled(eager)}.items():
            if task.options.way in (None, way):
                self.objective = objective
                speeds[way] = self._trial()
        self.way = max(speeds, key=speeds.__getitem__)
        self.objective, self.speed = eager if self.way == "eager" else objective, speeds[self.way]
        rates = {f"{way}_updates_per_second": round(speed, 1) for way, speed in speeds.items()}
        self.told |= {"way": self.way, **rates, "warm_up_seconds": round(time.perf_counter() - began, 1)}

    def _fresh(self, seed: int) -> torch.nn.Module:
        torch.manual_seed(seed)
        return marian_model(self.size, longest=256, **self.settings)

    def _trial(self) -> float:
        budget = Budget(TRIAL, [1.0], self.task.device)
        self._run(budget, lambda step, share: 0.0, 0)
        return budget.found[-1]["steps"] / budget.found[-1]["seconds"]

    def _batches(self, seed: int) -> list[tuple[Tensor, Tensor]]:
        """All pairs in batches of like length, on the device."""
        store, symbols = self.task.prepared.store, self.task.prepared.target
        chance = np.random.default_rng(seed)
        sizes = np.stack([store.source_lengths, store.target_lengths]).astype(np.int64) + 1
        order = np.lexsort((sizes[0], sizes[1] + 2 * chance.random(sizes.shape[1])))
        batches = []
        for part in cut(sizes[:, order], self.size.tokens):
            pairs = order[part]
            source = self._rows("source", pairs, [], [self.task.prepared.source.end])
            batches.append((source, self._rows("target", pairs, [symbols.start], [symbols.end])))
        return batches

    def _rows(self, side: str, pairs: Any, before: list[int], after: list[int]) -> Tensor:
        tokens, lengths = self.task.prepared.store.gather(side, pairs)
        width = -(-(int(lengths.max()) + 1) // 8) * 8 + len(before)
        rows = np.full((len(pairs), width), self.task.prepared.target.padding, np.int64)
        place = np.arange(width) - len(before)
        rows[(place >= 0) & (place < lengths[:, None])] = tokens
        rows[:, : len(before)] = before
        rows[np.arange(len(pairs)), lengths + len(before)] = after
        return torch.from_numpy(rows).to(self.task.device)

    def _stream(self, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        chance = np.random.default_rng(seed)
        while True:
            for place in chance.permutation(len(self.batches)):
                yield self.batches[place]

    def _run(self, budget: Budget, rate: Any, seed: int) -> None:
        """Train until the budget is over; `rate` is a function of the step and the share of the time that is over."""
        update = peer_update(self.model, self.objective, self.task.device)
        torch.manual_seed(seed)
        self.model.train()
        with suppress(_OverError):
            for step, batch in enumerate(self._stream(seed), start=1):
                for group in update.optimiser.param_groups:
                    group["lr"] = rate(step, budget.elapsed() / (budget.seconds * budget.moments[-1]))
                update(batch)
                if step % 10 == 0 and self.task.device.type == "cuda":
                    torch.cuda.synchronize()  # the host may be ahead
                budget.tick(step, self.model)

    def train(self, seed: int, fractions: list[float], schedule: str) -> Budget:
        seconds, device = self.task.options.seconds, self.task.device
        self.batches = self._batches(seed)
        whole = Budget(seconds, [], device)
        for moments in [fractions] if schedule == "inverse_sqrt" else [[each] for each in fractions]:
            self.model.load_state_dict(self._fresh(seed).state_dict())
            warmup = self.task.warmup(self.speed, moments[-1])

            def rate(step: int, share: float, warmup: int = warmup) -> float:
                late = math.sqrt(warmup / step) if schedule == "inverse_sqrt" else max(0.0, 1.0 - share)
                return self.rate * min(step / warmup, late)

            budget = Budget(seconds, list(moments), device)
            self._run(budget, rate, seed)
            whole.found += budget.found
            whole.weights += budget.weights
        return whole

    def translate(self, weights: Weights) -> list[str]:
        task, symbols = self.task, self.task.prepared.target
        model = self._fresh(0)
        model.load_state_dict(weights)
        model.to(task.device, torch.bfloat16 if task.device.type == "cuda" else torch.float32).eval()
        model.generation_config.forced_eos_token_id = model.generation_config.max_length = None
        sources = [[*ids[:255], task.prepared.source.end] for ids in task.prepared.source.encode(task.sources)]
        order = sorted(range(len(sources)), key=lambda place: len(sources[place]))
        outputs = [""] * len(sources)
        for begin_ in range(0, len(order), task.options.batch):
            places = order[begin_ : begin_ + task.options.batch]
            width = max(len(sources[place]) for place in places)
            rows = [sources[place] + [symbols.padding] * (width - len(sources[place])) for place in places]
            tokens = torch.tensor(rows, device=task.device)
            with torch.inference_mode():
                found = model.generate(
                    tokens,
                    attention_mask=(tokens != symbols.padding).long(),
                    num_beams=BEAM,
                    do_sample=False,
                    use_cache=True,
                    early_stopping=True,
                    suppress_tokens=[symbols.padding, symbols.start],
                    max_new_tokens=min(250, 3 * width // 2 + 20),
                )
            for place, row in zip(places, found[:, 1:].tolist(), strict=True):
                outputs[place] = symbols.decode(row[: row.index(symbols.end)] if symbols.end in row else row)
        return outputs

"""A dry run: overfit one batch and see whether loss, masks, memory and speed are sane before an hour is spent."""

import math
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from headway.building import build_model, feed_of, judged_by
from headway.data.batches import Batch
from headway.errors import HeadwayError
from headway.models.model import Model, NonAutoregressive
from headway.recipe import Recipe
from headway.screen import Screen
from headway.sequences import Sequences
from headway.training.passes import Pass
from headway.trial import memory, sample

SAMPLE = 2000
"""Pairs looked at."""
UPDATES = 60
"""Updates on the one batch."""


def rehearse(recipe: Recipe, *, device: torch.device, screen: Screen) -> None:
    """Try the recipe on the first pairs of its corpus; what is not sane is a `HeadwayError`. Nothing is kept."""
    with tempfile.TemporaryDirectory(prefix="headway-") as name:
        taken = sample(recipe, Path(name), most=SAMPLE, device=device, screen=screen, spread=False)
        recipe, prepared = taken.recipe, taken.prepared
        torch.manual_seed(recipe.training.seed)
        model = build_model(recipe, prepared).to(device)
        _, batches = feed_of(recipe, prepared, Path(name) / "run").epoch(0, 0)
        batch = next(batches).to(device)
        _masks(model, batch, screen)
        arithmetic = torch.autocast(device.type, torch.bfloat16, recipe.training.precision == "bf16")
        forward = Pass(model, judged_by(model.config), recompute=recipe.training.recompute)
        learn = _Learner(forward, batch, arithmetic)
        _speed(learn, taken.pairs, screen)
        _loss(learn, recipe, screen)
        _memory(device, screen)
        screen.say("sane: train without --dry-run")


def _masks(model: Model, batch: Batch, screen: Screen) -> None:
    """No output may depend on a later target token, nor on the padding of others."""
    if isinstance(model, NonAutoregressive):
        screen.say("masks: the model writes all tokens at once, no position is hidden from another")
        return
    first = Sequences.pad([_sentence(batch.source, 0)], 0).to(batch.labels.device)
    target = Sequences.pad([_sentence(batch.target, 0)], 0).to(batch.labels.device)
    model.eval()
    embedded: list[torch.Tensor] = []
    hook = model.target_embedding.register_forward_hook(lambda _module, _input, output: embedded.append(output))
    try:
        states = model(first, target)
        middle = target.longest // 2
        (gradient,) = torch.autograd.grad(states[0, middle].float().sum(), embedded[-1])
    finally:
        hook.remove()
    later = float(gradient[0, middle + 1 :].abs().sum())
    padded = Sequences.pad([_sentence(batch.source, 0), [1] * (2 * first.longest)], 0).to(batch.labels.device)
    with torch.no_grad():
        alone, beside = model.encode(first).states[0], model.encode(padded).states[0, : first.longest]
    difference = float((alone - beside).abs().max())
    if later > 0.0 or difference > 0.05:
        raise HeadwayError(f"masks: look-ahead gradient {later:.1e}, padding changes a state by {difference:.1e}")
    screen.say(f"masks: no position sees a later one; padding changes no state (largest difference {difference:.0e})")


def _sentence(sequences: Sequences, index: int) -> list[int]:
    if not sequences.packed:
        return list(sequences.tokens[index, : int(sequences.lengths[index])].tolist())
    start, end = sequences.bounds[index : index + 2].tolist()
    return list(sequences.tokens[start:end].tolist())


@dataclass(frozen=True)
class _Learner:
    """A model and the one batch it is to learn."""

    forward: Pass
    batch: Batch
    arithmetic: torch.autocast

    @property
    def model(self) -> Model:
        """The model that learns."""
        return self.forward.model

    def __call__(self) -> float:
        """One forward and backward pass without smoothing: nats a token."""
        with self.arithmetic:  # anew for every pass: it keeps low-precision copies of the weights while it lasts
            loss = self.forward(self.batch, 1)
        (loss.total / max(loss.units, 1)).backward()
        return float(loss.surprise) / max(loss.units, 1)


def _speed(learn: _Learner, pairs: int, screen: Screen) -> None:
    learn.model.train()
    times = []
    for _ in range(8):
        began = time.monotonic()
        learn()
        learn.model.zero_grad(set_to_none=True)
        times.append(time.monotonic() - began)
    each = sorted(times)[len(times) // 2]
    minutes = pairs / learn.batch.pairs * each / 60
    told = f"an epoch of about {pairs:,} pairs takes {minutes:.1f} min"
    screen.say(f"speed: {learn.batch.units / each:,.0f} target tokens/s; {told}")


def _loss(learn: _Learner, recipe: Recipe, screen: Screen) -> None:
    """One batch must be learnt nearly by heart."""
    learn.model.eval()  # no dropout
    rate = min(recipe.training.learning_rate or 1e-3, 2e-3)
    optimiser = torch.optim.Adam(learn.model.parameters(), lr=rate, betas=(0.9, 0.98))
    losses = []
    for step in range(UPDATES):
        for group in optimiser.param_groups:
            group["lr"] = rate * min(1.0, (step + 1) / 10)
        losses.append(learn())
        torch.nn.utils.clip_grad_norm_(learn.model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
    expected = math.log(len(learn.model.output.weight))
    told = f"from {losses[0]:.2f} to {losses[-1]:.2f} nats a token in {UPDATES} updates on one batch"
    if not losses[-1] < 0.7 * losses[0] or not 0.5 * expected < losses[0] < 2.0 * expected:
        raise HeadwayError(f"loss: {told}; a fresh model starts near {expected:.2f} and falls: check data and settings")
    screen.say(f"loss: {told} (a blind guess costs {expected:.2f})")


def _memory(device: torch.device, screen: Screen) -> None:
    """The peak of all of it, weights, gradients and moments of the optimiser included."""
    used, total = memory(device)
    told = f"{used / 2**30:.2f} of {total / 2**30:.1f} GiB"
    if used > 0.9 * total:
        raise HeadwayError(f"memory: {told}; lower training.batch_tokens and raise training.accumulate")
    screen.say(f"memory: {told} at the most")

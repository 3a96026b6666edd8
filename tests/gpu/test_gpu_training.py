import hashlib
import importlib
import json
import os
import signal
from contextlib import nullcontext

import pytest
import torch

import headway.data.feed
import headway.nn.dropout
import headway.nn.linear
import headway.objectives.projection
import headway.training.passes
from headway.assemble import deterministic, train, trainer_of
from headway.beginning import begin, resumed
from headway.config import validated
from headway.errors import Interrupted
from headway.recipe import Recipe
from headway.training.captured import CapturedUpdates
from headway.training.memory import Probe, cells, largest_budget
from headway.training.parallel import ALONE
from headway.training.signals import Stopper

short = pytest.importorskip("triton") and importlib.import_module("headway.nn.attention.short")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

GPU = torch.device("cuda")


class Screen:
    def __init__(self):
        self.lines, self.losses, self.hook = [], [], lambda update: None

    def say(self, line):
        self.lines.append(line)

    def working(self, what, done, total):
        pass

    def updated(self, update):
        self.losses.append(update.loss)
        self.hook(update)


@pytest.fixture
def recipe(tmp_path):
    lines = [" ".join(chr(97 + (n + k) % 26) for k in range(2 + n % 19)) for n in range(600)]  # learnt in 40 updates
    (tmp_path / "source").write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "target").write_text("".join(f"{line.upper()}\n" for line in lines))
    (tmp_path / "links").write_text("".join(" ".join(f"{k}-{k}" for k in range(len(l.split()))) + "\n" for l in lines))  # noqa: E741

    def build(data=None, model=None, **training):
        tree = {
            "data": {"folder": str(tmp_path), "source": "source", "target": "target", **(data or {})},
            "tokenizer": {"vocabulary": 400},
            "model": {"dim": 64, "heads": 4, "hidden": 128, "encoder_layers": 2, "decoder_layers": 2, "longest": 64,
                      "dropout": 0.1, **(model or {})},
            "training": {"steps": 12, "batch_tokens": 512, "validate_every": 4, "average": 2, "samples": 0,
                         "validation_sentences": 4, "log_every": 1, "learning_rate": 0.003} | training,
        }  # fmt: skip
        return validated(Recipe, tree, "test")

    return build


def digests(out, step):
    folder = out / "checkpoints" / f"step-{step:09d}"
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.safetensors")}


@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_a_deterministic_run_resumes_to_the_last_bit(recipe, tmp_path, layout):
    settings = recipe(layout=layout, deterministic=True, ema=0.9)
    try:
        screen = Screen()
        train(settings, tmp_path / "whole", device=GPU, screen=screen)
        train(settings, tmp_path / "again", device=GPU, screen=Screen())
        broken = Screen()
        broken.hook = lambda update: os.kill(os.getpid(), signal.SIGTERM) if update.step == 6 else None
        with pytest.raises(Interrupted):
            train(settings, tmp_path / "broken", device=GPU, screen=broken)
        train(settings, tmp_path / "broken", device=GPU, screen=Screen(), resume=True)
    finally:
        torch.use_deterministic_algorithms(False)
    assert digests(tmp_path / "again", 12) == digests(tmp_path / "whole", 12)
    assert digests(tmp_path / "broken", 12) == digests(tmp_path / "whole", 12)
    assert json.loads((tmp_path / "whole/checkpoints/step-000000012/progress.json").read_text())["step"] == 12


@pytest.mark.parametrize(
    ("data", "settings"),
    [
        ({}, {"r_drop": 5.0}),
        ({}, {"scheduled_sampling": 0.3}),
        ({"alignment": "links"}, {"guided_alignment": 0.1}),
        ({"word_dropout": 0.1}, {"optimiser": "muon", "weight_decay": 0.01}),
        ({}, {"optimiser": "adamw", "weight_decay": 0.01, "ema": 0.99, "schedule": "cosine", "curriculum": 2}),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else str(value),
)
def test_every_method_learns_on_a_gpu(recipe, tmp_path, data, settings):
    screen = Screen()
    train(recipe(data, steps=60, validate_every=30, **settings), tmp_path / "run", device=GPU, screen=screen)
    assert screen.losses[-1] < 0.9 * screen.losses[0]


def opened(settings, out, screen):
    begin(settings, out, device=GPU, screen=screen)
    return trainer_of(*resumed(settings, out, screen), out, GPU, screen, ALONE, Stopper())


def test_when_memory_really_runs_out_the_batch_is_split_and_the_gradient_is_the_same(recipe, tmp_path):
    screen = Screen()
    shape = {"dropout": 0.0, "dim": 256, "heads": 4, "hidden": 1024}
    made = opened(recipe(model=shape, batch_tokens=6000, precision="fp32", layout="padded"), tmp_path / "run", screen)
    with made.journal:
        _, batches = made.feed.epoch(0, 0)
        batch = next(batches)
        made.model.train()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()  # other tests of this process may have taken more
        whole = float(made.gradients([batch], batch.units, 1))
        expected = [weight.grad.clone() for weight in made.model.parameters()]
        peak, total = torch.cuda.max_memory_reserved(), torch.cuda.get_device_properties(0).total_memory
        made.optimiser.zero_grad()
        torch.cuda.empty_cache()
        least = torch.cuda.memory_reserved()
        torch.cuda.set_per_process_memory_fraction((least + 0.6 * (peak - least)) / total)
        try:
            split = float(made.gradients([batch], batch.units, 1))
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
    assert made.gradients.limit == cells(batch)
    assert any("does not fit into memory" in line for line in screen.lines)
    assert split == pytest.approx(whole, rel=1e-5)
    for weight, gradient in zip(made.model.parameters(), expected, strict=True):
        torch.testing.assert_close(weight.grad, gradient, atol=1e-6, rtol=1e-3)


def test_the_largest_budget_fits_and_one_half_larger_does_not(recipe, tmp_path):
    made = opened(recipe(model={"dim": 256, "heads": 4, "hidden": 1024}), tmp_path / "run", Screen())
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.empty_cache()
    limit = torch.cuda.memory_reserved() + (2 << 30)
    torch.cuda.set_per_process_memory_fraction(limit / total)
    probe = Probe(made.gradients.forward, made.optimiser, made.arithmetic, GPU, longest=50, packed=False)
    try:
        with made.journal:
            found = largest_budget(probe, smallest=50, most=1 << 22, room=int(0.9 * limit))
            assert 0.7 * limit < probe(found) <= 0.9 * limit
            with pytest.raises(torch.OutOfMemoryError):
                probe(3 * found // 2)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def test_auto_trains_on_a_gpu(recipe, tmp_path):
    screen = Screen()
    train(recipe(batch_tokens="auto", steps=6), tmp_path / "run", device=GPU, screen=screen)
    assert any(line.startswith("batch_tokens auto: ") for line in screen.lines)
    assert not any("does not fit" in line for line in screen.lines)


@pytest.fixture
def plain(monkeypatch):
    """Close the doors to our own kernels and to captured updates: what is left is torch's."""

    def close():
        for module in (headway.nn.dropout, headway.nn.linear):
            monkeypatch.setattr(module, "element_kernels", lambda: None)
        monkeypatch.setattr(headway.training.passes, "lowered", lambda *_: nullcontext())
        monkeypatch.setattr(short, "serves", lambda *_: False)
        monkeypatch.setattr(headway.objectives.projection, "_kernel_serves", lambda _: False)
        monkeypatch.setattr(CapturedUpdates, "serves", lambda *_: False)

    return close


@pytest.mark.parametrize(
    "model", [{}, {"norm": "pre"}, {"feedforward": "gated", "positions": "rotary"}, {"window": 5}], ids=str
)
def test_captured_updates_do_what_the_plain_path_does(recipe, tmp_path, plain, model, monkeypatch):
    settings = recipe(model={"dropout": 0.0, **model}, steps=40, validate_every=40)
    fast, slow, taken = Screen(), Screen(), []
    replay = CapturedUpdates.__call__
    monkeypatch.setattr(CapturedUpdates, "__call__", lambda *given: taken.append(replay(*given)) or taken[-1])
    train(settings, tmp_path / "fast", device=GPU, screen=fast)
    assert taken == [True] * 40
    plain()
    train(settings, tmp_path / "slow", device=GPU, screen=slow)
    assert len(taken) == 40
    assert fast.losses[0] == pytest.approx(slow.losses[0], rel=1e-3)
    assert fast.losses == pytest.approx(slow.losses, rel=0.03)
    assert fast.losses[-1] < 0.8 * fast.losses[0]


SHAPES = [
    {"attention_dropout": 0.1, "activation_dropout": 0.1},
    {"norm": "pre", "feedforward": "gated", "positions": "rotary"},
]


@pytest.mark.parametrize("layout", ["padded", "packed"])
@pytest.mark.parametrize("model", SHAPES, ids=["post", "pre"])
def test_layers_computed_again_have_the_gradients_of_layers_that_keep_everything(recipe, tmp_path, model, layout):
    settings = recipe(model=model, layout=layout, deterministic=True)
    made, found = opened(settings, tmp_path / "run", Screen()), []
    with made.journal, deterministic(settings.training):
        _, batches = made.feed.epoch(0, 0)
        batch = next(batches)
        made.model.train()
        for recompute in (False, True):
            made.gradients.forward.recompute = recompute
            torch.manual_seed(5)
            surprise = made.gradients([batch], batch.units, 1)
            gradients = [weight.grad.clone() for weight in made.model.parameters()]
            found.append([surprise, *gradients, torch.cuda.get_rng_state()])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.parametrize("model", SHAPES, ids=["post", "pre"])
def test_captured_updates_that_compute_layers_again_are_the_same_updates(recipe, tmp_path, model, monkeypatch):
    taken, replay = [], CapturedUpdates.__call__
    monkeypatch.setattr(CapturedUpdates, "__call__", lambda *given: taken.append(replay(*given)) or taken[-1])
    for name, recompute in (("plain", False), ("again", True)):
        settings = recipe(layout="packed", recompute=recompute, model=model, validate_every=12)
        train(settings, tmp_path / name, device=GPU, screen=Screen())
    assert taken == [True] * 24
    assert digests(tmp_path / "again", 12) == digests(tmp_path / "plain", 12)


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
def test_layers_computed_again_take_less_memory(recipe, tmp_path, captured):
    shape = {"dim": 256, "heads": 4, "hidden": 1024, "encoder_layers": 6, "decoder_layers": 6}
    peaks = []
    for name, recompute in (("plain", False), ("again", True)):
        settings = recipe(model=shape, layout="packed", recompute=recompute, batch_tokens=6000)
        made = opened(settings, tmp_path / name, Screen())
        with made.journal:
            if not captured:
                made.captured = None
            _, batches = made.feed.epoch(0, 0)
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            made.model.train()
            made.update([next(batches)])
            peaks.append(torch.cuda.max_memory_allocated() - before)
        del made
        torch.cuda.empty_cache()
    assert peaks[1] < 0.7 * peaks[0]


@pytest.mark.slow
def test_the_loss_curve_of_a_thousand_updates_is_that_of_the_plain_path(recipe, tmp_path, plain):
    settings = recipe(model={"dropout": 0.1}, steps=1000, validate_every=1000)
    fast, slow = Screen(), Screen()
    train(settings, tmp_path / "fast", device=GPU, screen=fast)
    plain()
    train(settings, tmp_path / "slow", device=GPU, screen=slow)
    for start in range(0, 1000, 100):
        part = slice(start, start + 100)
        assert sum(fast.losses[part]) == pytest.approx(sum(slow.losses[part]), rel=0.05)


def test_a_captured_run_resumes_to_the_last_bit_without_being_asked(recipe, tmp_path, monkeypatch):
    shape = {"attention_dropout": 0.1, "activation_dropout": 0.1}
    settings = recipe(layout="packed", ema=0.9, model=shape, log_every=50, validate_every=12)
    train(settings, tmp_path / "whole", device=GPU, screen=Screen())
    batches, made = headway.data.feed.batches, []

    def interrupting(*given, **options):
        for batch in batches(*given, **options):
            made.append(batch)
            if len(made) == 7:
                os.kill(os.getpid(), signal.SIGTERM)
            yield batch

    monkeypatch.setattr(headway.data.feed, "batches", interrupting)
    with pytest.raises(Interrupted):
        train(settings, tmp_path / "broken", device=GPU, screen=Screen())
    monkeypatch.setattr(headway.data.feed, "batches", batches)
    train(settings, tmp_path / "broken", device=GPU, screen=Screen(), resume=True)
    assert digests(tmp_path / "broken", 12) == digests(tmp_path / "whole", 12)


def test_a_captured_update_that_is_not_finite_moves_nothing(recipe, tmp_path):
    screen = Screen()
    made = opened(recipe(), tmp_path / "run", screen)
    with made.journal:
        _, batches = made.feed.epoch(0, 0)
        group = [next(batches)]
        made.update(group)
        assert made.captured is not None
        before = {name: weight.clone() for name, weight in made.model.named_parameters()}
        made.model.output.bias.data[7] = torch.nan
        made.update(group)
        made.model.output.bias.data[7] = before["output.bias"][7]
        assert any("not finite" in line for line in screen.lines)
        assert all(torch.equal(weight, before[name]) for name, weight in made.model.named_parameters())
        made.update(group)
        assert not all(torch.equal(weight, before[name]) for name, weight in made.model.named_parameters())


def test_where_memory_runs_out_while_capturing_updates_are_taken_one_by_one(recipe, tmp_path, monkeypatch):
    refused = []

    def refuse(*_):
        refused.append(True)
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(CapturedUpdates, "_captured", refuse)
    screen = Screen()
    train(recipe(steps=30, validate_every=30), tmp_path / "run", device=GPU, screen=screen)
    assert screen.losses[-1] < screen.losses[0]
    assert len(refused) == 1
    assert sum("too little memory to capture" in line for line in screen.lines) == 1

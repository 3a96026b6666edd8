"""Runs whose layers are computed again in the backward pass."""

import os
import signal

import pytest
import torch

from headway import building
from headway.building import capturable
from headway.choices import CorpusSize, Machine, choose
from headway.errors import Interrupted

GPU = torch.device("cuda")


@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_a_run_that_computes_its_layers_again_is_the_same_run(run, recipe, state_of, tmp_path, layout):
    for name, recompute in (("plain", False), ("again", True)):
        run(recipe(layout=layout, recompute=recompute, ema=0.9), tmp_path / name)
    assert state_of(tmp_path / "again", 12) == state_of(tmp_path / "plain", 12)


def test_such_a_run_resumes_to_the_last_bit(recipe, interrupted_at, tmp_path):
    interrupted_at(recipe(recompute=True, r_drop=2.0), tmp_path, step=5)


def test_layers_may_be_computed_again_from_a_resume_on(run, recipe, screen, state_of, tmp_path):
    run(recipe(), tmp_path / "whole")
    screen.hook = lambda update: os.kill(os.getpid(), signal.SIGTERM) if update.step == 5 else None
    with pytest.raises(Interrupted):
        run(recipe(), tmp_path / "broken")
    screen.hook = lambda update: None
    run(recipe(recompute=True), tmp_path / "broken", resume=True)
    assert state_of(tmp_path / "broken", 12) == state_of(tmp_path / "whole", 12)


@pytest.mark.parametrize(
    ("shape", "recompute", "captured"),
    [
        ({"dim": 128, "heads": 2, "attention_dropout": 0.1}, True, True),
        ({"dim": 96, "heads": 4, "attention_dropout": 0.0}, True, True),
        ({"dim": 96, "heads": 4, "attention_dropout": 0.1}, False, True),
        ({"dim": 96, "heads": 4, "attention_dropout": 0.1}, True, False),  # of width 24, which our kernel does not know
    ],
)
def test_updates_are_captured_unless_dropout_could_not_be_drawn_again(monkeypatch, recipe, shape, recompute, captured):
    pytest.importorskip("triton")
    monkeypatch.setattr(building, "compiles", lambda: True)
    given = recipe(layout="packed", precision="bf16", recompute=recompute)
    model = given.model.model_copy(update=shape)
    size, cpu = CorpusSize(100, 900.0), Machine(torch.device("cpu"))
    assert capturable(choose(given.model_copy(update={"model": model}), size, cpu).recipe, GPU) is captured

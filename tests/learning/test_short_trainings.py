"""A small version of `benchmarks/stability.py`: default rate, warm-up and initialisation, few updates."""

import pytest
import torch

from headway.assemble import train
from headway.beginning import resumed
from headway.config import validated
from headway.data.demos import DEMOS
from headway.recipe import Recipe
from headway.screen import Silent
from headway.validation import unigram_loss, validation_batches

DEEP = {"dim": 64, "heads": 4, "hidden": 128, "encoder_layers": 8, "decoder_layers": 8, "longest": 64}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    pairs = DEMOS["phrases"]().train[:3000]
    for side in ("source", "target"):
        (folder / side).write_text("".join(f"{getattr(pair, side)}\n" for pair in pairs), encoding="utf-8")
    return folder


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize(
    ("model", "batch", "steps"),
    [({"preset": "tiny"}, 512, 60), ({"preset": "tiny"}, 2048, 50), ({"preset": "small"}, 512, 90), (DEEP, 512, 60)],
    ids=["tiny-512", "tiny-2048", "small-512", "deep-512"],
)
def test_no_short_training_ends_above_the_loss_of_a_unigram_model(corpus, tmp_path, norm, model, batch, steps):
    tree = {
        "data": {"folder": str(corpus), "source": "source", "target": "target", "held_out": 100},
        "model": {"norm": norm, "longest": 64, **model},
        "training": {"steps": steps, "batch_tokens": batch, "validate_every": steps, "validation_sentences": 1,
                     "samples": 0},
    }  # fmt: skip
    recipe, cpu = validated(Recipe, tree, "test"), torch.device("cpu")
    folder = train(recipe, tmp_path / "run", device=cpu, screen=Silent())
    _, prepared = resumed(recipe, tmp_path / "run", Silent())
    unigram = unigram_loss(prepared, validation_batches(prepared, 64))
    found = (folder / "README.md").read_text()
    loss = float(found.split("| loss | ")[1].split()[0])
    assert loss < unigram

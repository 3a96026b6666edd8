"""`headway train --dry-run`."""

import gzip

import pytest


@pytest.fixture
def recipe(corpus, tmp_path):
    path = tmp_path / "recipe.toml"
    for side, text in (("source", "un chat dort ici"), ("target", "A CAT SLEEPS HERE")):
        (tmp_path / f"valid.{side}").write_text(f"{text}\n")
    path.write_text(
        '[data]\nsource = "train.source"\ntarget = "train.target"\nvalid_source = "valid.source"\n'
        'valid_target = "valid.target"\n[tokenizer]\nvocabulary = 300\n'
        "[model]\ndim = 32\nheads = 2\nhidden = 64\nencoder_layers = 1\ndecoder_layers = 1\nlongest = 64\n"
    )
    return path


@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_a_dry_run_judges_loss_masks_memory_and_speed_and_leaves_nothing(headway, recipe, tmp_path, layout):
    before = sorted(tmp_path.iterdir())
    options = ["--set", f"training.layout={layout}"]
    outcome = headway("train", recipe, "--data", tmp_path, "--dry-run", *options)
    assert outcome.code == 0, outcome.err
    for word in ("masks: no position sees a later one", "speed:", "loss: from", "memory:", "sane"):
        assert word in outcome.err
    assert sorted(tmp_path.iterdir()) == before


def test_a_dry_run_reads_packed_files(headway, corpus, tmp_path, tiny):
    for path in corpus:
        (tmp_path / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    sets = [part for name, value in tiny.items() for part in ("--set", f"{name}={value}")]
    files = ["--source", f"{corpus[0]}.gz", "--target", f"{corpus[1]}.gz"]
    assert "memory:" in headway("train", *files, "--dry-run", *sets, "--set", "model.dim=32").err


def test_a_model_that_cannot_learn_is_told_so(headway, recipe, tmp_path):
    outcome = headway("train", recipe, "--data", tmp_path, "--dry-run", "--set", "training.learning_rate=1e-9")
    assert outcome.code == 1
    assert "headway: loss: from" in outcome.err

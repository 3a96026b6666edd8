"""Models that write all tokens at once, from `headway train` to `headway prove`."""

import json
import shutil
import tomllib

import pytest

from headway.proof import subject

KINDS = ["fertility", "mask-predict"]


@pytest.fixture(autouse=True)
def brief(monkeypatch):
    """Short outputs: a proof in a moment."""
    monkeypatch.setattr(subject, "LONGEST_OUTPUT", 5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_is_trained_translates_is_evaluated_and_proved(headway, train, corpus, model_folder, tmp_path, kind):
    outcome = train(model__architecture=kind)
    assert outcome.code == 0, outcome.err
    run = tmp_path / "run"
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert any("valid/loss" in record for record in records)
    assert (run / "data" / "valid-alignment").is_dir() == (kind == "fertility")
    lines = corpus[0].read_text().splitlines()[:3]
    text = "".join(f"{line}\n" for line in lines).encode()
    assert len(headway("translate", run, "--device", "cpu", stdin=text).lines) == 3
    noisy = headway("translate", run, "--nbest", 2, "--set", "fertilities=noisy", "--device", "cpu", stdin=text)
    assert 3 <= len(noisy.lines) <= 6
    judge = ["--rescore", model_folder, "--rescore-own", 0]
    judged = headway("translate", run, "--beam", 4, "--set", "fertilities=noisy", *judge, "--device", "cpu", stdin=text)
    assert len(judged.lines) == 3
    assert headway("evaluate", run, "--source", corpus[0], "--reference", corpus[1], "--device", "cpu").code == 0
    proved = headway("prove", run, "--sentences", 3, "--json", "--device", "cpu").json
    found = {check["name"]: check["passed"] for check in proved["checks"]}
    assert found["batch"] is found["padding"] is found["folder"] is True
    assert found["cache"] is None
    for command in (["score", run, "--source", corpus[0], "--target", corpus[1]], ["attention", run, "le chat"]):
        assert "writes all tokens at once" in headway(*command, "--device", "cpu").complaint


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_was_broken_off_goes_on_as_if_it_had_not_been(train, tmp_path, kind):
    settings = {"model__architecture": kind, "training__steps": 6, "training__validate_every": 2,
                "model__dropout": 0.2}  # fmt: skip
    assert train(out=tmp_path / "whole", **settings).code == 0
    assert train(out=tmp_path / "broken", **settings).code == 0
    shutil.rmtree(tmp_path / "broken" / "best")
    for step in (4, 6):
        shutil.rmtree(tmp_path / "broken" / "checkpoints" / f"step-{step:09d}", ignore_errors=True)
    assert train("--resume", out=tmp_path / "broken", **settings).code == 0
    last = "checkpoints/step-000000006/model.safetensors"
    weights = [tmp_path / name / last for name in ("whole", "broken")]
    assert weights[0].read_bytes() == weights[1].read_bytes()


@pytest.mark.parametrize("kind", KINDS)
def test_layers_that_are_computed_again_learn_the_same(train, tmp_path, kind):
    for name, again in (("kept", "false"), ("again", "true")):
        outcome = train(out=tmp_path / name, model__architecture=kind, training__recompute=again)
        assert outcome.code == 0, outcome.err
    last = "checkpoints/step-000000003/model.safetensors"
    assert (tmp_path / "kept" / last).read_bytes() == (tmp_path / "again" / last).read_bytes()


@pytest.mark.parametrize("kind", KINDS)
def test_a_dry_run_knows_them(headway, corpus, tiny, kind):
    wide = tiny | {"model.dim": 32, "model.hidden": 64, "model.architecture": kind}
    sets = [part for name, value in wide.items() for part in ("--set", f"{name}={value}")]
    files = ["--source", corpus[0], "--target", corpus[1], "--device", "cpu"]
    outcome = headway("train", *files, "--dry-run", *sets, "--set", "training.learning_rate=0.002")
    assert outcome.code == 0, outcome.err
    assert "masks: the model writes all tokens at once" in outcome.err
    assert "sane" in outcome.err


@pytest.mark.parametrize("kind", KINDS)
def test_a_student_of_another_kind_learns_from_its_teacher_in_one_command(
    headway, model_folder, corpus, tmp_path, kind
):
    steps = ["--set", "training.steps=3", "--set", "training.batch_tokens=256", "--set", "training.samples=0"]
    files = ["--source", corpus[0], "--out", tmp_path / "student", "--device", "cpu", "--beam", 1]
    outcome = headway("distill", model_folder, *files, "--set", f"model.architecture={kind}", *steps)
    assert outcome.code == 0, outcome.err
    shape = tomllib.loads((tmp_path / "student" / "config.toml").read_text())["model"]
    assert (shape["architecture"], shape["dim"], shape["heads"], shape["encoder_layers"]) == (kind, 16, 2, 1)
    assert len(headway("translate", tmp_path / "student", "--device", "cpu", stdin=b"le chat\n").lines) == 1


def test_what_moves_aligned_tokens_is_refused_before_anything_is_prepared(train, tmp_path):
    refused = train(model__architecture="fertility", tokenizer__dropout=0.1)
    assert "tokenizer.dropout: moves the tokens whose alignment" in refused.complaint
    assert "r_drop: a fertility model" in train(model__architecture="fertility", training__r_drop=1.0).complaint
    assert "tie" in train(model__architecture="fertility", model__tie="none").complaint
    assert not (tmp_path / "run").exists()

"""A model of slots on the command line, from training to scoring."""

import json
import shutil

import pytest

SLOTS = {"model__architecture": "ctc", "model__upsample": 2}


@pytest.mark.parametrize("encoder", ["transformer", "recurrent", "convolutional"])
def test_a_model_of_slots_is_trained_translates_and_scores(train, headway, tmp_path, encoder):
    outcome = train(**SLOTS, model__encoder=encoder)
    assert outcome.code == 0, outcome.err
    assert "2 slots a token" in outcome.err
    run = tmp_path / "run"
    for beam in (1, 4):
        lines = headway("translate", run, "--set", f"beam={beam}", stdin=b"le chat\nun chien\n").lines
        assert len(lines) == 2
    for name, text in (("source", "le chat\n"), ("target", "LE CHAT\n")):
        (tmp_path / f"pair.{name}").write_text(text)
    files = ["--source", tmp_path / "pair.source", "--target", tmp_path / "pair.target"]
    scored = headway("score", run, *files, "--json", "--tokens").json
    assert sum(scored["token_logprobs"]) == pytest.approx(scored["logprob"])
    assert scored["logprob"] < 0.0


@pytest.mark.parametrize("encoder", ["transformer", "recurrent"])
def test_a_killed_run_of_a_model_of_slots_goes_on_to_the_bit(train, tmp_path, encoder):
    settings = SLOTS | {
        "model__encoder": encoder,
        "training__steps": 6,
        "training__save_every": 3,
        "model__dropout": 0.2,
    }
    assert train(**settings).code == 0
    run, name = tmp_path / "run", "checkpoints/step-000000006"
    whole = {path.name: path.read_bytes() for path in (run / name).glob("*.safetensors")}
    shutil.rmtree(run / "best")
    shutil.rmtree(run / name)
    assert train("--resume", **settings).code == 0
    assert {path.name: path.read_bytes() for path in (run / name).glob("*.safetensors")} == whole


def test_a_dry_run_of_a_model_of_slots_is_sane(headway, corpus, tmp_path, tiny):
    sets = [part for name, value in tiny.items() for part in ("--set", f"{name}={value}")]
    files = ["--source", corpus[0], "--target", corpus[1]]
    options = ["--set", "model.architecture=ctc", "--set", "model.dim=32", "--set", "model.hidden=64"]
    outcome = headway("train", *files, "--dry-run", *sets, *options)
    assert outcome.code == 0, outcome.err
    assert "sane" in outcome.err


def test_a_run_is_planned_for_a_model_of_slots(headway, corpus, tiny):
    sets = [part for name, value in tiny.items() for part in ("--set", f"{name}={value}")]
    files = ["--source", corpus[0], "--target", corpus[1]]
    outcome = headway("plan", *files, *sets, "--set", "model.architecture=ctc", "--json")
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)


def test_too_few_slots_are_refused_before_anything_is_trained(train, corpus, tmp_path):
    corpus[1].write_text("".join(f"{line.strip() * 8}\n" for line in corpus[1].read_text().splitlines()))
    outcome = train(model__architecture="ctc", model__upsample=1, model__longest=512, training__batch_tokens=2048)
    assert "model.upsample: 1 a source token leave too few slots for" in outcome.complaint
    assert not (tmp_path / "run").exists()


def test_a_target_without_a_path_is_refused_in_scoring(train, headway, tmp_path):
    assert train(**SLOTS).code == 0
    (tmp_path / "one").write_text("le\n")
    (tmp_path / "other").write_text("la pomme la pomme la pomme la pomme\n")
    outcome = headway("score", tmp_path / "run", "--source", tmp_path / "one", "--target", tmp_path / "other")
    assert "more than its slots can write" in outcome.complaint


def test_what_is_for_models_of_next_tokens_is_refused(train, tmp_path):
    assert "training.r_drop" in train(**SLOTS, training__r_drop=1.0).complaint

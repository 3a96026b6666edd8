"""`headway train --from`: going on from a model."""

import pytest

SETTINGS = {
    "training.steps": 3,
    "training.batch_tokens": 256,
    "training.validation_sentences": 2,
    "training.samples": 0,
}


@pytest.fixture
def tune(headway, model_folder, tmp_path):
    sentences = [f"{who} a une myocardite infectieuse {number}" for number in range(20) for who in ("il", "elle")]
    for side, lines in {"source": sentences, "target": [line.upper() for line in sentences]}.items():
        (tmp_path / f"new.{side}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def run(*options, **settings):
        named = SETTINGS | {name.replace("__", "."): value for name, value in settings.items()}
        sets = [part for name, value in named.items() for part in ("--set", f"{name}={value}")]
        files = ["--source", tmp_path / "new.source", "--target", tmp_path / "new.target", "--out", tmp_path / "tuned"]
        return headway("train", "--from", model_folder, *files, "--device", "cpu", *sets, *options)

    return run


def tuned(tmp_path):
    from headway.translator import load

    return load(tmp_path / "tuned")


def test_shape_vocabulary_and_weights_are_those_of_the_model(tune, model_folder, tmp_path):
    import torch

    from headway.translator import load

    outcome = tune(training__learning_rate=1e-12, model__longest=99, model__dropout=0.0)
    assert outcome.code == 0, outcome.err
    old, new = load(model_folder), tuned(tmp_path)
    assert new.target.fingerprint() == old.target.fingerprint()
    assert (new.model.config.longest, new.model.config.dim) == (99, 16)
    after = new.model.state_dict()
    for name, weight in old.model.state_dict().items():
        if "positions" not in name:
            torch.testing.assert_close(after[name], weight, atol=1e-6, rtol=0)


def test_the_vocabulary_grows_where_that_is_asked_for(tune, model_folder, tmp_path):
    from headway.translator import load

    assert tune(start__extend=40, model__longest=99).code == 0
    old, new = load(model_folder), tuned(tmp_path)
    assert new.target.size == old.target.size + 40
    assert old.target.backend.get_vocab().items() <= new.target.backend.get_vocab().items()
    assert len(new.tokenize(["myocardite"])[0]) < len(old.tokenize(["myocardite"])[0])


def test_a_tuned_run_is_resumed(tune, tmp_path):
    assert tune(model__longest=99).code == 0
    outcome = tune("--resume", model__longest=99, training__steps=5)
    assert outcome.code == 0, outcome.err
    assert "resuming at step 3\n" in outcome.err


@pytest.mark.parametrize(
    ("setting", "named"),
    [({"model__dim": 32}, "model.dim"), ({"tokenizer__kind": "words"}, "tokenizer.kind"),
     ({"tokenizer__vocabulary": 999}, "tokenizer.vocabulary"), ({"start__extend": -1}, "start.extend")],
)  # fmt: skip
def test_settings_that_do_not_fit_the_model_are_refused_by_name(tune, setting, named, tmp_path):
    assert named in tune(**setting).complaint
    assert not (tmp_path / "tuned").exists()


def test_a_folder_that_holds_no_model_is_refused(tune, headway, tmp_path):
    outcome = headway("train", "--from", tmp_path, "--source", tmp_path / "new.source", "--target",
                      tmp_path / "new.target", "--out", tmp_path / "tuned")  # fmt: skip
    assert "not a Headway folder" in outcome.complaint

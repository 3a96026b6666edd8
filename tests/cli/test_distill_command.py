"""`headway distill`: a teacher's outputs, and a student that learns from them."""

import json
import tomllib

import pytest

from headway.errors import ConfigError

SETTINGS = {
    "training.steps": 3,
    "training.batch_tokens": 256,
    "training.validation_sentences": 2,
    "training.samples": 0,
}


@pytest.fixture
def distill(headway, model_folder, corpus, tmp_path):
    def run(*options, source=None, out=None, **settings):
        named = SETTINGS | {name.replace("__", "."): value for name, value in settings.items()}
        sets = [part for name, value in named.items() for part in ("--set", f"{name}={value}")]
        files = ["--source", source or corpus[0], "--out", out or tmp_path / "student", "--device", "cpu"]
        return headway("distill", model_folder, *files, "--beam", 1, *sets, *options)

    return run


def test_a_student_learns_from_what_the_teacher_says(distill, model_folder, corpus, tmp_path):
    from headway.translator import load

    outcome = distill()
    assert outcome.code == 0, outcome.err
    out, teacher = tmp_path / "student", load(model_folder)
    sources = (out / "pairs" / "source").read_text().splitlines()
    assert sources == corpus[0].read_text().splitlines()
    assert (out / "pairs" / "target").read_text().splitlines() == [str(text) for text in teacher(sources, beam=1)]
    assert f"60 pairs in {out / 'pairs'}\n" in outcome.err
    student = load(out)
    assert student.target.fingerprint() == teacher.target.fingerprint()
    sizes = [sum(weight.numel() for weight in each.model.parameters()) for each in (student, teacher)]
    assert sizes[0] < sizes[1]
    assert student.model.config.longest == teacher.model.config.longest


def test_the_student_is_the_next_preset_below_its_teacher():
    from headway.cli.distill import _smaller
    from headway.models.transformer import TransformerConfig

    presets = {name: TransformerConfig(preset=name) for name in ("mini", "tiny", "small", "base", "big")}
    assert _smaller(presets["big"], 32_000) == {"preset": "base"}
    assert _smaller(presets["base"], 32_000) == {"preset": "small"}
    assert _smaller(presets["small"], 8000) == {"preset": "tiny"}
    assert _smaller(presets["tiny"], 8000) == {"preset": "mini"}
    assert _smaller(presets["mini"], 8000) == {
        "dim": 128, "heads": 4, "encoder_layers": 2, "dropout": 0.1, "hidden": 256, "decoder_layers": 1,
    }  # fmt: skip


def test_settings_of_the_student_win(distill, tmp_path):
    assert distill(model__dim=8, model__heads=2, tokenizer__vocabulary=280).code == 0
    recipe = tomllib.loads((tmp_path / "student" / "config.toml").read_text())
    assert (recipe["model"]["dim"], recipe["tokenizer"]["vocabulary"]) == (8, 280)
    assert "file" not in recipe["tokenizer"]


def test_true_pairs_are_learnt_from_too_where_that_is_asked_for(distill, corpus, tmp_path):
    outcome = distill("--target", corpus[1], "--keep-original")
    assert outcome.code == 0, outcome.err
    targets = (tmp_path / "student" / "pairs" / "target").read_text().splitlines()
    assert len(targets) == 120
    assert targets[60:] == corpus[1].read_text().splitlines()


def test_one_file_may_hold_both_sides(distill, tmp_path):
    lines = [{"source": f"le chat {number}", "target": f"THE CAT {number}"} for number in range(30)]
    (tmp_path / "both.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    outcome = distill("--keep-original", source=tmp_path / "both.jsonl")
    assert outcome.code == 0, outcome.err
    assert "THE CAT 7" in (tmp_path / "student" / "pairs" / "target").read_text()


def test_training_that_has_begun_is_resumed_and_never_begun_again(distill, tmp_path):
    assert distill().code == 0
    assert "already holds a run; go on with --resume" in distill().only_complaint
    outcome = distill("--resume", training__steps=5)
    assert outcome.code == 0, outcome.err
    assert "resuming at step 3\n" in outcome.err
    assert "translating" not in outcome.err


@pytest.fixture
def untrained(monkeypatch):
    """Training that is refused after all."""

    def refuse(*_, **__):
        raise ConfigError("refused; say what")

    with monkeypatch.context() as patch:
        patch.setattr("headway.assemble.train", refuse)
        yield patch


def test_translations_outlive_a_training_that_does_not_begin(distill, untrained, tmp_path):
    assert distill().code == 2
    untrained.undo()
    out = tmp_path / "student"
    (piece,) = (out / "translations").iterdir()
    before = (piece / "output").stat().st_mtime_ns
    outcome = distill()
    assert outcome.code == 0, outcome.err
    assert (piece / "output").stat().st_mtime_ns == before


def test_a_mistake_is_told_in_one_line_and_leaves_nothing(distill, headway, corpus, tmp_path):
    out = tmp_path / "student"
    assert "no such file" in distill(source=tmp_path / "missing").only_complaint
    assert "give them by --target" in distill("--keep-original").only_complaint
    (tmp_path / "short").write_text("one\ntwo\n")
    assert "line n of one must translate line n" in distill("--target", tmp_path / "short").only_complaint
    assert "unknown key model.dimension" in distill(model__dimension=5).only_complaint
    assert "holds nothing to resume" in distill("--resume").only_complaint
    assert "no such folder" in headway("distill", tmp_path / "no", "--source", corpus[0], "--out", out).only_complaint
    assert "beam" in distill("--beam", 0).only_complaint
    assert not out.exists()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"model__dim": 16384, "model__heads": 8, "model__hidden": 65536, "model__encoder_layers": 256}, "lower dim"),
        ({"tokenizer__vocabulary": 100}, "100 cannot hold the 256 bytes"),
        ({"training__batch_tokens": 5}, "batch tokens fewer than the longest sentence"),
        ({"training__freeze": '["nothing"]'}, "training.freeze"),
        ({"data__valid_source": "absent", "data__valid_target": "absent"}, "absent: no such file"),
    ],
    ids=str,
)
def test_what_training_would_refuse_is_refused_before_the_first_translation(settings, told, distill, tmp_path):
    outcome = distill(**settings)
    assert told in outcome.complaint
    assert "translating" not in outcome.err
    assert not (tmp_path / "student").exists()


def test_translations_of_another_text_are_not_mixed_in(distill, untrained, corpus):
    assert distill().code == 2
    assert "made from another text; choose another --out" in distill(source=corpus[1]).complaint

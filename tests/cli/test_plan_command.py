"""`headway plan`."""

import tempfile

import pytest

from headway.forecast import measurement


@pytest.fixture
def plan(headway, corpus, tiny, monkeypatch, tmp_path):
    """Plans the tiny run of the other tests, in no time; settings may be added or replaced, options appended."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("WARM_UP", "MEASURED", "VALIDATED"):
        monkeypatch.setattr(measurement, name, 0.05)

    def run(*options, **settings):
        named = tiny | {name.replace("__", "."): value for name, value in settings.items()}
        sets = [part for name, value in named.items() for part in ("--set", f"{name}={value}")]
        return headway("plan", "--source", corpus[0], "--target", corpus[1], "--device", "cpu", *sets, *options)

    return run


def test_a_plan_is_what_then_happens(plan, train, tmp_path):
    found = plan("--json").json
    assert list(tmp_path.glob("headway-*")) == []  # where it worked
    assert train().code == 0
    (last,) = (tmp_path / "run" / "checkpoints").glob("step-*3")
    saved = sum(path.stat().st_size for path in last.iterdir())
    assert found["checkpoint"] == pytest.approx(saved, rel=0.01)
    from headway.translator import load

    model = load(tmp_path / "run").model
    assert sum(found["parameters"].values()) == sum(weight.numel() for weight in model.parameters())
    assert found["vocabulary"] == len(model.output.weight)
    assert found["exact"]
    assert found["ending"]["updates"] == 3
    assert found["ending"]["reason"] == "steps"


def test_a_plan_tells_people_everything(plan):
    lines = plan().lines
    for word in ("machine", "corpus", "model", "batches", "parameters", "memory", "an update", "an epoch",
                 "a validation", "a checkpoint", "the end"):  # fmt: skip
        assert any(line.startswith(word) for line in lines), word
    assert not any(line.startswith("traffic") for line in lines)


def test_an_epoch_has_as_many_updates_as_training_takes(plan, train, tmp_path):
    settings = {"training__batch_tokens": 128, "training__accumulate": 2}
    found = plan("--json", **settings).json
    out = train(**settings, training__steps=1000, training__epochs=1, training__validate_every=1000)
    assert f"step {found['updates_per_epoch']}: validation" in out.err


def test_a_time_budget_is_answered_by_updates(plan):
    found = plan("--json", "--time", "30s", training__steps=100_000_000).json
    assert found["ending"]["reason"] == "time"
    assert found["ending"]["seconds"] == pytest.approx(0.98 * 30, rel=0.05)
    lines = plan("--time", "30s", training__steps=100_000_000).lines
    assert any("fit into the time" in line for line in lines)


def test_several_processes_share_the_work_and_the_weights(plan):
    alone, copied = plan("--json").json, plan("--json", "--processes", 2).json
    divided = plan("--json", "--processes", 2, training__sharded="true").json
    assert copied["tokens"] == 2 * alone["tokens"]
    assert alone["traffic"] == 0
    assert copied["traffic"] == 4 * sum(alone["parameters"].values())
    assert 2 * divided["memory"]["moments"] == copied["memory"]["moments"] == alone["memory"]["moments"]
    assert any(line.startswith("traffic") for line in plan("--processes", 2).lines)


def test_a_mistake_is_one_line(plan, headway):
    assert "--processes 0" in plan("--processes", 0).complaint
    assert "nothing to learn from" in headway("plan").complaint
    assert "no such file" in headway("plan", "--source", "missing.tsv").complaint

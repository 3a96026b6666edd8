"""`headway bench`."""

import os
import signal
import tempfile

import numpy as np
import pytest
import torch

from headway import throughput
from headway.objectives import LabelSmoothedLikelihood
from headway.runtime import speed
from headway.runtime.speed import matrix_peak
from headway.screen import Silent
from headway.throughput import Slice, Throughput
from headway.training.config import TrainingConfig
from headway.training.progress import Progress
from headway.training.trainer import Trainer, Update


@pytest.fixture
def bench(headway, tiny, monkeypatch, tmp_path):
    """Measures a tiny model in no time; settings may be added or replaced, options appended."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setitem(speed.PRODUCT, "cpu", 64)
    monkeypatch.setattr(throughput, "HELD", 3)

    def run(*options, seconds=0.2, **settings):
        named = {name: value for name, value in tiny.items() if name.startswith("model.")} | {
            "training.batch_tokens": 256
        }
        named |= {name.replace("__", "."): value for name, value in settings.items()}
        sets = [part for name, value in named.items() for part in ("--set", f"{name}={value}")]
        return headway("bench", "train", "--device", "cpu", "--seconds", seconds, *sets, *options)

    return run


@pytest.fixture
def recipe(corpus, tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text('[data]\nsource = "train.source"\ntarget = "train.target"\n[tokenizer]\nvocabulary = 300\n')
    return path


def test_what_is_measured_is_the_trainers_own_work(bench, tmp_path, monkeypatch):
    steps, real = [], LabelSmoothedLikelihood.__call__

    def counted(self, model, batch, step=0):
        steps.append(batch.units)
        return real(self, model, batch, step)

    monkeypatch.setattr(LabelSmoothedLikelihood, "__call__", counted)
    found = bench("--json", "--vocabulary", "200").json
    assert list(tmp_path.glob("headway-*")) == []  # where it worked
    assert found["vocabulary"] == 200
    assert len(found["slices"]) == throughput.SLICES
    timed = sum(each["updates"] for each in found["slices"])
    assert throughput.SLICES <= timed < len(steps)  # but for the warm-up
    assert sum(each["tokens"] for each in found["slices"]) == sum(steps[-timed:])
    assert all(0.2 / throughput.SLICES <= each["seconds"] < 5 for each in found["slices"])
    low, high = found["tokens_per_second_spread"]
    assert low <= found["tokens_per_second"] <= high
    assert found["updates_per_second"] * found["seconds_per_update"] == pytest.approx(1)
    assert found["share_of_peak"] == pytest.approx(found["operations_per_second"] / found["peak"])
    assert 0 < found["memory"] < found["machine_memory"]
    assert found["settings"]["batch_tokens"] == 256
    assert not found["captured"]


def test_people_are_told_everything(bench):
    lines = bench("--vocabulary", "200").lines
    starts = ("machine", "model", "training", "data", "speed", "an update", "arithmetic", "memory")
    assert [line[:13].strip() for line in lines] == list(starts)
    assert "200 known tokens" in lines[1]
    assert "padded, precision fp32" in lines[2]
    assert "% of the" in lines[6]


def test_accumulated_batches_are_one_update(bench):
    one, two = (bench("--json", "--vocabulary", "200", training__accumulate=count).json for count in (1, 2))
    tokens = [
        sum(each["tokens"] for each in found["slices"]) / sum(each["updates"] for each in found["slices"])
        for found in (one, two)
    ]
    assert tokens[1] > 1.5 * tokens[0]


def test_settings_of_a_recipe_are_measured_on_random_sentences_without_its_data(bench, tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text('[data]\nsource = "missing"\n[tokenizer]\nvocabulary = 123\n[training]\nlabel_smoothing = 0.0\n')
    found = bench(path, "--json").json
    assert found["vocabulary"] == 123
    assert "random" in found["data"]


def test_with_data_the_recipes_own_is_trained_on(bench, recipe, tmp_path):
    found = bench(recipe, "--data", tmp_path, "--json", training__time="5s").json
    assert found["data"] == "the recipe's"
    assert found["vocabulary"] == 300
    epoch = sum(each["tokens"] for each in found["slices"]) / sum(each["updates"] for each in found["slices"])
    assert epoch < 256


def test_random_sentences_have_the_lengths_they_should(tmp_path):
    throughput._write_sentences(tmp_path, ["a", "b"], pairs=4000)
    lengths = [
        np.array([len(line.split()) for line in (tmp_path / side).read_text().splitlines()])
        for side in ("source", "target")
    ]
    assert lengths[0].min() >= 3 and lengths[0].max() <= 120
    assert np.log(lengths[0]).mean() == pytest.approx(3.03, abs=0.05)
    assert np.log(lengths[0]).std() == pytest.approx(0.55, abs=0.05)
    assert (lengths[1] / lengths[0]).mean() == pytest.approx(1.03, abs=0.03)


def test_random_sentences_fill_about_as_many_batches_as_are_held(tmp_path):
    tree = {"training": {"batch_tokens": 1024}}
    throughput._with_random_data(tree, tmp_path, torch.device("cpu"), vocabulary=100)
    tokens = len((tmp_path / "source").read_text().split())
    assert tokens == pytest.approx(throughput.HELD * 1024, rel=0.1)


def test_a_model_of_short_sentences_tells_what_is_left_of_the_random_ones(bench):
    assert (
        bench("--json", "--vocabulary", "200", model__longest=20)
        .json["data"]
        .startswith("random sentences of 3 to 19 ")
    )


def test_a_curriculum_does_not_leave_long_sentences_out(bench, monkeypatch):
    held, real = [], throughput._Held.of

    def kept(feed, number):
        held.append(real(feed, number))
        return held[-1]

    monkeypatch.setattr(throughput._Held, "of", kept)
    bench("--vocabulary", "200")
    bench("--vocabulary", "200", training__curriculum=4)
    plain, graded = (sum(batch.pairs for batch in each.batches) for each in held)
    assert plain == graded


@pytest.fixture
def clock(monkeypatch):
    """A clock of slices of a second over captured updates of a tenth; `settle` tells of some of them at once."""
    now = [0.0]
    monkeypatch.setattr(throughput.time, "monotonic", lambda: now[0])
    trainer = object.__new__(Trainer)  # of which the clock sees three things
    trainer.captured, trainer.config, trainer.progress = object(), TrainingConfig(log_every=50), Progress()
    feed = throughput._Watched(throughput._Held([]))
    made = throughput._Clock(trainer, feed, 1.0, Silent(), begun=0.0)

    def settle(count):
        steps = range(trainer.progress.step + 1, trainer.progress.step + count + 1)
        trainer.progress = Progress(step=steps[-1])
        feed.taken += [None] * count
        now[0] += 0.1 * count
        for step in steps:
            made(Update(step, None, 0, 1.0, 1.0, 1.0, 1.0, None))

    made.settle = settle
    return made


def test_updates_settled_together_are_timed_together(clock):
    clock.settle(1)
    assert clock.marks == []  # warming up
    clock.settle(49)
    clock.settle(14)  # not at a line of the journal
    clock.settle(3)  # too short for a slice
    assert clock.marks == [(pytest.approx(5.0), 50, 50), (pytest.approx(6.4), 64, 64)]


def test_slow_captured_updates_are_settled_several_times_a_slice(clock):
    clock.settle(50)
    assert clock.trainer.config.log_every == 2
    for _ in range(4 * throughput.SLICES):
        clock.settle(2)
        if len(clock.marks) == throughput.SLICES:
            break
    assert clock.marks[-1][0] < 5.0 + 1.3 * throughput.SLICES


def test_the_warm_up_meets_every_held_batch(clock):
    clock.met = 60
    clock.settle(50)
    assert clock.marks == []
    clock.settle(10)
    assert [step for _, step, _ in clock.marks] == [60]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=str)
def test_a_signal_leaves_nothing_behind(bench, tmp_path, monkeypatch, number, code):
    found = []

    def interrupted(self, model, batch, step=0):
        found.extend(tmp_path.glob("headway-*"))
        os.kill(os.getpid(), number)

    monkeypatch.setattr(LabelSmoothedLikelihood, "__call__", interrupted)
    before, heeded = signal.getsignal(signal.SIGTERM), signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        outcome = bench("--vocabulary", "200")
    finally:
        signal.signal(signal.SIGINT, heeded)
    assert outcome.code == code
    assert outcome.out == "" and "Traceback" not in outcome.err
    assert found and list(tmp_path.glob("headway-*")) == []
    assert signal.getsignal(signal.SIGTERM) is before


def test_with_data_a_recipe_must_name_a_source(headway, tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text('[model]\npreset = "tiny"\n')
    assert "names no source; add data.source" in headway("bench", "train", path, "--data", tmp_path).only_complaint


def test_figures_are_medians_and_shares():
    slices = [Slice(2.0, 10, 1000, 4e9), Slice(1.0, 10, 1000, 4e9), Slice(1.0, 8, 900, 3e9)]
    found = Throughput(
        "m", "1+1", 5, 6, {}, captured=True, data="d", slices=slices, peak=6e9, memory=1, machine_memory=2
    )
    told = found.to_json()
    assert told["tokens_per_second"] == 900
    assert told["tokens_per_second_spread"] == [500, 1000]
    assert told["seconds_per_update"] == 0.125
    assert told["share_of_peak"] == 0.5
    assert any("captured updates" in line for line in found.lines())


def test_the_peak_is_that_of_real_products(monkeypatch):
    monkeypatch.setitem(speed.PRODUCT, "cpu", 128)
    assert 1e7 < matrix_peak(torch.device("cpu"), half=False, seconds=0.01) < 1e15


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["train", "--seconds", "0"], "--seconds 0: give more than 0"),
        (["train", "--vocabulary", "2"], "--vocabulary 2: give 8 tokens or more"),
        (["train", "--vocabulary", "2000000"], "at most 1048576"),
        (["train", "--vocabulary", "1.5"], "not a whole number"),
        (["train", "--data", "there"], "--data: there is no recipe"),
        (["train", "missing.toml"], "missing.toml"),
        (["train", "--preset", "enormous"], "preset"),
        (["train", "--set", "model.wings=2"], "wings"),
        (["train", "--set", "model=2"], "model"),
        (["train", "--batch-tokens", "50", "--device", "cpu"], "batch tokens fewer than the longest sentence"),
        (["train", "--device", "toaster"], "--device toaster"),
        (["decode"], "--help"),
    ],
    ids=str,
)
def test_a_mistake_is_one_line(headway, options, told):
    assert told in headway("bench", *options).complaint

import json
import math
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import headway
from headway.data.batches import Batch
from headway.errors import ConfigError, DataError, FolderError, HeadwayError, Interrupted
from headway.folders import sha256
from headway.models.ctc import CtcConfig
from headway.objectives import guided_head
from headway.sequences import Sequences
from headway.training.checkpoint import parameters
from headway.training.parallel import Parallel
from headway.training.trainer import Validation
from headway.validation import Validator
from hostile_folders import change_config
from workspaces import leave_workspace


def losses(out):
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [(line["step"], line["train/loss"]) for line in lines if "train/loss" in line]


def test_a_run_leaves_a_model_folder_that_loads_and_a_journal(recipe, run, tmp_path, screen):
    folder = run(recipe(), tmp_path / "run")
    assert folder == tmp_path / "run" / "best"
    assert {path.name for path in folder.iterdir()} == {
        "config.json", "model.safetensors", "tokenizer.json", "MANIFEST.json", "README.md",
    }  # fmt: skip
    model = headway.load(tmp_path / "run")
    assert isinstance(model("un deux"), str)
    assert [len(model([])), len(model(["un", "", "deux trois"]))] == [0, 3]
    assert [step for step, _ in losses(tmp_path / "run")] == list(range(1, 13))
    assert list((tmp_path / "run" / "events").iterdir())
    names = {
        name for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines() for name in json.loads(line)
    }
    assert {"train/loss", "train/learning_rate", "train/grad_norm", "train/tokens_per_second"} <= names
    assert {"valid/loss", "valid/bleu", "valid/chrf", "final/bleu"} <= names
    assert any(line.startswith("  output") for line in screen.lines)


def test_the_same_seed_trains_the_same_model_and_another_one_does_not(recipe, run, tmp_path, state_of):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        run(recipe(seed=seed, steps=4), tmp_path / name)
    states = [state_of(tmp_path / name, 4) for name in "abc"]
    assert states[0] == states[1]
    assert states[0]["model.safetensors"] != states[2]["model.safetensors"]


@pytest.mark.parametrize("layout", ["padded", "packed"])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_resume_continues_exactly(recipe, tmp_path, interrupted_at, layout, accumulate):
    interrupted_at(recipe(layout=layout, accumulate=accumulate), tmp_path, 6)
    assert losses(tmp_path / "broken") == losses(tmp_path / "whole")


def test_resume_after_a_kill_goes_on_from_the_newest_checkpoint(recipe, run, tmp_path, state_of):
    run(recipe(), tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    shutil.rmtree(tmp_path / "killed/best")
    shutil.rmtree(tmp_path / "killed/checkpoints/step-000000012")
    leave_workspace(tmp_path / "killed/checkpoints", "step-000000012")
    run(recipe(), tmp_path / "killed", resume=True)
    assert state_of(tmp_path / "killed", 12) == state_of(tmp_path / "whole", 12)


def test_a_damaged_checkpoint_is_skipped_and_named(recipe, run, tmp_path, screen, state_of):
    run(recipe(), tmp_path / "run")
    whole = state_of(tmp_path / "run", 12)
    shutil.rmtree(tmp_path / "run/best")
    damaged = tmp_path / "run/checkpoints/step-000000012/model.safetensors"
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    run(recipe(), tmp_path / "run", resume=True)
    assert any("skipped a checkpoint" in line and "step-000000012" in line for line in screen.lines)
    assert state_of(tmp_path / "run", 12) == whole


def test_resume_when_finished_does_nothing_new(recipe, run, tmp_path, screen):
    folder = run(recipe(), tmp_path / "run")
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    updates = len(screen.updates)
    assert run(recipe(), tmp_path / "run", resume=True) == folder
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    assert len(screen.updates) == updates


def test_more_steps_may_be_asked_for_at_resume(recipe, run, tmp_path, screen):
    run(recipe(), tmp_path / "run")
    run(recipe(steps=16, warmup=6), tmp_path / "run", resume=True)
    assert screen.updates[-1].step == 16


@pytest.mark.parametrize("longer", [{"steps": 50}, {"steps": 50, "time": "2h"}, {"steps": None, "epochs": 2}])
@pytest.mark.parametrize("before", [{}, {"time": "1h"}])
def test_another_end_at_resume_takes_the_place_of_the_epochs(recipe, run, tmp_path, screen, before, longer):
    run(recipe(validate_every=100, **{"steps": None, "epochs": 1} | before), tmp_path / "run")
    done = screen.updates[-1].step
    run(recipe(validate_every=100, **longer), tmp_path / "run", resume=True)
    assert screen.updates[-1].step == 50 if longer["steps"] else done < screen.updates[-1].step < 50
    assert screen.updates[-1].learning_rate < 0.1 * 0.003


def test_epochs_shorten_the_schedule_of_more_steps(recipe, run, tmp_path, screen, state_of):
    run(recipe(steps=1000, epochs=1, schedule="linear", validate_every=100), tmp_path / "run")
    last = screen.updates[-1]
    assert last.step == last.steps < 100
    assert last.learning_rate < 0.2 * 0.003


def test_a_rate_is_known_before_the_end_is(trainer):
    made = trainer(steps=None, epochs=2, schedule="linear", warmup=0)
    assert made.progress.steps is None and made._rate(1) > 0


def test_epochs_set_the_steps_and_a_resumed_run_keeps_them(recipe, run, tmp_path, screen, state_of):
    def stop(update):
        if update.step == 17:
            os.kill(os.getpid(), signal.SIGTERM)

    settings = recipe(steps=None, epochs=2, validate_every=100)
    run(settings, tmp_path / "whole")
    last = screen.updates[-1]
    assert last.step == last.steps and last.epoch == 1
    assert last.learning_rate < 0.1 * settings.training.learning_rate
    screen.hook = stop
    with pytest.raises(Interrupted):
        run(settings, tmp_path / "broken")
    run(settings, tmp_path / "broken", resume=True)
    assert state_of(tmp_path / "broken", last.step) == state_of(tmp_path / "whole", last.step)


def test_the_steps_that_epochs_leave_are_counted_from_where_a_run_is(trainer):
    made = trainer(steps=None, epochs=3)
    made.progress = replace(made.progress, step=10, epoch=1, position=4)
    made._limit(12)
    assert made.progress.steps == 10 + 8 + 12


def test_a_changed_setting_at_resume_is_refused_by_name(recipe, run, tmp_path):
    run(recipe(steps=2), tmp_path / "run")
    with pytest.raises(ConfigError, match=r"training\.label_smoothing"):
        run(recipe(steps=2, label_smoothing=0.2), tmp_path / "run", resume=True)


def test_a_folder_that_holds_a_run_is_never_overwritten(recipe, run, tmp_path):
    run(recipe(steps=1), tmp_path / "run")
    with pytest.raises(FolderError, match="--resume"):
        run(recipe(steps=1), tmp_path / "run")


def test_data_that_changed_since_the_run_began_is_refused(recipe, run, tmp_path, corpus):
    copy = tmp_path / "corpus"
    shutil.copytree(corpus, copy)
    settings = recipe(steps=2)
    settings = settings.model_copy(update={"data": settings.data.model_copy(update={"folder": copy})})
    run(settings, tmp_path / "run")
    with (copy / "target").open("a") as file:
        file.write("X\n")
    with pytest.raises(DataError, match="changed since"):
        run(settings, tmp_path / "run", resume=True)


def test_accumulation_weighs_every_target_token_alike(trainer, recipe):
    """The gradient of an update over ragged batches is that of the mean over all their tokens."""
    settings = recipe(accumulate=3, steps=1, validate_every=1, clip=0.0)
    shape = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
    made = trainer(settings.model_copy(update={"model": settings.model.model_copy(update=shape)}))
    _, batches = made.feed.epoch(0, 0)
    group = [next(batches) for _ in range(3)]
    assert len({batch.units for batch in group}) == 3
    total = sum(made.gradients.forward.objective(made.model, batch).total for batch in group)
    weights = tuple(made.model.parameters())
    expected = torch.autograd.grad(total / sum(batch.units for batch in group), weights)
    made.validate = lambda *_: Validation({"loss": 1.0}, [])
    made.fit()
    torch.testing.assert_close(tuple(weight.grad for weight in weights), expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("way", ["alone", "accumulated", "split", "beside another process"])
def test_a_pair_without_a_path_leaves_the_gradient_of_an_update_as_it_is(trainer, recipe, monkeypatch, way):
    shape = CtcConfig(dim=16, encoder="recurrent", encoder_layers=1, decoder_layers=0, upsample=1, longest=64)
    made = trainer(recipe(clip=0.0).model_copy(update={"model": shape}))
    made.model.eval()
    made.model.train = lambda: None  # dropout stays off
    made.optimiser.step = lambda rate: None  # the weights stay as they are
    if way == "beside another process":  # which brings 7 units of its own
        alone = Parallel.exchange
        monkeypatch.setattr(Parallel, "exchange", lambda self, *own: [*alone(self, *own), (7, *own[1:])])

    def gradient(pairs):
        update = made.update([aligned_batch(pairs), aligned_batch([([9, 8], [7])])][: 1 + (way == "accumulated")])
        return update.loss, [weight.grad.clone() for weight in made.model.parameters()]

    loss, expected = gradient([([5, 6, 7], [8, 9]), ([7], [5])])
    made.gradients.limit = 6 if way == "split" else None
    also, got = gradient([([5, 6, 7], [8, 9]), ([7], [5]), ([5], [8, 9, 8, 9])])
    assert also == pytest.approx(loss)
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-4)


def test_an_update_of_pairs_without_a_path_alone_has_no_gradient(trainer, recipe):
    shape = CtcConfig(dim=16, encoder="recurrent", encoder_layers=1, decoder_layers=0, upsample=1, longest=64)
    made = trainer(recipe().model_copy(update={"model": shape}))
    update = made.update([aligned_batch([([5], [8, 9, 8, 9])])])
    assert (update.loss, update.gradient_norm) == (0.0, 0.0)


def aligned_batch(pairs):
    """Pairs of source and target tokens, padded."""
    source = Sequences.pad([[*source, 2] for source, _ in pairs], 0)
    labels = Sequences.pad([[*target, 2] for _, target in pairs], 0)
    target = Sequences.pad([[1, *target] for _, target in pairs], 0)
    return Batch(source, target, labels.tokens, int(labels.lengths.sum()))


def test_the_guided_head_stands_in_the_model_folder_and_is_known_of_a_checkpoint(recipe, run, tmp_path, corpus):
    links = tmp_path / "links"
    links.write_text("0-0\n" * 300)
    settings = recipe(steps=1, validate_every=1, guided_alignment=0.1, layout="padded")
    settings = settings.model_copy(update={"data": settings.data.model_copy(update={"alignment": links})})
    folder = run(settings, tmp_path / "run")
    card = json.loads((folder / "config.json").read_text())
    assert card["guided"] == {"layer": 0, "head": 0}
    for path in (folder, tmp_path / "run/checkpoints/step-000000001"):
        assert headway.load(path).guided == guided_head(settings.model)
    headway.load(folder).save(tmp_path / "again")
    assert headway.load(tmp_path / "again").guided == guided_head(settings.model)
    older = tmp_path / "older"
    shutil.copytree(folder, older)
    change_config(older, lambda tree: tree.pop("guided"))
    assert headway.load(older).guided is None


def test_an_update_that_is_not_finite_is_skipped_and_ten_in_a_row_stop(trainer, screen):
    made = trainer()
    _, batches = made.feed.epoch(0, 0)
    batch = next(batches)
    before = {name: weight.clone() for name, weight in parameters(made.model).items()}
    objective = made.gradients.forward.objective

    class Broken:
        def __call__(self, model, batch, step):
            loss = objective(model, batch)
            return loss._replace(total=loss.total * math.nan)

    made.gradients.forward.objective = Broken()
    for _ in range(9):
        made.update([batch])
    assert all(torch.equal(before[name], weight) for name, weight in parameters(made.model).items())
    assert not any(made.optimiser.state(weight) for weight in made.model.parameters())
    with pytest.raises(HeadwayError, match="10 updates in a row"):
        made.update([batch])
    made.progress = replace(made.progress, skipped=0)
    made.gradients.forward.objective = objective
    made.update([batch])
    assert all(made.optimiser.state(weight) for weight in made.model.parameters())


def test_no_checkpoint_ever_holds_nan(trainer):
    made = trainer()
    with torch.no_grad():
        next(iter(made.model.parameters()))[0] = math.nan
    with pytest.raises(HeadwayError, match="not finite"):
        made.checkpoints.save(made.model, made.optimiser, made.progress)
    assert made.checkpoints.steps() == []


@pytest.mark.parametrize(("loss_of_average", "kept"), [(0.5, "average"), (1.5, "best")])
def test_the_model_is_the_mean_of_the_best_checkpoints_where_that_is_better(
    recipe, run, tmp_path, monkeypatch, loss_of_average, kept
):
    losses = iter([1.0, 3.0, 2.0, 1.0, loss_of_average])  # of three checkpoints; at the end of the best, of the average
    monkeypatch.setattr(Validator, "__call__", lambda *_: Validation({"loss": next(losses)}, []))
    run(recipe(steps=12, average=2, metric="loss"), tmp_path / "run")
    first, last = (load_file(tmp_path / f"run/checkpoints/step-{step:09d}/model.safetensors") for step in (4, 12))
    expected = {name: (first[name] + last[name]) / 2 if kept == "average" else first[name] for name in first}
    model = load_file(tmp_path / "run/best/model.safetensors")
    torch.testing.assert_close(model, expected, atol=1e-7, rtol=0.0)
    assert not torch.allclose(first["output.bias"], last["output.bias"], atol=1e-4)


def test_training_ends_when_it_no_longer_improves(recipe, run, tmp_path, screen):
    run(recipe(steps=None, learning_rate=1e-9, patience=2, validate_every=2, warmup=0), tmp_path / "run")
    assert any("brought no improvement" in line for line in screen.lines)


def test_a_time_budget_is_kept_and_the_schedule_fitted_to_it(recipe, run, ticking, tmp_path, screen):
    run(recipe(steps=None, time="10s", validate_every=None), tmp_path / "run")
    last = screen.updates[-1]
    assert last.step == last.steps
    assert last.learning_rate < 0.2 * max(update.learning_rate for update in screen.updates)
    newest = max((tmp_path / "run/checkpoints").iterdir())
    assert 9.0 < json.loads((newest / "progress.json").read_text())["seconds"] <= 10.0


def test_bpe_dropout_and_separate_vocabularies_train(recipe, run, tmp_path):
    settings = recipe(steps=2)
    settings = settings.model_copy(
        update={"tokenizer": settings.tokenizer.model_copy(update={"dropout": 0.2, "joint": False})}
    )
    folder = run(settings, tmp_path / "run")
    assert (folder / "source.tokenizer.json").is_file() and (folder / "target.tokenizer.json").is_file()
    assert isinstance(headway.load(folder)("un deux"), str)


def test_a_damaged_checkpoint_is_never_averaged_into_the_model(recipe, run, tmp_path, screen):
    run(recipe(steps=8, patience=100), tmp_path / "run")
    shutil.rmtree(tmp_path / "run/best")
    older, newer = sorted((tmp_path / "run" / "checkpoints").iterdir())
    content = bytearray((older / "model.safetensors").read_bytes())
    content[-1] ^= 64
    (older / "model.safetensors").write_bytes(content)
    run(recipe(steps=8, patience=100), tmp_path / "run", resume=True)
    assert any("skipped a checkpoint" in line and older.name in line for line in screen.lines)
    assert sha256(tmp_path / "run/best/model.safetensors") == sha256(newer / "model.safetensors")


def test_more_time_may_be_given_at_resume(recipe, run, ticking, tmp_path, screen):
    run(recipe(steps=None, time="5s", validate_every=None), tmp_path / "run")
    before = screen.updates[-1].step
    run(recipe(steps=None, time="10s", validate_every=None), tmp_path / "run", resume=True)
    assert screen.updates[-1].step > before + 5


def test_steps_bound_a_time_budget_too(recipe, run, ticking, tmp_path, screen):
    run(recipe(steps=15, time="60s", validate_every=None), tmp_path / "run")
    assert screen.updates[-1].step == 15


def test_pruning_after_a_damaged_newest_checkpoint_keeps_the_one_just_written(trainer):
    made = trainer()
    for step in (5, 9):
        made.checkpoints.save(made.model, made.optimiser, replace(made.progress, step=step))
    (made.checkpoints.path(9) / "progress.json").write_text("{}")
    leave_workspace(made.checkpoints.folder, "step-000000003")
    made.checkpoints.save(made.model, made.optimiser, replace(made.progress, step=7))
    made.checkpoints.prune(7, {5})
    assert made.checkpoints.steps() == [7, 5]
    assert sorted(path.name for path in made.checkpoints.folder.iterdir()) == ["step-000000005", "step-000000007"]


def test_pairs_with_the_source_of_a_validation_pair_are_left_out_and_counted(recipe, run, tmp_path, screen):
    (tmp_path / "s").write_text("yes .\n" * 60 + "".join(f"number {n}\n" for n in range(60)))
    (tmp_path / "t").write_text("oui .\n" * 60 + "".join(f"nombre {n}\n" for n in range(60)))
    settings = recipe(steps=1)
    data = settings.data.model_copy(update={"folder": tmp_path, "source": Path("s"), "target": Path("t")})
    run(settings.model_copy(update={"data": data}), tmp_path / "run")
    (line,) = [line for line in screen.lines if "training pairs" in line]
    assert "left out (source of a validation pair)" in line
    kept = int(line.split()[0])
    assert kept < 65


def test_checkpoints_are_written_between_validations_by_updates_or_by_the_clock(trainer, monkeypatch):
    by_updates = trainer(save_every=2, validate_every=4, steps=7, average=1)
    steps = []
    monkeypatch.setattr(type(by_updates.checkpoints), "write", lambda self, taken: steps.append(taken.progress.step))
    monkeypatch.setattr(type(by_updates.checkpoints), "prune", lambda self, newest, keep: None)
    by_updates.fit()
    assert steps == [2, 4, 6, 7]
    steps.clear()
    monkeypatch.setattr("headway.training.trainer.SAVED_AFTER", 0.0)
    trainer(validate_every=4, steps=4, average=1).fit()
    assert sorted(set(steps)) == [1, 2, 3, 4]


def test_a_longer_gradient_than_clip_is_scaled_down_to_it(trainer):
    norms = []
    for clip in (0.0, 0.01):
        made = trainer(clip=clip)
        _, batches = made.feed.epoch(0, 0)
        update = made.update([next(batches)])
        norms.append(torch.stack([weight.grad.norm() for weight in made.model.parameters()]).norm().item())
        assert update.gradient_norm > 0.02  # what is told is the length before
    assert norms[0] > 0.02
    assert norms[1] == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize(("metric", "sign"), [("loss", 1), ("bleu", -1), ("chrf", -1)])
def test_the_best_checkpoints_are_those_of_the_metric_asked_for(trainer, metric, sign):
    made = trainer(metric=metric, steps=6, validate_every=2, average=2, patience=9)
    scores = {2: (3.0, 10.0, 40.0), 4: (1.0, 5.0, 60.0), 6: (2.0, 20.0, 50.0)}

    def validate(model, check):
        return Validation(dict(zip(("loss", "bleu", "chrf"), scores[made.progress.step], strict=True)), [])

    made.validate = validate
    made.fit()
    column = ("loss", "bleu", "chrf").index(metric)
    expected = sorted((sign * values[column], step) for step, values in scores.items())[:2]
    assert list(made.progress.best) == expected


def test_outputs_begin_at_the_frequencies_of_the_target_tokens(trainer):
    begun = trainer()
    bias, (_, batches) = begun.model.output.bias.detach(), begun.feed.epoch(0, 0)
    labels = torch.cat([batch.labels[batch.labels != begun.validate.target.padding] for batch in batches])
    counts = torch.bincount(labels, minlength=len(bias))
    torch.testing.assert_close(bias, torch.log((counts + 1) / (counts + 1).sum()))


@pytest.mark.parametrize("tie", ["three-way", "none"])
def test_the_embeddings_of_a_transformer_begin_small(trainer, recipe, tie):
    settings = recipe()
    model = trainer(settings.model_copy(update={"model": settings.model.model_copy(update={"tie": tie})})).model
    for table in (model.source_embedding.weight, model.target_embedding.weight, model.output.weight):
        assert table.std().item() == pytest.approx(0.02)


def test_within_a_time_budget_no_validation_comes_shortly_before_the_last(trainer):
    made = trainer(time="10m", steps=None, validate_every=None)

    def due(step, validated):  # three validations of 6 seconds are 3 % of the time
        made.progress = replace(made.progress, step=step, steps=100, validated=validated, validating=6.0)
        return made._validation_due(over=step == 100)

    assert [due(66, 33), due(99, 66), due(100, 66)] == [True, False, True]

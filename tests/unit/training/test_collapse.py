import os
import signal
from dataclasses import replace

import pytest
import torch

from headway.errors import Interrupted
from headway.training import trainer as loop
from headway.training.collapse import RECOVERIES, RISE, WINDOWS, LossHistory

STEPS = 60
VALIDATION = loop.Validation


def history(*means):
    found = LossHistory()
    for mean in means:
        found = found.add(10 * mean, 10).close(1)
    return found


def test_a_loss_that_stays_far_above_its_lowest_is_a_collapse():
    assert not history(6.0, 5.0, 5.0 + RISE / 2, 5.0 + RISE / 2, 5.0 + RISE / 2).collapsed
    assert not history(6.0, 5.0, *[7.0] * (WINDOWS - 1)).collapsed
    assert history(6.0, 5.0, *[7.0] * WINDOWS).collapsed
    assert not history(6.0, 5.0, 7.0, 5.1, *[7.0] * (WINDOWS - 1)).collapsed


def test_a_window_is_a_mean_over_tokens_and_an_empty_one_says_nothing():
    uneven = LossHistory().add(6.0, 1).add(12.0, 5).close(2)
    assert uneven.lowest == uneven.latest == 3.0
    assert uneven.close(0) == uneven


def test_a_window_that_is_too_short_goes_on():
    short = LossHistory().add(5.0, 1)
    assert short.close(2) == short
    assert short.add(7.0, 1).close(2).latest == 6.0


@pytest.fixture
def short_windows(monkeypatch):
    monkeypatch.setattr(loop, "WINDOW", 2)


@pytest.fixture
def by_loss(monkeypatch, short_windows):
    """Outputs are never looked at."""
    monkeypatch.setattr(loop, "Validation", lambda scores, samples, constant: VALIDATION(scores, samples))


def settings(recipe, **training):
    return recipe(**{"steps": STEPS, "validate_every": 4, "warmup": 4, "patience": 100, "log_every": 1, **training})


def ruined_from(first, trainers, screen, until=10**9):
    """Before updates `first` to `until` the model is overwritten; the loss of the next one shows it."""

    def ruin(update):
        if first <= update.step < until:
            with torch.no_grad():
                for weight in trainers[-1].model.parameters():
                    weight.fill_(3.0)

    screen.hook = ruin


def fit(made, screen, first, until=10**9):
    ruined_from(first, [made], screen, until)
    made.fit()
    return [line for line in screen.lines if "collapsed" in line]


def test_training_that_collapses_goes_on_from_its_best_checkpoint_at_half_the_rate(by_loss, recipe, trainer, screen):
    made = trainer(settings(recipe))
    (line,) = fit(made, screen, first=29, until=34)
    assert "going back to the checkpoint of step 28 with half the learning rate" in line
    rates = {update.step: update.learning_rate for update in screen.updates}
    back = made.progress.recovered
    assert 29 < back < 38 and made.progress.collapses == 1
    plain = trainer(settings(recipe))
    assert rates[back] == plain._rate(back)
    assert rates[back + 1] == pytest.approx(plain._rate(back + 1) / 2 / 4)
    assert rates[back + 4] == pytest.approx(plain._rate(back + 4) / 2)
    losses = {update.step: update.loss for update in screen.updates}
    assert losses[back] > losses[28] + RISE
    assert losses[back + 1] < losses[28] + RISE


def test_without_a_checkpoint_it_begins_again_from_the_initial_weights(by_loss, recipe, trainer, screen):
    made = trainer(settings(recipe, validate_every=50))
    (line,) = fit(made, screen, first=29, until=34)
    assert "going back to the initial weights" in line
    losses = {update.step: update.loss for update in screen.updates}
    assert losses[made.progress.recovered + 1] == pytest.approx(losses[1], abs=0.5)


def test_it_gives_up_after_some_recoveries_and_training_ends(by_loss, recipe, trainer, screen):
    made = trainer(settings(recipe, steps=120))
    ruined_from(29, [made], screen)
    assert made.fit().startswith(f"it has collapsed {RECOVERIES + 1} times")
    assert len([line for line in screen.lines if "training collapsed" in line]) == RECOVERIES
    assert made.progress.step == made.progress.validated < 120


def test_validations_without_improvement_are_counted_anew_after_a_collapse(by_loss, recipe, trainer, screen):
    made = trainer(settings(recipe))
    made.progress = replace(made.progress, stale=3)
    made._recover("said")
    assert made.progress.stale == 0


@pytest.mark.parametrize("changed", [{"curriculum": 2}, {"scheduled_sampling": 0.5}])
def test_a_loss_that_may_rise_is_no_collapse(by_loss, recipe, trainer, screen, changed):
    assert fit(trainer(settings(recipe, **changed)), screen, first=29, until=36) == []


@pytest.mark.parametrize("loss", [9.0, 2.0])
def test_outputs_that_have_become_alike_at_a_higher_loss_are_a_collapse(recipe, trainer, screen, loss):
    made = trainer(settings(recipe, steps=12))
    found = iter(
        [VALIDATION({"loss": 8.0}, [], True), VALIDATION({"loss": 3.0}, []), VALIDATION({"loss": loss}, [], True)]
    )
    made.validate = lambda model, check: next(found)
    made.fit()
    said = [line for line in screen.lines if "all outputs have become identical" in line]
    assert len(said) == (loss > 3.0)
    assert made.progress.best[0] == ((3.0, 8) if said else (2.0, 12))
    best = made.checkpoints.path(8) / "model.safetensors"
    last = made.checkpoints.path(12) / "model.safetensors"
    assert (best.read_bytes() == last.read_bytes()) == bool(said)


@pytest.mark.parametrize("stopped", [31, 38])
def test_a_run_that_collapsed_resumes_exactly(
    short_windows, recipe, run, tmp_path, screen, state_of, stopped, monkeypatch
):
    given = settings(recipe)
    trainers = []
    build = loop.Trainer.fit

    def fit_known(made):
        trainers.append(made)
        return build(made)

    monkeypatch.setattr(loop.Trainer, "fit", fit_known)
    ruined_from(29, trainers, screen, 36)
    run(given, tmp_path / "whole")
    ruin = screen.hook

    def ruin_and_stop(update):
        ruin(update)
        if update.step == stopped:
            os.kill(os.getpid(), signal.SIGTERM)

    screen.hook = ruin_and_stop
    with pytest.raises(Interrupted):
        run(given, tmp_path / "broken")
    screen.hook = ruin
    run(given, tmp_path / "broken", resume=True)
    whole, broken = (state_of(tmp_path / name, STEPS) for name in ("whole", "broken"))
    assert whole["progress"]["collapses"] > 0
    assert broken == whole


def test_the_progress_of_a_collapse_survives_json():
    from headway.training.progress import Progress

    progress = replace(Progress(), losses=history(6.0, 5.0, 7.0), collapses=2, recovered=30)
    assert Progress.from_json(progress.to_json()) == progress

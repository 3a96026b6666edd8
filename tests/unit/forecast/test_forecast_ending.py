"""When a run ends."""

import pytest

from headway.forecast.ending import CLOSING, Epochs, ending
from headway.forecast.measurement import Measured
from headway.training.config import TrainingConfig

MEASURED = Measured(update=0.5, updates=10, peak=0, activations=0, loss=2.0, translating=3.0, saving=1.0, checkpoint=0)
EPOCHS = Epochs(updates=200, every=150)


def test_steps_take_updates_validations_and_checkpoints():
    end = ending(TrainingConfig(steps=1000, validate_every=400), EPOCHS, MEASURED)
    assert (end.reason, end.updates, end.epochs, end.validations) == ("steps", 1000, 5.0, 3)
    assert end.seconds == 1000 * 0.5 + 3 * (2 + 3 + 1) + CLOSING * (2 + 3)


def test_epochs_are_counted_in_updates_and_validated_as_often_as_an_open_setting_chooses():
    end = ending(TrainingConfig(epochs=3), EPOCHS, MEASURED)
    assert (end.reason, end.updates, end.every, end.validations) == ("epochs", 600, 150, 4)


def test_what_is_less_of_steps_and_epochs_ends_a_run():
    assert ending(TrainingConfig(epochs=3, steps=500), EPOCHS, MEASURED).reason == "steps"
    assert ending(TrainingConfig(epochs=3, steps=700), EPOCHS, MEASURED).reason == "epochs"


def test_a_time_budget_is_answered_by_how_much_fits():
    short, long = (ending(TrainingConfig(time=time), EPOCHS, MEASURED) for time in ("10m", "1h"))
    assert short.reason == long.reason == "time"
    assert (short.validations, long.validations) == (3, 8)  # at most 3 % of the time
    assert short.seconds == pytest.approx(0.98 * 600, rel=0.03)
    assert ending(TrainingConfig(time="10m", steps=50), EPOCHS, MEASURED).reason == "steps"


def test_a_curriculum_shortens_the_first_epochs():
    whole, short = (
        ending(TrainingConfig(epochs=10), Epochs(updates=200, shortened=share), MEASURED) for share in (0.0, 1.5)
    )
    assert (whole.updates, short.updates) == (2000, 1700)
    assert short.epochs == 10.0


def test_checkpoints_between_validations_take_their_time():
    plain, often = (
        ending(TrainingConfig(steps=1000, validate_every=1000, save_every=every), EPOCHS, MEASURED)
        for every in (None, 10)
    )
    assert often.seconds - plain.seconds == pytest.approx(100 * 1.0)

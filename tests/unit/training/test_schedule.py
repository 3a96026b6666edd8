from itertools import pairwise

import pytest

from headway.config import validated
from headway.errors import ConfigError
from headway.training.config import TrainingConfig, seconds
from headway.training.schedule import learning_rate, shortened_warmup


def rate(step, kind="inverse_sqrt", steps=None):
    return learning_rate(step, peak=0.01, warmup=100, kind=kind, steps=steps)


def test_the_rate_grows_linearly_to_its_peak_at_the_end_of_warm_up():
    assert [rate(step) for step in (1, 50, 100)] == pytest.approx([0.0001, 0.005, 0.01])


def test_inverse_square_root_halves_when_steps_quadruple():
    assert rate(400) == pytest.approx(0.005)
    assert rate(1600) == pytest.approx(0.0025)


def test_the_paper_s_formula_is_reproduced():
    dim, warmup = 512, 4000
    peak = (dim * warmup) ** -0.5
    for step in (1, 100, 4000, 100_000):
        ours = learning_rate(step, peak=peak, warmup=warmup, kind="inverse_sqrt", steps=None)
        assert ours == pytest.approx(dim**-0.5 * min(step**-0.5, step * warmup**-1.5))


def test_linear_falls_from_its_peak_towards_zero_after_the_last_step():
    values = [rate(step, "linear", 200) for step in range(100, 202)]
    assert values[0] == pytest.approx(0.01)
    assert all(left > right for left, right in pairwise(values))
    assert values[-2] == pytest.approx(0.01 / 101)
    assert values[-1] == 0.0


@pytest.mark.parametrize(("text", "value"), [("90s", 90), ("30m", 1800), ("2h", 7200), ("1h30m", 5400), ("0.5m", 30)])
def test_durations_are_read_as_people_write_them(text, value):
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["", "30", "m30", "-5m", "0s", "1 day"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ValueError, match="duration"):
        TrainingConfig(time=text)


def test_cosine_falls_slowly_at_first_and_at_last_from_its_peak_to_zero():
    values = [rate(step, "cosine", 300) for step in range(100, 302)]
    assert values[0] == pytest.approx(0.01)
    assert values[-1] == pytest.approx(0.0, abs=1e-12)
    assert rate(200, "cosine", 299) == pytest.approx(0.005)  # half way down after half of the way
    falls = [left - right for left, right in pairwise(values)]
    assert max(falls) == pytest.approx(falls[100], rel=0.01)
    assert falls[0] < falls[50] < falls[100] > falls[150] > falls[-1]


def test_the_warm_up_of_a_short_run_is_half_then_a_hundred_updates_then_an_eighth():
    assert [shortened_warmup(2000, steps) for steps in (60, 300, 600, 1600, 10**6)] == [30, 100, 100, 200, 2000]


def test_none_to_a_hundred_sample_translations_are_shown():
    assert [validated(TrainingConfig, {"samples": count}, "recipe").samples for count in (0, 100)] == [0, 100]
    with pytest.raises(ConfigError, match="samples: should be less than or equal to 100, not 101"):
        validated(TrainingConfig, {"samples": 101}, "recipe")
    with pytest.raises(ConfigError, match="samples: should be greater than or equal to 0, not -1"):
        validated(TrainingConfig, {"samples": -1}, "recipe")

"""The experiments in very small: they run, and what they report is of what they measured."""

import pytest
import torch

from headway.models.model import Decoded
from headway.reproduce import EXPERIMENTS, extrapolation, heads, ladder
from headway.reproduce.experiment import Scale, each, interval, repeated
from headway.reproduce.rungs import Layer, Rung, RungConfig
from headway.sequences import Sequences

CPU = torch.device("cpu")


@pytest.fixture
def scale(tmp_path):
    return Scale(tmp_path, CPU, (1,), 0.01)


def doubled(number):
    return 2 * number


def test_tasks_are_done_in_order_by_several_processes(scale):
    assert list(each(doubled, range(5), scale)) == [0, 2, 4, 6, 8]


def test_an_interval_is_the_mean_and_deviation_of_the_seeds(scale, tmp_path):
    assert interval([41.0]) == "41.0"
    assert interval([40.0, 42.0]) == "41.0 ± 1.4"
    assert repeated(scale) == "One seed"
    assert repeated(Scale(tmp_path, CPU, (1, 2))) == "Mean and standard deviation over 2 seeds"


def test_effort_multiplies_the_updates(tmp_path):
    assert Scale(tmp_path, CPU, effort=2.0).steps(400) == 800
    assert Scale(tmp_path, CPU, effort=0.001).steps(400) == 10


def test_extrapolation_has_a_row_for_each_kind_and_a_column_for_each_length(scale, monkeypatch):
    monkeypatch.setattr(extrapolation, "get_args", lambda _: ("rotary",))
    monkeypatch.setattr(extrapolation, "EACH", 3)
    told = []
    report = extrapolation.run(scale, told.append)
    assert [row[0] for row in report.tables[0].rows] == ["rotary"]
    assert report.tables[0].columns == ("positions", "5", "10", "12", "15", "20", "30", "40")
    assert len(told) == 1
    assert [x for x, _ in report.plots[0].lines["rotary"]] == list(map(float, extrapolation.TESTED))


def test_models_of_the_extrapolation_know_the_longest_test_with_its_end_symbol(scale):
    settings = extrapolation._settings(scale, "sinusoidal")
    assert settings["model"]["longest"] > extrapolation.TESTED[-1] + 1


def test_the_share_of_symbols_in_place_counts_missing_and_surplus_ones_as_wrong():
    written = ["b c", "b c d e", ""]
    assert extrapolation.in_place([("a b", "b c"), ("a b", "b c"), ("a", "b")], written) == 100 * 4 / 7


@pytest.mark.parametrize("written", [["b c"], ["b c", "b", "b"]], ids=["too few", "too many"])
def test_no_share_is_told_of_outputs_that_are_not_one_for_each_pair(written):
    with pytest.raises(ValueError, match="zip"):
        extrapolation.in_place([("a b", "b c"), ("a", "b")], written)


def test_heads_compares_each_variation_with_the_base(scale, monkeypatch):
    reached = {0: 40.0, 1: 38.0, 2: 41.0}
    monkeypatch.setattr(heads, "ROWS", heads.ROWS[:3])
    monkeypatch.setattr(heads, "TRAINED", 10)
    monkeypatch.setattr(heads, "TESTED", 2)
    monkeypatch.setattr(
        heads, "each", lambda work, tasks, scale: (heads.Reached(reached[place], 2.0, 9) for place, _ in tasks)
    )
    report = heads.run(scale, lambda line: None)
    assert [row[-1] for row in report.tables[0].rows] == [None, "-2.0", "+1.0"]
    assert [row[2] for row in report.tables[0].rows] == ["25.8", "-0.9", "+0.0"]
    assert "Of 2 variations 1 moved it the way" in report.answer


def test_a_variation_is_trained_and_judged(scale, monkeypatch):
    monkeypatch.setattr(heads, "TRAINED", 200)
    monkeypatch.setattr(heads, "TESTED", 5)
    monkeypatch.setattr(heads, "ROWS", (heads.ROWS[0],))
    report = heads.run(scale, lambda line: None)
    (row,) = report.tables[0].rows
    assert row[0] == "base"
    assert row[4] > 100_000


def test_the_ladder_says_what_each_rung_gains(scale, monkeypatch):
    names = [*ladder.CLIMB, *ladder.BESIDE]
    monkeypatch.setattr(
        ladder, "each", lambda work, tasks, scale: ((10.0 * names.index(name), 0.0, 1) for name, _ in tasks)
    )
    report = ladder.run(scale, lambda line: None)
    assert [row[4] for row in report.tables[0].rows] == [None, *["+10.0"] * 6, None]
    assert "From 0.0 BLEU by averaging to 60.0 with everything" in report.answer


def test_a_rung_is_trained_and_judged(scale, monkeypatch):
    monkeypatch.setattr(ladder, "TESTED", 4)
    monkeypatch.setattr(ladder, "TRAINED", 200)
    bleu, exact, parameters = ladder._climbed(scale, ("+ depth", 1))
    assert 0.0 <= bleu <= 100.0
    assert 0.0 <= exact <= 100.0
    assert parameters > 50_000


def test_a_rung_weighs_the_source_or_averages_it_and_its_encoder_does_neither():
    for attention in (True, False):
        config = RungConfig(dim=32, attention=attention, longest=16)
        encoder, decoder = (Layer(config, reads_source=reads) for reads in (False, True))
        assert (encoder.across is None, encoder.averages) == (True, False)
        assert (decoder.across is None, decoder.averages) == (not attention, not attention)


@pytest.mark.parametrize("looks", [True, False])
def test_a_token_of_a_rung_knows_the_others_of_its_sequence_only_by_self_attention(looks):
    torch.manual_seed(1)
    model = Rung(RungConfig(dim=32, attention=False, self_attention=looks, dropout=0.0, longest=16), 12, 12).eval()
    source, target = Sequences.pad([[4, 5], [4, 5]], 0), Sequences.pad([[1, 5, 6], [1, 9, 6]], 0)
    written = model.decode(target, model.encode(source)).states
    read = model.encode(target).states
    for states in (written, read):
        assert torch.allclose(states[0, -1], states[1, -1]) == (not looks)


@pytest.mark.parametrize("ideas", [*ladder.CLIMB.values(), *ladder.BESIDE.values()])
def test_a_rung_decodes_step_by_step_as_in_one_pass_and_sees_no_padding(ideas):
    torch.manual_seed(1)
    model = Rung(RungConfig(dim=32, dropout=0.0, longest=16, **ideas), 12, 12).eval()
    source, target = Sequences.pad([[4, 5, 6], [7]], 0), Sequences.pad([[1, 5, 6], [1, 9, 4]], 0)
    with torch.inference_mode():
        encoded = model.encode(source)
        whole = model.output(model.decode(target, encoded).states).log_softmax(-1)
        state = model.start(encoded)
        for time in range(3):
            got, state = model.step(target.tokens[:, time : time + 1], None, state)
            torch.testing.assert_close(got[:, 0], whole[:, time])
        alone = model.decode(Sequences.pad([[1, 9, 4]], 0), model.encode(Sequences.pad([[7]], 0)))
        torch.testing.assert_close(model.decode(target, encoded).states[1], alone.states[0])
        assert isinstance(alone, Decoded)


def test_every_experiment_that_the_command_offers_is_there():
    from typing import get_args

    from headway.cli.reproduce import Name

    assert set(get_args(Name)) == set(EXPERIMENTS)

import tomllib
from dataclasses import replace

import pytest
import torch

import headway.choices
from headway.choices import TIMED_EPOCHS, CorpusSize, Machine, choose
from headway.config import validated, write_toml
from headway.data.preparation import Split
from headway.errors import ConfigError
from headway.recipe import Recipe, differences
from headway.runtime.cores import Cores

DATA = {"data": {"source": "a", "target": "b"}}
TWO_CORES, GPU_SPEED = 2e11, 7e14


def machine(kind="cpu", speed=TWO_CORES):
    made = Machine(torch.device(kind))
    vars(made).update(speed=speed, half=kind == "cuda")
    return made


H200 = machine("cuda", GPU_SPEED)


def choices(pairs=29_000, on=None, tokens=None, **groups):
    recipe = validated(Recipe, DATA | groups, "test")
    return choose(recipe, CorpusSize(pairs, tokens or 15.0 * pairs), on or machine())


def chosen(pairs=29_000, on=None, **groups):
    return choices(pairs, on, **groups).recipe


def preset(pairs, on, time):
    return chosen(pairs, on, training={"time": time} if time else {}).model.preset


def test_the_size_grows_with_the_data_the_machine_and_the_time():
    assert [preset(29_000, machine(), time) for time in ("6m", "30m", "12h")] == ["mini", "tiny", "small"]
    assert preset(29_000, H200, "2m") == "small"
    assert [preset(pairs, H200, "12h") for pairs in (1_000, 300_000, 3_000_000, 50_000_000)] == [
        "tiny", "small", "base", "big",
    ]  # fmt: skip
    assert preset(3_000_000, H200, "1m") == "small"
    assert [preset(pairs, H200, "12h") for pairs in (499_999, 500_000)] == ["small", "base"]
    for speed, expected in ((9_999.9, "tiny"), (10_000.0, "small")):  # ten million tokens in a thousand seconds
        just = machine()
        vars(just).update(tokens_per_second=lambda *_, speed=speed: speed)
        assert preset(5_000, just, "1000s") == expected
    assert preset(3_000_000, machine(), None) == "tiny"


def test_a_setting_that_is_no_size_leaves_the_choice_of_the_preset():
    plain, learned = chosen(), chosen(model={"positions": "learned"})
    assert plain.model.preset == learned.model.preset == "tiny"
    assert differences(plain, learned) == ["model.positions"]


def test_a_given_size_or_preset_is_kept():
    assert chosen(model={"preset": "base"}).model.dim == 512
    assert chosen(model={"dim": 64, "heads": 2}).model.dim == 64
    assert chosen(model={"dim": 64, "heads": 2}).model.preset is None


def test_dropout_grows_with_the_passes_over_the_data_unless_it_is_set():
    dropout = [chosen(training={"epochs": epochs}).model.dropout for epochs in (3, 8, 16, 300)]
    assert dropout == [0.0, 0.07, 0.15, 0.2]
    assert chosen(training={"epochs": 60}, model={"dropout": 0.15}).model.dropout == 0.15


def test_the_norm_stands_after_few_layers_and_before_many_or_in_short_runs():
    assert chosen(training={"time": "6m"}).model.norm == "post"
    assert chosen(training={"steps": 900}).model.norm == "pre"
    assert chosen(training={"steps": 1000}).model.norm == "post"
    assert chosen(training={"time": "6m"}, model={"encoder_layers": 6}).model.norm == "pre"
    assert chosen(training={"steps": 9}, model={"norm": "post"}).model.norm == "post"
    assert chosen(training={"time": "2m"}, model={"preset": "base"}, on=H200).model.norm == "pre"


def test_positions_are_rotary_on_a_cpu_where_the_size_is_chosen_and_features_come_in_pairs():
    assert chosen().model.positions == "rotary"
    assert chosen(model={"preset": "tiny"}).model.positions == "sinusoidal"
    assert chosen(model={"dim": 128, "heads": 4}).model.positions == "sinusoidal"
    assert chosen(model={"head_dim": 3}).model.positions == "sinusoidal"
    assert chosen(on=H200).model.positions == "sinusoidal"
    assert chosen(model={"positions": "learned"}).model.positions == "learned"


def test_words_are_spelled_by_few_subwords_and_sentences_by_many():
    def vocabulary(alphabet):
        return choose(validated(Recipe, DATA, "test"), CorpusSize(50_000, 5e5, alphabet=alphabet), machine()).recipe

    assert [vocabulary(size).tokenizer.vocabulary for size in (None, 26, 70)] == [4000, 352, 440]
    few = CorpusSize(50_000, 5e5, word_bytes=110)  # such as phonemes with spaces between
    assert choose(validated(Recipe, DATA, "test"), few, machine()).recipe.tokenizer.vocabulary == 520
    many = CorpusSize(50_000, 5e5, word_bytes=10_000)
    assert choose(validated(Recipe, DATA, "test"), many, machine()).recipe.tokenizer.vocabulary == 4000
    split = Split(10, [], 0, {}, {}, words=10, bytes=60)
    assert CorpusSize.of(replace(split, alphabet=26)).tokens > CorpusSize.of(split).tokens


def test_batches_on_a_cpu_leave_enough_updates():
    for time in ("6m", "20m", "2h"):
        found = choices(training={"time": time})
        updates = int(found.summary.split(" updates")[0].split()[-1].replace(",", ""))
        assert 4000 <= updates <= 9000, found.summary
    short, long = chosen(training={"time": "2m"}).training, chosen(training={"time": "5h"}).training
    assert short.batch_tokens < long.batch_tokens
    assert chosen(training={"time": "2m", "batch_tokens": 3000}).training.batch_tokens == 3000


def test_the_learning_rate_falls_with_width_and_depth_and_for_small_batches():
    def rate(dim=128, batch=2048, layers=3, **training):
        model = {"dim": dim, "heads": 4, "encoder_layers": layers, "decoder_layers": layers}
        return chosen(model=model, training={"batch_tokens": batch, "steps": 9, **training}).training.learning_rate

    assert rate(128) == pytest.approx(2 * rate(256), rel=0.05)
    assert rate(layers=2) == rate() == pytest.approx(2 * rate(layers=12), rel=0.05)
    assert rate(batch=512) == pytest.approx(2 * rate(batch=128), rel=0.05)
    assert rate(batch=4096) == rate(batch=25_000) == pytest.approx(8**0.07 * rate(batch=512), rel=0.05)
    assert rate(batch=512, accumulate=4) == rate()
    assert rate(learning_rate=0.5) == 0.5


def test_every_run_has_an_end_and_a_small_corpus_is_not_repeated_for_ever():
    assert chosen(pairs=3_000_000).training.epochs == 10
    assert chosen(pairs=1_000).training.epochs == 300
    assert chosen(pairs=100_000).training.epochs == 27
    assert chosen(training={"time": "30m"}).training.epochs == TIMED_EPOCHS
    assert chosen(training={"steps": 10}).training.epochs is None
    assert chosen(training={"steps": 10, "epochs": 3}).training.epochs == 3


def test_time_that_is_too_short_or_more_than_needed_is_said_before_training():
    (short,) = choices(training={"time": "20s"}).warnings
    assert "20s is too short for a useful model" in short and "would be enough" in short
    enough = short.split("; ")[1].split()[0]
    assert choices(training={"time": enough}).warnings == []
    assert "0.1 epochs" in choices(pairs=3_000_000, training={"time": "10m"}).warnings[0]
    (long,) = choices(pairs=2_000, training={"time": "10h"}).warnings
    assert "training ends after 300 epochs" in long


@pytest.mark.parametrize("speed", [TWO_CORES / 10, TWO_CORES, 5 * TWO_CORES])
@pytest.mark.parametrize("pairs", [5_000, 50_000, 400_000])
def test_the_time_that_is_called_enough_is_enough_though_a_larger_model_may_be_chosen(pairs, speed):
    (short,) = choices(pairs, on=machine(speed=speed), training={"time": "5s"}).warnings
    enough = short.split("; ")[1].split()[0]
    assert choices(pairs, on=machine(speed=speed), training={"time": enough}).warnings == []


@pytest.mark.parametrize("training", [{"time": "2h", "steps": 300}, {"time": "1h", "epochs": 2}])
def test_nothing_is_said_of_the_time_where_a_setting_ends_the_run_sooner(training):
    assert choices(pairs=50, training=training).warnings == []


def test_a_batch_holds_the_longest_sentence():
    for on in (machine(), H200):
        for training in ({"time": "1m"}, {"steps": 100}):
            assert chosen(on=on, training=training, model={"longest": 8192}).training.batch_tokens == 8192


def test_a_slower_machine_needs_more_time():
    assert choices(training={"time": "5m"}).warnings == []
    assert choices(on=machine(speed=TWO_CORES / 20), training={"time": "5m"}).warnings != []


def test_one_line_says_what_was_chosen_and_why():
    line = choices(training={"time": "6m"}).summary
    assert line.startswith("chosen for 29,000 pairs and 6m at about ")
    for part in (
        "2+2 layers of 128",
        "post-norm",
        "rotary positions",
        "dropout 0.08",
        "vocabulary up to 4,000",
        "learning rate",
        "updates",
        "epochs",
    ):
        assert part in line


def test_a_corpus_is_measured_in_words_or_in_bytes_whichever_is_more():
    split = Split(10, [], 0, {}, {}, words=80, bytes=700)
    assert CorpusSize.of(split).tokens == 10 + 200.0
    assert CorpusSize.of(replace(split, bytes=70)).tokens == 10 + 80
    assert CorpusSize.of(split, "words").tokens == 10 + 80
    assert CorpusSize.of(split, "characters").tokens == 10 + 700
    assert CorpusSize.of(split).scaled(100) == CorpusSize(100, 2100.0, held_out=0)


def test_checkpoints_are_ranked_by_chrf_where_enough_sentences_are_translated():
    assert chosen().training.metric == chosen(training={"time": "6m"}).training.metric == "chrf"
    assert chosen(training={"validation_sentences": 49}).training.metric == "loss"
    assert choose(validated(Recipe, DATA, "test"), CorpusSize(900, 9e3, 45), machine()).recipe.training.metric == "loss"
    assert chosen(training={"metric": "loss"}).training.metric == "loss"


def test_decoding_that_the_model_cannot_do_is_told_before_it_is_trained():
    with pytest.raises(ConfigError, match=r"decoding\.no_repeat: a fertility model writes all tokens at once"):
        chosen(model={"architecture": "fertility"}, decoding={"no_repeat": 3})
    assert chosen(model={"architecture": "mask-predict"}, decoding={"shortest_extra": 3}).decoding.shortest_extra == 3
    assert chosen(decoding={"no_repeat": 3}).decoding.no_repeat == 3


def test_separate_vocabularies_are_not_tied_three_ways():
    assert chosen(tokenizer={"joint": False}).model.tie == "two-way"


def test_a_chosen_recipe_survives_toml_and_needs_no_further_choice():
    recipe = chosen(training={"steps": 100})
    again = validated(Recipe, tomllib.loads(write_toml(recipe)), "test")
    assert differences(recipe, again) == []
    assert choose(again, CorpusSize(1, 1.0), machine()).recipe == again


def test_a_machine_is_measured_once(monkeypatch):
    measured = Machine(torch.device("cpu"))
    assert 1e7 < measured.speed < 1e15
    monkeypatch.setattr(headway.choices, "matrix_speed", None)
    assert measured.speed > 1e7


def test_a_corpus_smaller_than_a_batch_has_an_update_an_epoch():
    line = choices(pairs=10, tokens=50.0).summary
    assert "about 300 updates, 300.0 epochs" in line
    line = choices(pairs=10, tokens=50.0, training={"steps": 30}).summary
    assert "about 30 updates, 30.0 epochs" in line


def test_without_a_time_it_is_said_how_long_training_may_take():
    assert "at most about " in choices().summary
    assert "at most" not in choices(training={"time": "6m"}).summary


def test_r_drop_takes_twice_the_time():
    once, twice = (choices(training={"time": "6m", "r_drop": weight}).summary for weight in (0.0, 1.0))
    speed = [int(line.split(" tokens/s")[0].split()[-1].replace(",", "")) for line in (once, twice)]
    assert speed[0] == pytest.approx(2 * speed[1], abs=1)


def test_a_gpu_is_as_fast_as_the_precision_that_is_asked_for(monkeypatch):
    monkeypatch.setattr("headway.choices.matrix_speed", lambda device, half: 8.0 if half else 1.0)

    def speed(precision):
        made = Machine(torch.device("cuda"), precision=precision)
        vars(made).update(half=True)
        return made.speed

    assert [speed(precision) for precision in (None, "bf16", "fp32")] == [8.0, 8.0, 1.0]


def test_processes_that_share_the_threads_of_a_cpu_are_as_fast_as_one(monkeypatch):
    monkeypatch.setattr("headway.choices.read_cores", lambda: Cores(8, 8, 8))

    def side_by_side(threads, processes, kind="cpu"):
        monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
        return Machine(torch.device(kind), processes).side_by_side

    assert [side_by_side(8, 4), side_by_side(2, 4), side_by_side(1, 16), side_by_side(16, 2)] == [1, 4, 8, 1]
    assert side_by_side(8, 4, "cuda") == 4


def test_a_model_that_was_trained_before_learns_at_a_quarter_of_the_rate():
    new, again = chosen(), chosen(start={"model": "runs/first"})
    assert again.training.learning_rate == pytest.approx(new.training.learning_rate / 4, rel=0.02)

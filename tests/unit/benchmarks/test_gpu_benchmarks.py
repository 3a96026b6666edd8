"""The benchmarks of training on a GPU, as far as a CPU can tell."""

import json
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import quality_gpu
import train_gpu
import train_growth
import train_kernels
from peers import quality
from peers.gpu_work import END, PADDING, SIZES, START, Size, Work, cut, drawn, largest, sorted_work
from peers.training_gpu import System, headway, headway_trainer, headway_work, loop, packed_batch

CPU = torch.device("cpu")


def test_batches_hold_every_pair_once_and_keep_to_their_tokens_on_both_sides():
    sizes = np.random.default_rng(0).integers(1, 40, (2, 500))
    parts = cut(sizes, 100)
    assert [place for part in parts for place in range(part.start, part.stop)] == list(range(500))
    assert all(sizes[:, part].sum(axis=1).max() <= 100 for part in parts)
    fuller = [(sizes[:, part.start : part.stop + 1].sum(axis=1).max()) for part in parts[:-1]]
    assert min(fuller) > 100  # not one of them had room for one pair more


def test_a_pair_that_fits_no_batch_has_one_of_its_own():
    assert cut(np.array([[5, 500, 5], [5, 5, 5]]), 100) == [slice(0, 1), slice(1, 2), slice(2, 3)]


@pytest.mark.parametrize("limit", [100, 101, 799, 12_345])
def test_the_largest_batch_is_found_to_a_twentieth(limit):
    tried = []
    found = largest(lambda tokens: tried.append(tokens) or tokens <= limit, start=100, most=1 << 20)
    assert limit / 1.06 <= found <= limit
    assert len(tried) < 16


def test_nothing_is_the_largest_where_the_first_does_not_fit_and_no_more_than_asked_for_is_tried():
    assert largest(lambda tokens: False, start=100, most=1000) == 0
    assert largest(lambda tokens: tokens <= 1000, start=300, most=1000) == 1000


def test_the_arithmetic_of_the_base_model_is_that_of_the_paper():
    expected = 6 * (18.9e6 * 20_000 + (25.2e6 + 37_000 * 512) * 25_000)
    assert SIZES["base"].flops(20_000, 25_000) == pytest.approx(expected, rel=0.01)


def test_sorted_batches_count_real_tokens_alone_and_hold_little_padding():
    work = sorted_work(SIZES["tiny"], 8, CPU)
    for (source, target), read, written in zip(work.batches, work.source, work.target, strict=True):
        assert int((source != PADDING).sum()) == read
        assert int((target[:, 1:] != PADDING).sum()) == written <= SIZES["tiny"].tokens
        assert source.shape[1] % 8 == 0 and (target.shape[1] - 1) % 8 == 0
        filled = (source != PADDING).long()
        assert (filled.diff(dim=1) <= 0).all()  # padding stands last
    cells = sum(target[:, 1:].numel() for _, target in work.batches)
    assert sum(work.target) > 0.8 * cells


def test_packed_batches_are_nearly_full_and_predict_the_next_token():
    batches = headway_work(SIZES["tiny"], 3, CPU, "packed")
    assert min(batches.target) > 0.97 * SIZES["tiny"].tokens or min(batches.source) > 0.97 * SIZES["tiny"].tokens
    batch = packed_batch(np.array([[3, 2], [4, 2]]), vocabulary=50)
    assert batch.target.tokens[[0, 4]].tolist() == [START, START]
    assert batch.labels[[3, 5]].tolist() == [END, END] and batch.source.tokens[[2, 4]].tolist() == [END, END]
    assert torch.equal(batch.labels[:3], batch.target.tokens[1:4])
    assert batch.units == 6


def test_padded_batches_of_headway_hold_the_same_tokens_as_those_of_the_peers():
    theirs, ours = (sorted_work(SIZES["mini"], 2, CPU), headway_work(SIZES["mini"], 2, CPU, "padded"))
    assert ours.target == theirs.target
    for batch, (source, target) in zip(ours.batches, theirs.batches, strict=True):
        assert batch.units == int((target[:, 1:] != PADDING).sum()) == int((batch.labels != PADDING).sum())
        assert torch.equal(batch.source.tokens, source[:, : batch.source.longest])
        assert torch.equal(batch.target.tokens != PADDING, batch.labels != PADDING)


@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_headways_own_loop_goes_on_where_the_last_slice_ended(layout):
    size = Size("small", 16, 2, 16, 1, vocabulary=20, tokens=130)  # Triton's interpreter is slow
    trainer = headway_trainer(size.model(), size.vocabulary, size.tokens, CPU, layout=layout)
    trainer.feed = train_gpu.Memory(headway_work(size, 3, CPU, layout).batches)
    before = trainer.model.output.weight.detach().clone()
    loop(trainer, 0, 4)
    middle = trainer.model.output.weight.detach().clone()
    loop(trainer, 4, 1)
    after = trainer.model.output.weight
    assert not torch.equal(before, middle) and not torch.equal(middle, after)
    assert (trainer.progress.step, trainer.progress.epoch, trainer.progress.position) == (5, 1, 2)


def test_attention_dropout_reaches_the_model_of_that_system_alone():
    plain, dropped = (
        headway(name, SIZES["mini"], 2, CPU).run.args[0].model.config.attention_dropout
        for name in ("headway", "headway-attention-dropout")
    )
    assert (plain, dropped) == (0.0, 0.1)


def test_the_table_compares_medians_with_the_best_peer(capsys):
    system = System(lambda first, count: None, Work([0], [100], [100]), {"note": "x"})
    speeds = {"marian": [10.0, 30.0, 20.0], "marian-compiled": [25.0] * 3, "headway": [100.0, 40.0, 60.0]}
    entries = [train_gpu.Entry(name, system, 1.0, 0.1, 0, speeds=each) for name, each in speeds.items()]
    train_gpu.report(SIZES["mini"], entries, 1e9, CPU)
    *lines, summary = map(json.loads, capsys.readouterr().out.splitlines())
    assert [line["tokens_per_second"] for line in lines] == [20, 25, 60]
    assert lines[2]["spread"] == [40, 100] and lines[2]["ratio_to_best_peer"] == 2.4
    assert (summary["best_peer"], summary["ratios"]) == ("marian-compiled", {"marian": 3.0, "marian-compiled": 2.4})


def test_a_round_counts_the_tokens_of_the_batches_it_took(monkeypatch):
    taken = []
    system = System(lambda first, count: taken.append((first, count)), Work([0, 0], [1, 1], [10, 30]), {})
    entry = train_gpu.Entry("headway", system, 0.0, each=0.5, memory=0, place=2)
    monkeypatch.setattr(train_gpu.Clock, "__call__", lambda self: 2.0)
    entry.measure(1.5, CPU)
    entry.measure(1.5, CPU)
    assert taken == [(2, 3), (5, 3)]
    assert entry.speeds == [(10 + 30 + 10) / 2, (30 + 10 + 30) / 2]


def test_copying_weights_costs_no_time_of_a_budget(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(quality.time, "perf_counter", lambda: now[0])
    model = torch.nn.Linear(1, 1)
    state = model.state_dict

    def slow():
        now[0] += 100.0
        return state()

    monkeypatch.setattr(model, "state_dict", slow)
    budget = quality.Budget(10.0, [0.5, 1.0], CPU)
    with pytest.raises(quality._OverError):
        for step in range(1, 1000):
            now[0] += 1.0
            budget.tick(step, model)
    assert [(line["seconds"], line["steps"]) for line in budget.found] == [(5.0, 5), (10.0, 10)]
    assert len(budget.weights) == 2


def test_rows_for_marian_begin_and_end_as_they_should():
    store = Namespace(gather=lambda side, pairs: (np.array([7, 8, 9]), np.array([1, 2])))
    marian = object.__new__(quality.Marian)
    marian.task = Namespace(prepared=Namespace(store=store, target=Namespace(padding=0)), device=CPU)
    rows = marian._rows("target", np.array([0, 1]), [1], [2])
    assert rows.tolist() == [[1, 7, 2, *[0] * 6], [1, 8, 9, 2, *[0] * 5]]
    assert marian._rows("source", np.array([0, 1]), [], [2])[:, :3].tolist() == [[7, 2, 0], [8, 9, 2]]


def test_what_is_no_lack_of_memory_is_told_of_and_ends_the_search():
    def fits(tokens):
        if tokens > 500:
            raise RuntimeError("CUDA out of memory" if tokens > 900 else "invalid configuration")
        return True

    probe = train_gpu.Probe(fits, CPU)
    assert 470 <= largest(probe, start=100, most=10_000) <= 500
    assert "invalid configuration" in probe.other


def test_the_summary_says_how_soon_the_peers_last_score_is_reached():
    scores = {"headway": {0.25: (20.0, 10.0), 0.5: (31.0, 30.0), 1.0: (40.0, 40.0)}, "marian": {1.0: (30.0, 30.5)}}
    lines = [
        {"system": system, "fraction": moment, "bleu": bleu, "chrf": bleu + 1}
        for system, moments in scores.items()
        for moment, seeds in moments.items()
        for bleu in seeds
    ]
    task = Namespace(name="corpus", options=Namespace(preset="small", seeds=[1, 2], seconds=60.0))
    found = quality_gpu.summary(lines, task)
    assert found["share_of_time_to_equal"] == 0.5
    assert found["headway_bleu"] == {"0.25": 15.0, "0.5": 30.5, "1.0": 40.0}
    assert found["marian_chrf"] == {"1.0": 31.25}


def test_theory_counts_the_parameters_of_the_model_and_grows_with_the_square_of_long_sentences():
    point = train_growth.Point("parameters", 0, train_growth.MODELS[0], 32)
    trainer = headway_trainer(point.size.model(), point.size.vocabulary, 1024, CPU)
    real = sum(weight.numel() for weight in trainer.model.parameters())
    assert point.parameters == pytest.approx(real, rel=0.03)
    short, long, longer = (
        train_growth.Point("length", length, Size("", 64, 1, 64, 1, 10, 8192), length).flops()
        for length in (64, 4096, 8192)
    )
    assert long > 10 * short
    assert 1.9 < longer / long < 2.0  # as many tokens, each of which sees twice as many


def test_growth_leaves_out_what_is_larger_than_asked_for():
    found = list(train_growth.points(["length", "parameters"], tokens=512, most=3_000_000))
    assert {point.axis for point in found} == {"length", "parameters"}
    assert max(point.value for point in found) <= 3_000_000
    assert all(point.size.tokens == 512 for point in found)
    assert max(point.parameters for point in train_growth.points(["parameters"], None, None)) > 1e9


def test_growth_tells_which_kernel_served_and_puts_it_back():
    attend = sys.modules["headway.nn.attention.attend"]
    before = attend._fused
    size = Size("small", 16, 2, 16, 1, vocabulary=20, tokens=32)
    line = train_growth.measured(train_growth.Point("length", 8, size, 8), 0.01, CPU)
    assert line["attention"] and set(line["attention"]) <= {"torch", "cpu", "explicit", "short", "flash"}
    assert line["ms_per_step"] > 0 and attend._fused is before


@pytest.mark.parametrize("fault", ["split", "failed"])
def test_a_batch_that_does_not_fit_is_measured_again_with_layers_run_twice(monkeypatch, fault):
    def measured(point, seconds, device):
        if not point.recompute and fault == "failed":
            raise torch.OutOfMemoryError("CUDA out of memory")
        return {"split": not point.recompute, "recompute": point.recompute}

    monkeypatch.setattr(train_growth, "measured", measured)
    point = train_growth.Point("length", 64, train_growth.USUAL, 64)
    twice = train_growth.replace(point, recompute=True)
    line = train_growth.tried(point, 0.1, CPU)
    assert line["recompute"] and line["without"].startswith({"split": "split", "failed": "OutOfMemoryError"}[fault])
    assert line["theory_flops"] == twice.flops() and 1.2 < twice.flops() / point.flops() < 4 / 3
    assert 18 * point.parameters < line["theory_bytes"] == twice.bytes() < point.bytes()
    assert "without" not in train_growth.tried(twice, 0.1, CPU)


def test_the_whole_table_runs_on_a_cpu(capsys, monkeypatch):
    words = "--device cpu --sizes mini --systems headway --rounds 2 --slice 0.01 --batches 2"
    monkeypatch.setattr(sys, "argv", ["train_gpu.py", *words.split()])
    train_gpu.main()
    (line,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert line["system"] == "headway" and line["tokens_per_second"] > 0 and line["rounds"] == 2


def test_gradients_are_compared_by_two_ways_of_computing_them(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train_kernels.py", "--device", "cpu", "--sizes", "mini", "--parts", "gradients"])
    train_kernels.main()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["kernels"] for line in lines] == ["torch", "headway"]
    assert all(line["relative_error"] < 1e-5 and line["loss"] == line["loss_in_single"] for line in lines)


def test_random_batches_follow_the_asked_number_and_lengths():
    sizes = drawn(SIZES["base"], 4)
    lengths = np.concatenate(sizes, axis=1)
    assert len(sizes) == 4 and 20 < lengths.mean() < 30
    assert lengths.min() >= 3 and lengths.max() <= 120

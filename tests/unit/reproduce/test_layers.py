"""The experiment on table 1, made tiny, and what it measures with."""

import math

import pytest
import torch
from torch import nn

from headway.nn.attention import Visible
from headway.nn.attention.restricted import attend_restricted
from headway.reproduce import layers
from headway.reproduce.allocated import most_bytes
from headway.reproduce.chains import longest_chain
from headway.reproduce.experiment import Scale
from headway.reproduce.kinds import CLAIMS, KERNEL, Attention, Convolution, layers_between, steps_between

CPU, MEGA = torch.device("cpu"), 1 << 20


def test_memory_is_what_is_alive_at_once_and_not_what_was_given():
    x = torch.ones(MEGA)

    def work():
        y = x + 1  # 4 MiB
        z = y.view(1024, -1) * 2  # 8 MiB
        del y
        return (z + 1).sum()  # 8 MiB again

    assert most_bytes(work, CPU) == pytest.approx(8 * MEGA, abs=64)
    assert most_bytes(lambda: x.view(1024, -1)[3:], CPU) == 0


def test_memory_of_a_gradient_counts_what_was_kept_for_it():
    x = torch.ones(MEGA, requires_grad=True)
    plain = most_bytes(lambda: torch.autograd.grad((x + 1).sum(), x), CPU)
    kept = most_bytes(lambda: torch.autograd.grad(x.exp().exp().exp().sum(), x), CPU)
    assert kept >= plain + 8 * MEGA


def test_a_chain_is_as_long_as_what_must_wait():
    def in_a_row(times):
        x = torch.ones(3)
        for _ in range(times):
            x = x.sin().view(3)
        return x

    assert longest_chain(lambda: in_a_row(7)) == 8  # and the ones
    assert longest_chain(lambda: sum(torch.ones(3).sin() for _ in range(7))) == 2 + 7
    assert longest_chain(lambda: torch.stack([torch.ones(3).sin() for _ in range(7)])) == 3


def test_a_chain_follows_what_is_written_in_place_but_not_where_results_go():
    place = torch.empty(4, 3)

    def side_by_side():
        for row in place:
            torch.sin(torch.ones(3), out=row)

    def one_upon_the_other():
        x = torch.ones(3)
        for _ in range(4):
            x.sin_()

    assert longest_chain(side_by_side) == 2
    assert longest_chain(one_upon_the_other) == 5


def test_the_chain_of_restricted_attention_is_the_same_at_every_length():
    def work(length):
        x = torch.randn(1, length, 2, 4)
        return lambda: attend_restricted(x, x, x, Visible(window=4))

    assert longest_chain(work(40)) == longest_chain(work(20_000))


@pytest.mark.parametrize("length", [2, 9, 28])
def test_paths_are_those_of_the_paper_counted_out(length):
    assert layers_between(lambda _: Attention("self-attention"), length) == 1
    assert steps_between(length) == length
    assert layers_between(lambda _: Convolution(8), length) == length - 1
    assert layers_between(lambda number: Convolution(8, KERNEL**number), length) == math.ceil(math.log(length, KERNEL))
    assert layers_between(lambda _: Attention("restricted", 4), length) == math.ceil((length - 1) / 2)


def test_layers_that_never_meet_are_told():
    with pytest.raises(RuntimeError, match="does not connect"):
        layers_between(lambda _: nn.Identity(), 4)


@pytest.mark.parametrize(("effort", "lengths"), [(1.0, [4, 8]), (3.9, [4, 8, 16]), (4.0, [4, 8, 16, 32])])
def test_more_effort_measures_sequences_up_to_so_many_times_as_long(effort, lengths, tmp_path, monkeypatch):
    for name, value in {"LENGTHS": (4, 8), "WIDTHS": (4, 8), "CHAINS": (4, 8), "PATHS": (8, 16)}.items():
        monkeypatch.setattr(layers, name, value)
    measured = []

    def costs(length, width, device):
        measured.append(length)
        return dict.fromkeys((*CLAIMS, layers.KEPT), layers.Cost(1.0, 8 * length, 8 * length))

    monkeypatch.setattr(layers, "costs", costs)
    layers.run(Scale(tmp_path, CPU, effort=effort), lambda line: None)
    assert measured == [*lengths, layers.LENGTH, layers.LENGTH]


def test_the_experiment_counts_what_the_table_claims(tmp_path, monkeypatch):
    small = {"LENGTHS": (96, 192, 384), "WIDTHS": (64, 128, 256), "LENGTH": 96, "ROUNDS": 1, "CHAINS": (8, 16)}
    for name, value in {**small, "PATHS": (8, 16)}.items():
        monkeypatch.setattr(layers, name, value)
    said = []
    report = layers.run(Scale(tmp_path, CPU), said.append)
    growth, order, seconds, taken = report.tables
    for row in growth.rows:
        claim = CLAIMS[row[0]]
        assert row[1:3] == (claim.operations, claim.by_length)
        assert float(row[3]) == pytest.approx(claim.by_length, abs=0.02)
        assert row[6] == claim.by_width
        assert float(row[7]) == pytest.approx(claim.by_width, abs=0.02)
    kinds = [row[0] for row in order.rows]
    assert kinds == ["self-attention", "recurrent", "convolutional", "convolutional, dilated", "restricted"]
    assert [row[5:] for row in order.rows] == [(1, 1), (8, 16), (7, 15), (2, 3), (2, 4)]
    for kind, _, first, last, *_ in order.rows:
        assert (last > 1.8 * first) == (kind == "recurrent")
    assert all(value > 0 for row in (*seconds.rows, *taken.rows) for value in row[1:])
    assert "5 of 5 layers" in report.answer
    assert len(said) == 7
    assert report.save(tmp_path).read_text("utf-8").count("<svg") == len(report.plots) == 5


@pytest.mark.parametrize("dilation", [None, 1, 9])
def test_a_convolution_sees_its_neighbours_or_with_a_dilation_what_came_before(dilation):
    layer, x = Convolution(4, dilation), torch.zeros(1, 40, 4, requires_grad=True)
    layer(x)[0, 20].sum().backward()
    seen = x.grad[0].abs().sum(-1).nonzero().flatten().tolist()
    assert layer(x).shape == x.shape
    assert seen == ([19, 20, 21] if dilation is None else [20 - 2 * dilation, 20 - dilation, 20])

"""Recurrent layers against their equations, single steps, and torch's own layers over packed sequences."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from headway.nn.recomputing import recomputing
from headway.nn.recurrent import GATES, RecurrentEncoder, RecurrentLayer
from headway.sequences import Sequences

CELLS = ["rnn", "gru", "lstm"]
SOURCE = Sequences.pad([[5] * length for length in (4, 6, 1)], 0)


def lively(layer):
    for weight in layer.parameters():
        nn.init.normal_(weight, std=0.5)  # biases too: zeros would hide their places
    return layer


def naive(cell, layer, x, state):
    """One position of one sentence by the equations (Cho et al. 2014; Hochreiter and Schmidhuber 1997)."""
    read, kept, read_bias, kept_bias = layer._weights()
    parts = (read @ x + read_bias).chunk(GATES[cell]), (kept @ state[0] + kept_bias).chunk(GATES[cell])
    both = [left + right for left, right in zip(*parts, strict=True)]
    if cell == "rnn":
        return (both[0].tanh(),)
    if cell == "gru":
        reset, update = both[0].sigmoid(), both[1].sigmoid()
        new = (parts[0][2] + reset * parts[1][2]).tanh()
        return ((1 - update) * new + update * state[0],)
    memory = both[1].sigmoid() * state[1] + both[0].sigmoid() * both[2].tanh()
    return both[3].sigmoid() * memory.tanh(), memory


def begun(cell, rows=1):
    return tuple(torch.randn(3, rows, 4) for _ in range(2 if cell == "lstm" else 1))


@pytest.mark.parametrize("cell", CELLS)
def test_a_step_is_the_equations_of_its_cell(cell):
    torch.manual_seed(1)
    layer, x, state = lively(RecurrentLayer(cell, 5, 4)), torch.randn(3, 2, 5), begun(cell, rows=2)
    after = layer.step(x, state)
    for sentence in range(3):
        for row in range(2):
            wanted = naive(cell, layer, x[sentence, row], [each[sentence, row] for each in state])
            for got, own in zip(after, wanted, strict=True):
                torch.testing.assert_close(got[sentence, row], own)


@pytest.mark.parametrize("cell", CELLS)
def test_a_whole_sequence_is_its_steps(cell):
    torch.manual_seed(1)
    layer, x, state = lively(RecurrentLayer(cell, 5, 4)), torch.randn(3, 7, 5), begun(cell)
    whole = layer(x, state)
    for time in range(7):
        state = layer.step(x[:, time : time + 1], state)
        torch.testing.assert_close(state[0], whole[:, time : time + 1])


@pytest.mark.parametrize("cell", CELLS)
def test_recurrent_matrices_begin_orthogonal_and_forget_gates_open(cell):
    layer = RecurrentLayer(cell, 5, 4)
    for gate in layer.weights.weight_hh_l0.chunk(GATES[cell]):
        torch.testing.assert_close(gate @ gate.t(), torch.eye(4))
    wanted = torch.zeros(GATES[cell] * 4)
    if cell == "lstm":
        wanted[4:8] = 1.0
    assert torch.equal(layer.weights.bias_ih_l0 + layer.weights.bias_hh_l0, wanted)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("cell", CELLS)
def test_the_encoder_reads_what_torch_reads_of_packed_sequences(cell, bidirectional):
    torch.manual_seed(1)
    encoder = lively(RecurrentEncoder(cell, 2, 6, bidirectional=bidirectional, dropout=0.0))
    kind = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}[cell]
    twin = kind(6, 3 if bidirectional else 6, 2, batch_first=True, bidirectional=bidirectional)
    for place in range(2):
        for layers, suffix in ((encoder.forwards, ""), (encoder.backwards, "_reverse")):
            if layers:
                for name, weight in layers[place].weights.named_parameters():
                    getattr(twin, name.replace("l0", f"l{place}{suffix}")).data = weight.data.clone()
    x = torch.randn(3, 6, 6)
    states, summary = encoder(x, SOURCE)
    packed = pack_padded_sequence(x, SOURCE.lengths, batch_first=True, enforce_sorted=False)
    wanted, last = twin(packed)
    wanted, _ = pad_packed_sequence(wanted, batch_first=True)
    torch.testing.assert_close(states[SOURCE.present], wanted[SOURCE.present])
    last = last[0] if cell == "lstm" else last
    ends = torch.cat([last[-2], last[-1]], -1) if bidirectional else last[-1]
    torch.testing.assert_close(summary, ends)


def test_layers_that_are_computed_again_have_the_same_gradients():
    torch.manual_seed(1)
    encoder, x = RecurrentEncoder("gru", 2, 6, bidirectional=True, dropout=0.3), torch.randn(3, 6, 6)
    gradients = []
    for wanted in (False, True):
        torch.manual_seed(2)
        encoder.zero_grad()
        with recomputing(wanted):
            states, summary = encoder(x, SOURCE)
        (states.square().sum() + summary.sum()).backward()
        gradients.append([weight.grad.clone() for weight in encoder.parameters()])
    assert all(torch.equal(*pair) for pair in zip(*gradients, strict=True))

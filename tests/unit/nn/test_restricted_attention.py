"""Restricted attention by blocks against attention to everything with a mask, and how it grows."""

import sys
from itertools import product

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from headway.nn.attention import MultiHeadAttention, Visible, attend, restricted
from headway.nn.attention.restricted import attend_restricted
from headway.nn.positions import AlibiPositions, RelativePositions
from headway.reproduce.allocated import most_bytes
from headway.sequences import Sequences

HEADS, WIDTH = 3, 4
CPU = torch.device("cpu")


def leaves(*shape, dtype=torch.float64, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(*shape, generator=generator, dtype=dtype).requires_grad_() for _ in range(3)]


def outcome(function, inputs, *parameters):
    """The output and all gradients, for a direction that is the same for all functions."""
    output = function(*inputs)
    direction = torch.randn(output.shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    return [output, *torch.autograd.grad(output, [*inputs, *parameters], direction.to(output.dtype))]


def twin(visible, bias=None):
    """Attention to everything, what must not be seen masked: scores and weights as tensors."""
    return lambda *inputs: attend(*inputs, visible, bias, need_weights=True).output


def assert_like(got, wanted, tolerance=1e-12):
    for mine, exact in zip(got, wanted, strict=True):
        torch.testing.assert_close(mine, exact, rtol=tolerance, atol=tolerance)


def padded(lengths):
    return Sequences.pad([[7] * length for length in lengths], 0)


def packed(lengths):
    return Sequences.pack([[7] * length for length in lengths])


@pytest.mark.parametrize("window", [0, 1, 5, 16, 40, 200])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("time", [1, 2, 16, 17, 33, 100])
def test_blocks_equal_masked_attention_outputs_and_gradients(time, causal, window):
    inputs, visible = leaves(2, time, HEADS, WIDTH), Visible(causal=causal, window=window)
    assert_like(outcome(lambda *x: attend_restricted(*x, visible), inputs), outcome(twin(visible), inputs))


@pytest.mark.parametrize(("causal", "window"), list(product([False, True], [0, 3, 30])))
@pytest.mark.parametrize("lengths", [[70, 1, 33], [5, 90, 90, 2]])
def test_padding_and_other_sentences_are_not_seen(lengths, causal, window):
    sentences = padded(lengths)
    visible = Visible(keys=sentences.present, causal=causal, window=window)
    inputs = leaves(*sentences.tokens.shape, HEADS, WIDTH)
    assert_like(outcome(lambda *x: attend_restricted(*x, visible), inputs), outcome(twin(visible), inputs))


@pytest.mark.parametrize(("causal", "window"), list(product([False, True], [0, 3, 30])))
def test_packed_sentences_are_served_as_they_lie(causal, window):
    sentences = packed([70, 1, 33, 16])
    visible = Visible.between(sentences, sentences, causal=causal, window=window)
    inputs = leaves(120, HEADS, WIDTH)
    assert_like(outcome(lambda *x: attend_restricted(*x, visible), inputs), outcome(twin(visible), inputs))


@pytest.mark.parametrize("kind", ["alibi", "relative"])
@pytest.mark.parametrize(("layout", "causal"), list(product([padded, packed], [False, True])))
def test_positions_that_enter_the_scores_do_so_in_blocks_and_learn(kind, layout, causal):
    torch.manual_seed(2)
    positions = AlibiPositions(HEADS) if kind == "alibi" else RelativePositions(WIDTH, furthest=4).double()
    sentences = layout([70, 33])
    visible = Visible.between(sentences, sentences, causal=causal, window=9)
    inputs, learnt = leaves(*sentences.tokens.shape, HEADS, WIDTH), list(positions.parameters())
    got = outcome(lambda *x: attend_restricted(*x, visible, positions.bias), inputs, *learnt)
    assert_like(got, outcome(twin(visible, positions.bias), inputs, *learnt))


@pytest.mark.parametrize("cells", [1, 700, 5000, 1 << 30])
def test_how_many_blocks_are_computed_at_once_is_of_no_consequence(cells, monkeypatch):
    monkeypatch.setitem(restricted.CELLS, "cpu", cells)
    sentences = padded([70, 100])
    visible = Visible(keys=sentences.present, window=6)
    inputs = leaves(2, 100, HEADS, WIDTH)
    assert_like(outcome(lambda *x: attend_restricted(*x, visible), inputs), outcome(twin(visible), inputs))


@pytest.mark.parametrize("bias", [None, AlibiPositions(HEADS).bias])
def test_a_query_that_sees_nothing_gets_zeros_and_finite_gradients(bias):
    visible = Visible(keys=torch.arange(80) < torch.tensor([[3], [80]]), window=2)
    inputs = leaves(2, 80, HEADS, WIDTH, dtype=torch.float32)
    output, *gradients = outcome(lambda *x: attend_restricted(*x, visible, bias), inputs)
    assert (output[0, 5:] == 0).all()
    assert (output[0, :5] != 0).all()
    for gradient in gradients:
        assert gradient.isfinite().all()
        assert (gradient[0, 5:] == 0).all()


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_with_dropout_are_those_of_the_mask_that_was_drawn(causal):
    visible = Visible(causal=causal, window=3)

    def drawn(*inputs):
        torch.manual_seed(4)
        return attend_restricted(*inputs, visible, drop=0.4)

    assert torch.autograd.gradcheck(drawn, leaves(1, 18, 1, 2), fast_mode=True)


@pytest.mark.parametrize("bias", [None, AlibiPositions(1).bias])
def test_dropout_leaves_the_expectation_and_drops_its_share(bias):
    query, key, value = torch.zeros(2, 2000, 1, 2), torch.randn(2, 2000, 1, 2), torch.ones(2, 2000, 1, 2)
    torch.manual_seed(1)
    drops = attend_restricted(query, key, value, Visible(window=1), bias, drop=0.25)[:, 1:-1, 0, 0]
    assert abs(float(drops.mean()) - 1.0) < 0.03
    if bias is None:  # three weights of a third each, of which some are left
        assert {round(each, 3) for each in drops.flatten().tolist()} == {0.0, 0.444, 0.889, 1.333}
        assert abs(float((drops == 0).float().mean()) - 0.25**3) < 0.01


def test_half_precision_under_autocast_stays_near_the_exact_result():
    visible, exact = Visible(window=8), leaves(2, 100, HEADS, 16)
    wanted = outcome(twin(visible), exact)
    half = [x.detach().bfloat16().requires_grad_() for x in exact]
    with torch.autocast("cpu", torch.bfloat16):
        got = outcome(lambda *x: attend_restricted(*x, visible), half)
    assert all(x.dtype == torch.bfloat16 for x in got)
    for mine, right in zip(got, wanted, strict=True):
        assert ((mine.double() - right).norm() / right.norm()).item() < 2e-2


def chosen(monkeypatch):
    """Counts how often `attend` takes the blocks."""
    calls = []
    door = sys.modules["headway.nn.attention.attend"]
    monkeypatch.setattr(door, "attend_restricted", lambda *a, **k: calls.append(1) or attend_restricted(*a, **k))
    return calls


@pytest.mark.parametrize(
    ("visible", "time", "taken"),
    [
        (Visible(window=4), 200, True),
        (Visible(window=4, causal=True), 200, True),
        (Visible(window=4), 40, False),
        (Visible(window=100), 200, False),
        (Visible(causal=True), 200, False),
    ],
)
def test_attend_takes_blocks_where_sentences_are_long_beside_the_window(visible, time, taken, monkeypatch):
    calls = chosen(monkeypatch)
    inputs = leaves(2, time, HEADS, WIDTH)
    assert_like(outcome(lambda *x: attend(*x, visible).output, inputs), outcome(twin(visible), inputs))
    assert bool(calls) == taken


def test_attend_takes_blocks_for_packed_sentences_but_not_where_weights_are_wanted(monkeypatch):
    calls, sentences = chosen(monkeypatch), packed([200, 7])
    visible = Visible.between(sentences, sentences, window=4)
    inputs = leaves(207, HEADS, WIDTH)
    got = attend(*inputs, visible)
    assert len(calls) == 1
    explicit = attend(*inputs, visible, need_weights=True)
    assert len(calls) == 1
    torch.testing.assert_close(got.output, explicit.output)


def test_what_looks_at_another_sequence_is_left_to_masks(monkeypatch):
    calls = chosen(monkeypatch)
    query, key, value = (x[None] for x in leaves(207, HEADS, WIDTH))
    visible = Visible(window=4)
    got = attend(query[:, 100:], key, value, visible).output
    torch.testing.assert_close(got, attend(query, key, value, visible, need_weights=True).output[:, 100:])
    sides = packed([200, 7]), packed([7, 200])
    assert not restricted.serves(query[0], key[0], Visible.between(*sides, window=4))
    assert not calls


def learning(time, drop, bias=None):
    """Forwards and backwards through a layer whose window is 16 each way."""
    torch.manual_seed(1)
    attention = MultiHeadAttention(32, 4, dropout=drop)
    attention.positions.bias = bias
    x, positions = torch.randn(1, time, 32), torch.arange(time)[None]

    def work():
        attended, _ = attention(x, Visible(window=16), positions)
        attended.output.sum().backward()

    return work


@pytest.mark.parametrize(("drop", "bias"), [(0.0, None), (0.1, None), (0.0, AlibiPositions(4).bias)])
def test_memory_grows_with_the_length_and_not_with_its_square(drop, bias):
    sizes = [most_bytes(learning(time, drop, bias), CPU) for time in (1024, 2048, 4096)]
    assert sizes[2] < 4.1 * sizes[0]
    assert sizes[2] - sizes[1] < 2.1 * (sizes[1] - sizes[0])
    assert sizes[2] < 4 * 4096 * 4096  # not even one matrix of scores would have had room


def test_operations_grow_with_the_length_and_not_with_its_square():
    counts = []
    for time in (1024, 2048, 4096):
        with FlopCounterMode(display=False) as counter:
            learning(time, 0.0)()
        counts.append(counter.get_total_flops())
    assert counts[1] == 2 * counts[0]
    assert counts[2] == 4 * counts[0]


def test_what_is_kept_for_the_gradient_is_what_was_given():
    kept = []
    inputs = leaves(1, 4096, 4, 8, dtype=torch.float32)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.nbytes) or x, lambda x: x):
        attend(*inputs, Visible(window=16))
    assert sum(kept) <= sum(x.nbytes for x in inputs) + 4096 * (2 * 16 + 16)  # and who may see whom, a byte each

"""A query that may see nothing."""

import pytest
import torch

from headway.nn.attention import MultiHeadAttention, Visible, attend
from headway.nn.positions import attention_positions
from headway.sequences import Sequences

HEADS, WIDTH = 2, 4
KINDS = ["sinusoidal", "relative", "alibi"]
every_kind = pytest.mark.parametrize("kind", KINDS)
every_path = pytest.mark.parametrize("need_weights", [False, True])


def bias_of(kind):
    torch.manual_seed(1)
    return attention_positions(kind, heads=HEADS, width=WIDTH)


def leaf(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).requires_grad_()


def assert_finite(*tensors):
    for tensor in tensors:
        assert tensor.grad is not None
        assert tensor.grad.isfinite().all()


@every_kind
@every_path
def test_a_query_with_no_allowed_key_gets_zeros_and_finite_gradients(kind, need_weights):
    query, key, value = leaf(3, 5, HEADS, WIDTH), leaf(3, 6, HEADS, WIDTH), leaf(3, 6, HEADS, WIDTH)
    present = torch.tensor([[True] * 6, [False] * 6, [True] * 2 + [False] * 4])
    positions = bias_of(kind)
    attended = attend(query, key, value, Visible(keys=present), positions.bias, need_weights=need_weights)
    assert (attended.output[1] == 0).all()
    assert (attended.output[0] != 0).all()
    if need_weights:
        assert (attended.weights[1] == 0).all()
    (attended.output**2).sum().backward()
    assert_finite(query, key, value, *positions.parameters())
    assert (query.grad[1] == 0).all()
    assert (value.grad[1] == 0).all()
    assert (value.grad[2, 2:] == 0).all()


@every_kind
@every_path
def test_queries_left_of_every_key_are_blind_under_causality(kind, need_weights):
    query, key, value = leaf(2, 5, HEADS, WIDTH), leaf(2, 3, HEADS, WIDTH), leaf(2, 3, HEADS, WIDTH)
    positions = bias_of(kind)
    output = attend(query, key, value, Visible(causal=True), positions.bias, need_weights=need_weights).output
    assert (output[:, :2] == 0).all()
    assert (output[:, 2:] != 0).all()
    output.sum().backward()
    assert_finite(query, key, value, *positions.parameters())


@every_kind
@every_path
def test_a_packed_sentence_that_faces_an_empty_one_gets_zeros_and_finite_gradients(kind, need_weights):
    queries = Sequences.pack([[7] * 2, [7] * 3, [7]])
    keys = Sequences.pack([[7] * 4, [], [7] * 2])
    query, key, value = leaf(6, HEADS, WIDTH), leaf(6, HEADS, WIDTH), leaf(6, HEADS, WIDTH)
    positions = bias_of(kind)
    attended = attend(query, key, value, Visible.between(queries, keys), positions.bias, need_weights=need_weights)
    assert (attended.output[2:5] == 0).all()
    assert (attended.output[[0, 1, 5]] != 0).all()
    (attended.output**2).sum().backward()
    assert_finite(query, key, value, *positions.parameters())


@every_path
def test_enormous_scores_on_hidden_keys_never_reach_a_gradient(need_weights):
    query, key, value = leaf(1, 2, HEADS, WIDTH), leaf(1, 3, HEADS, WIDTH), leaf(1, 3, HEADS, WIDTH)
    hidden = torch.tensor([[True, False, False]])
    huge = key * torch.tensor([1.0, 1e18, 1e18])[None, :, None, None]
    attend(query, huge, value, Visible(keys=hidden), need_weights=need_weights).output.sum().backward()
    assert_finite(query, key, value)


@every_path
def test_a_blind_position_leaves_multi_head_attention_with_the_output_bias_alone(need_weights):
    attention = MultiHeadAttention(8, 2)
    torch.nn.init.normal_(attention.output.bias)
    x = leaf(2, 3, 8)
    present = torch.tensor([[True] * 3, [False] * 3])
    attended, _ = attention(x, Visible(keys=present), torch.arange(3).expand(2, 3), need_weights=need_weights)
    torch.testing.assert_close(attended.output[1], attention.output.bias.expand(3, 8))
    attended.output.sum().backward()
    assert_finite(x, *attention.parameters())


@every_path
def test_dropout_leaves_blind_queries_zero_and_gradients_finite(need_weights):
    query, key, value = leaf(2, 3, HEADS, WIDTH), leaf(2, 4, HEADS, WIDTH), leaf(2, 4, HEADS, WIDTH)
    present = torch.tensor([[True] * 4, [False] * 4])
    torch.manual_seed(1)
    output = attend(query, key, value, Visible(keys=present), drop=0.5, need_weights=need_weights).output
    assert (output[1] == 0).all()
    output.sum().backward()
    assert_finite(query, key, value)


@every_kind
@every_path
def test_no_nan_appears_even_on_the_way_to_a_gradient(kind, need_weights):
    query, key, value = leaf(2, 3, HEADS, WIDTH), leaf(2, 4, HEADS, WIDTH), leaf(2, 4, HEADS, WIDTH)
    present = torch.tensor([[True] * 4, [False] * 4])
    with torch.autograd.set_detect_anomaly(True):
        output = attend(query, key, value, Visible(keys=present), bias_of(kind).bias, need_weights=need_weights).output
        output.sum().backward()
    assert_finite(query, key, value)

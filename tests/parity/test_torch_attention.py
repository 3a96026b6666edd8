"""`MultiHeadAttention` against `torch.nn.MultiheadAttention` with the same weights."""

from itertools import product

import pytest
import torch
from torch import nn

from headway.nn.attention import MultiHeadAttention, Visible
from headway.sequences import Sequences

DIM, HEADS, LENGTHS = 8, 2, [5, 3, 1]
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
MASKS = list(product([False, True], [False, True], [None, 1, 3]))


def twins():
    torch.manual_seed(1)
    ours, theirs = MultiHeadAttention(DIM, HEADS), nn.MultiheadAttention(DIM, HEADS, batch_first=True)
    nn.init.normal_(ours.inputs.bias)
    nn.init.normal_(ours.output.bias)
    copies = {"in_proj_weight": ours.inputs.weight, "in_proj_bias": ours.inputs.bias}
    copies |= {"out_proj.weight": ours.output.weight, "out_proj.bias": ours.output.bias}
    theirs.load_state_dict({name: tensor.detach().clone() for name, tensor in copies.items()})
    return ours, theirs


def blocked(causal, window, queries, keys):
    """torch's mask, True = may not attend, by its own arithmetic."""
    row, column = torch.arange(queries)[:, None], torch.arange(keys)
    mask = torch.zeros(queries, keys, dtype=torch.bool)
    if causal:
        mask |= column > row
    if window is not None:
        mask |= (column - row).abs() > window
    return mask


def assert_same_gradients(ours, theirs):
    torch.testing.assert_close(ours.inputs.weight.grad, theirs.in_proj_weight.grad, **CLOSE)
    torch.testing.assert_close(ours.inputs.bias.grad, theirs.in_proj_bias.grad, **CLOSE)
    torch.testing.assert_close(ours.output.weight.grad, theirs.out_proj.weight.grad, **CLOSE)
    torch.testing.assert_close(ours.output.bias.grad, theirs.out_proj.bias.grad, **CLOSE)


@pytest.mark.parametrize(("padding", "causal", "window"), MASKS)
@pytest.mark.parametrize("need_weights", [False, True])
def test_self_attention_equals_torch_under_every_mask(padding, causal, window, need_weights):
    ours, theirs = twins()
    present = Sequences.pad([[7] * length for length in LENGTHS], 0).present
    mask, hidden = blocked(causal, window, 5, 5), ~present if padding else None
    sees = (
        (~mask if hidden is None else ~mask & ~hidden[:, None]).expand(3, 5, 5).any(-1)
    )  # torch gives NaN to the rest
    x = torch.randn(3, 5, DIM, generator=torch.Generator().manual_seed(2))
    mine, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    visible = Visible(keys=present if padding else None, causal=causal, window=window)
    places = torch.arange(5).expand(3, 5)
    attended, _ = ours(mine, visible, places, need_weights=need_weights)
    # torch hands NaN back through a query that sees nothing, so such queries are let see everything and not compared
    full = mask.expand(3, 5, 5) if hidden is None else mask | hidden[:, None]
    full = (full & sees[..., None]).repeat_interleave(HEADS, 0)
    output, weights = theirs(other, other, other, attn_mask=full, need_weights=True, average_attn_weights=False)
    torch.testing.assert_close(attended.output[sees], output[sees], **CLOSE)
    if need_weights:
        rows = sees[:, None].expand(3, HEADS, 5)
        torch.testing.assert_close(attended.weights[rows], weights[rows], **CLOSE)
        averaged = theirs(other, other, other, attn_mask=full, need_weights=True, average_attn_weights=True)[1]
        torch.testing.assert_close(attended.weights.mean(1)[sees], averaged[sees], **CLOSE)
    direction = torch.randn(3, 5, DIM, generator=torch.Generator().manual_seed(4)) * sees[..., None]
    (attended.output * direction).sum().backward()
    (output * direction).sum().backward()
    torch.testing.assert_close(mine.grad, other.grad, **CLOSE)
    assert_same_gradients(ours, theirs)


@pytest.mark.parametrize("padding", [False, True])
@pytest.mark.parametrize("need_weights", [False, True])
def test_cross_attention_equals_torch(padding, need_weights):
    ours, theirs = twins()
    present = Sequences.pad([[7] * length for length in LENGTHS], 0).present
    generator = torch.Generator().manual_seed(2)
    query, memory = torch.randn(3, 4, DIM, generator=generator), torch.randn(3, 5, DIM, generator=generator)
    mine = query.clone().requires_grad_(), memory.clone().requires_grad_()
    other = query.clone().requires_grad_(), memory.clone().requires_grad_()
    visible = Visible(keys=present if padding else None)
    attended = ours.cross(mine[0], ours.remember(mine[1]), visible, need_weights=need_weights)
    hidden = ~present if padding else None
    output, weights = theirs(other[0], other[1], other[1], key_padding_mask=hidden, average_attn_weights=False)
    torch.testing.assert_close(attended.output, output, **CLOSE)
    if need_weights:
        torch.testing.assert_close(attended.weights, weights, **CLOSE)
    direction = torch.randn(3, 4, DIM, generator=generator)
    (attended.output * direction).sum().backward()
    (output * direction).sum().backward()
    for left, right in zip(mine, other, strict=True):
        torch.testing.assert_close(left.grad, right.grad, **CLOSE)
    assert_same_gradients(ours, theirs)

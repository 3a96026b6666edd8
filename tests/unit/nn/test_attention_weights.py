"""The weights attention gives on request are those it used."""

from itertools import product

import pytest
import torch

from headway.nn.attention import Visible, attend
from headway.nn.layers import LayerShape
from headway.nn.positions import attention_positions
from headway.sequences import Sequences

HEADS, WIDTH, LENGTHS = 2, 4, [5, 2, 3]
CONDITIONS = list(product([False, True], [False, True], [None, 1], ["sinusoidal", "relative", "alibi"]))


def inputs(*shape):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(*shape, HEADS, WIDTH, generator=generator) for _ in range(3)]


@pytest.mark.parametrize(("packed", "causal", "window", "kind"), CONDITIONS)
def test_weights_times_values_reproduce_the_output_and_every_row_sums_to_one(packed, causal, window, kind):
    torch.manual_seed(2)
    sentences = [[7] * length for length in LENGTHS]
    sequences = Sequences.pack(sentences) if packed else Sequences.pad(sentences, 0)
    query, key, value = inputs(*sequences.tokens.shape)
    visible = Visible.between(sequences, sequences, causal=causal, window=window)
    bias = attention_positions(kind, heads=HEADS, width=WIDTH).bias
    asked = attend(query, key, value, visible, bias, need_weights=True)
    torch.testing.assert_close(asked.output, attend(query, key, value, visible, bias).output, rtol=1e-5, atol=1e-6)
    values = visible.segments.pad_keys(value) if packed else value
    mixed = torch.einsum("bhqk,bkhw->bqhw", asked.weights, values)
    mixed = visible.segments.pack_queries(mixed) if packed else mixed
    torch.testing.assert_close(mixed, asked.output, rtol=1e-5, atol=1e-6)
    assert asked.weights.shape == (3, HEADS, 5, 5)
    for row, length in enumerate(LENGTHS):
        own = asked.weights[row, :, :length]
        torch.testing.assert_close(own.sum(-1), torch.ones(HEADS, length))
        assert (own[..., length:] == 0).all()


def test_weights_are_those_before_dropout():
    query, key, value = inputs(2, 4)
    torch.manual_seed(1)
    dropped = attend(query, key, value, Visible(), drop=0.5, need_weights=True)
    kept = attend(query, key, value, Visible(), need_weights=True)
    torch.testing.assert_close(dropped.weights, kept.weights)
    assert not torch.allclose(dropped.output, kept.output)


def test_attention_dropout_acts_in_training_alone():
    attention = LayerShape(dim=8, heads=2, hidden=8, attention_dropout=0.5).cross_attention()
    x = torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(1))
    memory = attention.remember(x)

    def output():
        return attention.cross(x, memory, Visible()).output

    assert not torch.equal(output(), output())
    attention.eval()
    assert torch.equal(output(), output())

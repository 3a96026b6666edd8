"""Restricted attention on a GPU: blocks against masks in every layout and precision, and how its memory grows."""

from itertools import product

import pytest
import torch

from headway.nn.attention import Visible, attend
from headway.nn.attention.restricted import attend_restricted, serves
from headway.reproduce.allocated import most_bytes
from headway.sequences import Sequences

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
LENGTHS = [300, 1, 77]
GPU = torch.device("cuda")


def leaves(*shape, dtype, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(*shape, generator=generator).to("cuda", dtype).requires_grad_() for _ in range(3)]


def outcome(function, inputs):
    output = function(*inputs)
    direction = torch.randn(output.shape, generator=torch.Generator().manual_seed(2)).to(output)
    return [output, *torch.autograd.grad(output, inputs, direction)]


@pytest.mark.parametrize(("causal", "packed"), list(product([False, True], [False, True])))
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_blocks_equal_masked_attention(causal, packed, dtype, tolerance):
    rows = [[7] * length for length in LENGTHS]
    sentences = (Sequences.pack(rows) if packed else Sequences.pad(rows, 0)).to("cuda")
    visible = Visible.between(sentences, sentences, causal=causal, window=9)
    inputs = leaves(*sentences.tokens.shape, 4, 32, dtype=dtype)
    got = outcome(lambda *x: attend_restricted(*x, visible), inputs)
    exact = [x.detach().double().requires_grad_() for x in inputs]
    wanted = outcome(lambda *x: attend(*x, visible, need_weights=True).output, exact)
    for mine, right in zip(got, wanted, strict=True):
        assert ((mine.double() - right).norm() / right.norm()).item() < tolerance


def test_dropout_is_drawn_once_for_both_ways():
    visible, inputs = Visible(window=9), leaves(1, 600, 2, 16, dtype=torch.float32)
    output, *_, slope = outcome(lambda *x: attend_restricted(*x, visible, drop=0.3), inputs)
    direction = torch.randn(output.shape, generator=torch.Generator().manual_seed(2)).to(output)
    # The output is linear in the values: the gradient of this very mask gives it back.
    torch.testing.assert_close((slope * inputs[2]).sum(), (direction * output).sum(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_long_sentences_without_padding_equal_masked_attention(causal, dtype, tolerance):
    visible = Visible(causal=causal, window=9)
    inputs = leaves(2, 700, 4, 32, dtype=dtype)
    got = outcome(lambda *x: attend(*x, visible).output, inputs)
    exact = [x.detach().double().requires_grad_() for x in inputs]
    wanted = outcome(lambda *x: attend(*x, visible, need_weights=True).output, exact)
    for mine, right in zip(got, wanted, strict=True):
        assert ((mine.double() - right).norm() / right.norm()).item() < tolerance


def test_memory_grows_with_the_length():
    visible, sizes = Visible(window=16), []
    for length in (8192, 16384, 32768):
        inputs = leaves(1, length, 8, 64, dtype=torch.bfloat16)
        assert serves(inputs[0], inputs[1], visible)
        sizes.append(most_bytes(lambda inputs=inputs: outcome(lambda *x: attend(*x, visible).output, inputs), GPU))
    assert sizes[2] < 2.2 * sizes[1] < 4.8 * sizes[0]

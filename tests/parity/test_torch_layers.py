"""The layers and stacks of figure 1 against those of `torch.nn` with the same weights."""

import pytest
import torch
from torch import nn

from headway.nn.attention import Visible
from headway.nn.layers import DecoderLayer, EncoderLayer, LayerShape
from headway.nn.stacks import Decoder, Encoder
from headway.sequences import Sequences

DIM, HEADS, HIDDEN = 8, 2, 16
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
SOURCE = Sequences.pad([[7] * length for length in (5, 3, 1)], 0)
TARGET = Sequences.pad([[7] * length for length in (2, 4, 3)], 0)
every_kind = pytest.mark.parametrize("kind", ["relu", "gelu"])
every_norm = pytest.mark.parametrize("norm", ["pre", "post"])


def shape(norm, kind):
    return LayerShape(dim=DIM, heads=HEADS, hidden=HIDDEN, norm=norm, feedforward=kind)


def torch_options(norm, kind):
    return {
        "d_model": DIM,
        "nhead": HEADS,
        "dim_feedforward": HIDDEN,
        "dropout": 0.0,
        "activation": kind,
        "norm_first": norm == "pre",
        "batch_first": True,
    }


def scatter(module):
    """Leave no weight at a value that would hide a mistake."""
    torch.manual_seed(1)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.4)
    return module


def pairs(ours, theirs):
    """Every parameter of our layer beside torch's."""
    attentions = [(ours.attention, theirs.self_attn)]
    maps = [(ours.feedforward.inner, theirs.linear1), (ours.feedforward.outer, theirs.linear2)]
    norms = [(ours.attention_residual.norm, theirs.norm1)]
    if isinstance(ours, DecoderLayer):
        attentions.append((ours.cross, theirs.multihead_attn))
        norms += [(ours.cross_residual.norm, theirs.norm2), (ours.feedforward_residual.norm, theirs.norm3)]
    else:
        norms.append((ours.feedforward_residual.norm, theirs.norm2))
    found = []
    for mine, other in attentions:
        found += [(mine.inputs.weight, other.in_proj_weight), (mine.inputs.bias, other.in_proj_bias)]
        found += [(mine.output.weight, other.out_proj.weight), (mine.output.bias, other.out_proj.bias)]
    for mine, other in maps + norms:
        found += [(mine.weight, other.weight), (mine.bias, other.bias)]
    return found


def stack_pairs(ours, theirs):
    found = [pair for mine, other in zip(ours.layers, theirs.layers, strict=True) for pair in pairs(mine, other)]
    if theirs.norm is not None:
        found += [(ours.norm.weight, theirs.norm.weight), (ours.norm.bias, theirs.norm.bias)]
    return found


def align(matched, ours):
    assert len(matched) == len(list(ours.parameters()))
    with torch.no_grad():
        for mine, other in matched:
            other.copy_(mine)


def compare(output, expected, tokens, matched, inputs):
    """Outputs of tokens, and the gradients of parameters and inputs."""
    torch.testing.assert_close(output[tokens.present], expected[tokens.present], **CLOSE)
    direction = torch.randn(output.shape, generator=torch.Generator().manual_seed(9)) * tokens.present[..., None]
    (output * direction).sum().backward()
    (expected * direction).sum().backward()
    for mine, other in matched + inputs:
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-4, atol=1e-5)


def twice(sequences, seed):
    x = torch.randn(*sequences.tokens.shape, DIM, generator=torch.Generator().manual_seed(seed))
    return x.clone().requires_grad_(), x.clone().requires_grad_()


def target_mask():
    return nn.Transformer.generate_square_subsequent_mask(TARGET.longest, dtype=torch.bool).bool()


def target_visible():
    return Visible.between(TARGET, TARGET, causal=True), Visible.between(TARGET, SOURCE)


@every_kind
@every_norm
def test_an_encoder_layer_equals_that_of_torch(norm, kind):
    ours = scatter(EncoderLayer(shape(norm, kind)))
    theirs = nn.TransformerEncoderLayer(**torch_options(norm, kind))
    align(matched := pairs(ours, theirs), ours)
    mine, other = twice(SOURCE, 2)
    output, _ = ours(mine, Visible.between(SOURCE, SOURCE), SOURCE.positions)
    expected = theirs(other, src_key_padding_mask=~SOURCE.present)
    compare(output, expected, SOURCE, matched, [(mine, other)])


@every_kind
@every_norm
def test_a_decoder_layer_equals_that_of_torch(norm, kind):
    ours = scatter(DecoderLayer(shape(norm, kind)))
    theirs = nn.TransformerDecoderLayer(**torch_options(norm, kind))
    align(matched := pairs(ours, theirs), ours)
    mine, other = twice(TARGET, 2)
    mine_memory, other_memory = twice(SOURCE, 3)
    output = ours(mine, ours.cross.remember(mine_memory), target_visible(), TARGET.positions).states
    expected = theirs(other, other_memory, tgt_mask=target_mask(), memory_key_padding_mask=~SOURCE.present)
    compare(output, expected, TARGET, matched, [(mine, other), (mine_memory, other_memory)])


@every_kind
@every_norm
def test_an_encoder_equals_that_of_torch(norm, kind):
    ours = scatter(Encoder(3, shape(norm, kind)))
    last = nn.LayerNorm(DIM) if norm == "pre" else None
    layer = nn.TransformerEncoderLayer(**torch_options(norm, kind))
    theirs = nn.TransformerEncoder(layer, 3, norm=last, enable_nested_tensor=False)
    align(matched := stack_pairs(ours, theirs), ours)
    mine, other = twice(SOURCE, 2)
    output, _ = ours(mine, Visible.between(SOURCE, SOURCE), SOURCE.positions)
    expected = theirs(other, src_key_padding_mask=~SOURCE.present)
    compare(output, expected, SOURCE, matched, [(mine, other)])


@every_kind
@every_norm
def test_a_decoder_equals_that_of_torch(norm, kind):
    ours = scatter(Decoder(3, shape(norm, kind)))
    last = nn.LayerNorm(DIM) if norm == "pre" else None
    theirs = nn.TransformerDecoder(nn.TransformerDecoderLayer(**torch_options(norm, kind)), 3, norm=last)
    align(matched := stack_pairs(ours, theirs), ours)
    mine, other = twice(TARGET, 2)
    mine_memory, other_memory = twice(SOURCE, 3)
    output = ours(mine, ours.remember(mine_memory), target_visible(), TARGET.positions).states
    expected = theirs(other, other_memory, tgt_mask=target_mask(), memory_key_padding_mask=~SOURCE.present)
    compare(output, expected, TARGET, matched, [(mine, other), (mine_memory, other_memory)])

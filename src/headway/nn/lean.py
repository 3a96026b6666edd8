"""A decoding step in straight lines: what `Decoder.forward` computes for a few new positions, without its modules.

On a CPU the products of a small model take less time than calling the modules around them. `Decoder.forward` is the
slow twin, and does what this cannot: learning, attention weights, and positions that are added to attention scores.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from headway.nn.attention import KeyValues, Past
from headway.nn.dropout import rows_served
from headway.nn.feedforward import FeedForwardKind
from headway.nn.layers import DecoderLayer
from headway.nn.positions import Positions
from headway.nn.stacks import Decoder


class Affine(NamedTuple):
    """A matrix the other way round than a linear layer keeps it, and what is added."""

    weight: Float[Tensor, "inputs outputs"]
    bias: Float[Tensor, " outputs"]

    @classmethod
    def of(cls, weight: Float[Tensor, "outputs inputs"], bias: Float[Tensor, " outputs"]) -> "Affine":
        """The map of a linear layer, in the same place in memory."""
        return cls(weight.detach().t(), bias.detach())

    def __call__(self, x: Float[Tensor, "rows inputs"]) -> Float[Tensor, "rows outputs"]:
        """The mapped rows."""
        return torch.addmm(self.bias, x, self.weight)


class LeanLayer(NamedTuple):
    """The weights of a decoder layer."""

    own: Affine
    own_output: Affine
    asking: Affine
    cross_output: Affine
    inner: Affine
    outer: Affine
    norms: tuple[nn.LayerNorm, ...]
    positions: Positions

    @classmethod
    def of(cls, layer: DecoderLayer) -> "LeanLayer":
        """What stands in a layer, in the same place in memory."""
        own, cross, dim = layer.attention, layer.cross, layer.cross.dim
        return cls(
            Affine.of(own.inputs.weight, own.inputs.bias),
            Affine.of(own.output.weight, own.output.bias),
            Affine.of(cross.inputs.weight[:dim], cross.inputs.bias[:dim]),
            Affine.of(cross.output.weight, cross.output.bias),
            Affine.of(layer.feedforward.inner.weight, layer.feedforward.inner.bias),
            Affine.of(layer.feedforward.outer.weight, layer.feedforward.outer.bias),
            (layer.attention_residual.norm, layer.cross_residual.norm, layer.feedforward_residual.norm),
            own.positions,
        )


class StraightLines:
    """What stands around the sub-layers of every layer, without its modules."""

    before: bool
    """Norms stand before the sub-layers."""
    kind: FeedForwardKind

    def _enter(self, rows: Tensor, norm: nn.LayerNorm) -> Tensor:
        return _normed(rows, norm) if self.before else rows

    def _leave(self, rows: Tensor, found: Tensor, norm: nn.LayerNorm) -> Tensor:
        if not self.before and rows_served(rows):
            from headway.nn.fused import joined

            return joined(rows, found, norm.weight, norm.bias, norm.eps, 0.0)[0]
        both = found.add_(rows)
        return both if self.before else _normed(both, norm)

    def _activated(self, hidden: Float[Tensor, "rows hidden"]) -> Tensor:
        if self.kind == "relu":
            return hidden.relu_()
        if self.kind == "gelu":
            return F.gelu(hidden)
        value, gate = hidden.chunk(2, -1)
        return value * F.silu(gate)


class LeanDecoder(StraightLines):
    """The layers of a decoder, ready to take steps."""

    def __init__(self, decoder: Decoder) -> None:
        layers = [layer for layer in decoder.layers if isinstance(layer, DecoderLayer)]
        self.layers = [LeanLayer.of(layer) for layer in layers]
        self.heads, self.width = layers[0].attention.heads, layers[0].attention.width
        self.kind = layers[0].feedforward.kind
        self.before, self.norm = layers[0].attention_residual.before, decoder.norm

    @staticmethod
    def serves(decoder: Decoder) -> bool:
        """Whether positions add nothing to its attention scores."""
        layers = [layer for layer in decoder.layers if isinstance(layer, DecoderLayer)]
        return all(layer.attention.positions.bias is None for layer in layers)

    @torch.no_grad()
    def __call__(
        self,
        x: Float[Tensor, "batch query dim"],
        memory: Sequence[KeyValues],
        added: tuple[Tensor | None, Tensor | None],
        past: Sequence[Past],
        positions: Int[Tensor, "batch query"],
    ) -> tuple[Float[Tensor, "batch query dim"], tuple[Past, ...]]:
        """The states of the new positions, and the memory with them; `added` hides keys of the target and source."""
        shape, width = x.shape, self.width
        split, rows, after = (*shape[:2], -1, self.heads, width), x.flatten(0, 1), []
        for layer, source, earlier in zip(self.layers, memory, past, strict=True):
            query, key, value = layer.own(self._enter(rows, layer.norms[0])).view(split).unbind(2)
            query, key = (layer.positions.turn(each, positions) for each in (query, key))
            after.append(earlier.extended(KeyValues(key, value)))
            rows = self._leave(rows, layer.own_output(_attended(query, after[-1].held(), added[0])), layer.norms[0])
            query = layer.asking(self._enter(rows, layer.norms[1])).view(*shape[:2], self.heads, width)
            rows = self._leave(rows, layer.cross_output(_attended(query, source, added[1])), layer.norms[1])
            hidden = self._activated(layer.inner(self._enter(rows, layer.norms[2])))
            rows = self._leave(rows, layer.outer(hidden), layer.norms[2])
        return self.norm(rows).view(shape), tuple(after)


def _normed(rows: Float[Tensor, "rows dim"], norm: nn.LayerNorm) -> Float[Tensor, "rows dim"]:
    return torch.layer_norm(rows, norm.normalized_shape, norm.weight, norm.bias, norm.eps)


def _attended(
    query: Float[Tensor, "batch query heads width"], held: KeyValues, added: Float[Tensor, "batch 1 #query key"] | None
) -> Float[Tensor, "rows dim"]:
    query, key, value = query.transpose(1, 2), held.key.transpose(1, 2), held.value.transpose(1, 2)
    mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=added)
    return mixed.transpose(1, 2).flatten(0, 1).flatten(1)

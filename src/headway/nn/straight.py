"""Layers over whole sentences in straight lines, without their modules: what the stacks compute, sooner.

Of a small model the products take less time than what stands around them: calls on a CPU, kernels on a GPU. The stacks
are the slow twins, and do what this cannot: learning, attention weights, packed sentences, and positions that enter the
attention scores.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from headway.nn.attention import KeyValues, MultiHeadAttention, Visible
from headway.nn.feedforward import FeedForward
from headway.nn.layers import DecoderLayer, EncoderLayer
from headway.nn.lean import Affine, StraightLines
from headway.nn.positional import PositionalDecoderLayer
from headway.sequences import Sequences

Added = Tensor | None
"""What is added to scores, `[batch, 1, query or 1, key]`: minus infinity where a key is hidden; None where none is."""


class Order(NamedTuple):
    """Positional attention, its queries and keys made once for all positions."""

    places: Float[Tensor, "2 heads time width"]
    value: Affine
    output: Affine

    @classmethod
    def of(cls, layer: PositionalDecoderLayer, table: Float[Tensor, "time dim"]) -> "Order":
        """What stands in a layer, and what it makes of every position."""
        attention, dim = layer.order, layer.order.dim
        weight, bias = attention.inputs.weight, attention.inputs.bias
        both = F.linear(table.to(weight.dtype), weight[: 2 * dim], bias[: 2 * dim]).detach()
        parts = both.unflatten(-1, (2, attention.heads, dim // attention.heads)).permute(1, 2, 0, 3).contiguous()
        return cls(parts, Affine.of(weight[2 * dim :], bias[2 * dim :]), _outer(attention))


class StraightLayer(NamedTuple):
    """The weights of a layer, in the order they are used; what an encoder lacks is None."""

    own: Affine
    own_output: Affine
    order: Order | None
    asking: Affine | None
    cross_output: Affine | None
    inner: Affine
    outer: Affine
    norms: tuple[nn.LayerNorm, ...]

    @classmethod
    def of(
        cls, layer: EncoderLayer | DecoderLayer | PositionalDecoderLayer, table: Float[Tensor, "time dim"] | None
    ) -> "StraightLayer":
        """What stands in a layer, in the same place in memory."""
        own, network = layer.attention, layer.feedforward
        assert isinstance(network, FeedForward)  # the configuration has no other kind
        norms, order, asking, output = [layer.attention_residual.norm], None, None, None
        if isinstance(layer, PositionalDecoderLayer) and table is not None:
            order = Order.of(layer, table)
            norms.append(layer.order_residual.norm)
        if not isinstance(layer, EncoderLayer):
            inputs, dim = layer.cross.inputs, layer.cross.dim
            asking, output = Affine.of(inputs.weight[:dim], inputs.bias[:dim]), _outer(layer.cross)
            norms.append(layer.cross_residual.norm)
        norms.append(layer.feedforward_residual.norm)
        return cls(
            Affine.of(own.inputs.weight, own.inputs.bias),
            _outer(own),
            order,
            asking,
            output,
            Affine.of(network.inner.weight, network.inner.bias),
            Affine.of(network.outer.weight, network.outer.bias),
            tuple(norms),
        )


class Straight(StraightLines):
    """Layers one upon the other, ready to be gone through."""

    def __init__(self, stack: nn.Module, table: Float[Tensor, "time dim"] | None = None) -> None:
        layers = list(_layers(stack))
        self.layers = [StraightLayer.of(layer, table) for layer in layers]
        self.heads, self.before = layers[0].attention.heads, layers[0].attention_residual.before
        self.kind = layers[0].feedforward.kind  # type: ignore[assignment]  # a FeedForward
        self.norm = stack.norm
        inputs = [layer.cross.inputs for layer in layers if not isinstance(layer, EncoderLayer)]
        self.reading: Affine | None = None
        if inputs:  # what all layers remember of the source is one product
            dim = inputs[0].weight.shape[1]
            weights = [torch.cat([getattr(each, name)[dim:] for each in inputs]) for name in ("weight", "bias")]
            self.reading = Affine.of(*weights)

    @torch.no_grad()
    def remember(self, states: Float[Tensor, "batch key dim"]) -> tuple[KeyValues, ...]:
        """Every layer's keys and values of the source."""
        assert self.reading is not None  # of a decoder
        both = self.reading(states.flatten(0, 1)).view(*states.shape[:2], len(self.layers), 2, self.heads, -1)
        return tuple(KeyValues(*layer.unbind(2)) for layer in both.unbind(2))

    @torch.no_grad()
    def __call__(
        self,
        x: Float[Tensor, "batch time dim"],
        added: tuple[Added, Added, Added],
        memory: Sequence[KeyValues | None] = (),
    ) -> Float[Tensor, "batch time dim"]:
        """The states of the last layer; `added` hides keys of the states, of the positions and of the source."""
        batch, time, dim = x.shape
        own, placed, across = (None if each is None else each.to(x.dtype) for each in added)
        rows, split = x.reshape(-1, dim), (batch, time, -1, self.heads, dim // self.heads)

        def heads(projected: Tensor) -> tuple[Tensor, ...]:
            return projected.view(split).permute(2, 0, 3, 1, 4).unbind()

        for layer, source in zip(self.layers, memory or [None] * len(self.layers), strict=True):
            norms = iter(layer.norms)
            norm = next(norms)
            query, key, value = heads(layer.own(self._enter(rows, norm)))
            mixed = _attended(query, key, value, own)
            rows = self._leave(rows, layer.own_output(mixed), norm)
            if layer.order is not None:
                norm = next(norms)
                query, key = layer.order.places[:, None, :, :time].expand(-1, batch, -1, -1, -1)
                (value,) = heads(layer.order.value(self._enter(rows, norm)))
                mixed = _attended(query, key, value, placed)
                rows = self._leave(rows, layer.order.output(mixed), norm)
            if layer.asking is not None and layer.cross_output is not None and source is not None:
                norm = next(norms)
                (query,) = heads(layer.asking(self._enter(rows, norm)))
                mixed = _attended(query, source.key.transpose(1, 2), source.value.transpose(1, 2), across)
                rows = self._leave(rows, layer.cross_output(mixed), norm)
            norm = next(norms)
            rows = self._leave(rows, layer.outer(self._activated(layer.inner(self._enter(rows, norm)))), norm)
        found: Tensor = self.norm(rows)  # type: ignore[operator]  # a module
        return found.view(x.shape)


def unseen(keys: Sequences) -> Added:
    """What hides the padding of sentences, each of which has a token."""
    return Visible.between(keys, keys).ready().added


def _layers(stack: nn.Module) -> Iterable[EncoderLayer | DecoderLayer | PositionalDecoderLayer]:
    return (each for each in stack.layers if isinstance(each, EncoderLayer | DecoderLayer | PositionalDecoderLayer))  # type: ignore[union-attr]  # a ModuleList


def _outer(attention: MultiHeadAttention) -> Affine:
    return Affine.of(attention.output.weight, attention.output.bias)


def _attended(query: Tensor, key: Tensor, value: Tensor, added: Added) -> Float[Tensor, "rows dim"]:
    mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=added)
    return mixed.transpose(1, 2).flatten(0, 1).flatten(1)

"""Stacks of layers: the left and the right half of figure 1."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headway.nn.attention import KeyValues, MultiHeadAttention, Past, Visible
from headway.nn.feedforward import ConvolutionalFeedForward, FeedForward
from headway.nn.layers import DecoderLayer, EncoderLayer, LayerShape
from headway.nn.recomputing import recomputed
from headway.nn.residual import Norm

Weights = tuple[Tensor, ...]
"""One `[sentences, heads, query, key]` a layer; empty when they were not asked for."""


def stacked(layer: Callable[[LayerShape], nn.Module], layers: int, shape: LayerShape) -> nn.ModuleList:
    """Layers one upon the other; what post-norm sub-layers add is small at first, so that deep stacks train stably.

    As in DeepNet (Wang et al. 2022, section 4), but without its scaled residuals: values, outputs and feed-forward
    networks begin multiplied by (8 · layers)^-1/4. A layer that stands alone needs none of it.
    """
    found = nn.ModuleList(layer(shape) for _ in range(layers))
    if shape.norm == "post" and layers > 1:
        factor = (8 * layers) ** -0.25
        with torch.no_grad():
            for module in found.modules():
                if isinstance(module, MultiHeadAttention):
                    module.inputs.weight[2 * module.dim :] *= factor
                    module.output.weight *= factor
                elif isinstance(module, FeedForward | ConvolutionalFeedForward):
                    module.inner.weight *= factor
                    module.outer.weight *= factor
    return found


def final_norm(shape: LayerShape) -> nn.Module:
    """A pre-norm stack needs one more norm at its end; a post-norm stack ends in one."""
    return Norm(shape.dim) if shape.norm == "pre" else nn.Identity()


class Encoder(nn.Module):
    """Encoder layers one upon the other."""

    def __init__(self, layers: int, shape: LayerShape) -> None:
        super().__init__()
        self.layers = stacked(EncoderLayer, layers, shape)
        self.norm = final_norm(shape)

    def forward(
        self,
        x: Float[Tensor, "*batch time dim"],
        visible: Visible,
        positions: Int[Tensor, "*batch time"],
        *,
        need_weights: bool = False,
    ) -> tuple[Float[Tensor, "*batch time dim"], Weights]:
        """The states of the last layer, and every layer's weights if asked for."""
        collected = []
        for layer in self.layers:
            x, weights = recomputed(layer, x, visible, positions, need_weights=need_weights)
            collected.append(weights)
        return self.norm(x), tuple(collected) if need_weights else ()


class DecoderOutput(NamedTuple):
    """What a decoder gives: states, every layer's memory from now on, and weights if asked for."""

    states: Float[Tensor, "*batch time dim"]
    past: tuple[Past, ...]
    self_weights: Weights
    cross_weights: Weights


class Decoder(nn.Module):
    """Decoder layers one upon the other."""

    def __init__(self, layers: int, shape: LayerShape) -> None:
        super().__init__()
        self.layers = stacked(DecoderLayer, layers, shape)
        self.norm = final_norm(shape)

    def remember(self, states: Float[Tensor, "*batch key dim"]) -> tuple[KeyValues, ...]:
        """Every layer's keys and values of the source."""
        return tuple(layer.cross.remember(states) for layer in self.layers)  # type: ignore[union-attr,operator]  # ModuleList forgets the class

    def forward(
        self,
        x: Float[Tensor, "*batch time dim"],
        memory: tuple[KeyValues, ...],
        visible: tuple[Visible, Visible],
        positions: Int[Tensor, "*batch time"],
        past: tuple[Past, ...] = (),
        *,
        need_weights: bool = False,
    ) -> DecoderOutput:
        """The states of the last layer; `past` is what each layer remembers of earlier positions, if any."""
        outputs = []
        for index, layer in enumerate(self.layers):
            earlier = past[index] if past else None
            output = recomputed(layer, x, memory[index], visible, positions, earlier, need_weights=need_weights)
            x = output.states
            outputs.append(output)
        return DecoderOutput(
            self.norm(x),
            tuple(output.past for output in outputs if output.past is not None),
            tuple(output.self_weights for output in outputs) if need_weights else (),
            tuple(output.cross_weights for output in outputs) if need_weights else (),
        )

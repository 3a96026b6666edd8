"""The decoder of a model that writes all tokens at once: unmasked, with positional attention (Gu et al. 2018)."""

from jaxtyping import Float, Int
from torch import Tensor, nn

from headway.nn.attention import Attended, KeyValues, MultiHeadAttention, Visible
from headway.nn.feedforward import FeedForward
from headway.nn.layers import LayerShape
from headway.nn.recomputing import recomputed
from headway.nn.stacks import DecoderOutput, final_norm, stacked


class PositionalAttention(MultiHeadAttention):
    """Attention whose queries and keys are the positions, and whose values are the states (section 3.2, equation 5)."""

    def mix(
        self,
        x: Float[Tensor, "batch query dim"],
        order: Float[Tensor, "query dim"],
        visible: Visible,
        *,
        need_weights: bool = False,
    ) -> Attended:
        """Mix the states of every sentence by where they stand; `order` is what marks each position."""
        query, key = self._split(self.inputs(order, slice(2 * self.dim)), 2)
        (value,) = self._split(self.inputs(x, slice(2 * self.dim, None)), 1)
        query, key = (each.expand(len(x), -1, -1, -1) for each in (query, key))
        return self._attend(query, KeyValues(key, value), visible, need_weights, bias=False)


class PositionalDecoderLayer(nn.Module):
    """Unmasked self-attention, positional attention, attention to the source, then a feed-forward network."""

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        self.attention, self.attention_residual = shape.self_attention(), shape.residual()
        self.order = PositionalAttention(shape.dim, shape.heads, dropout=shape.attention_dropout)
        self.order_residual = shape.residual()
        self.cross, self.cross_residual = shape.cross_attention(), shape.residual()
        self.feedforward = FeedForward(
            shape.dim, shape.hidden, kind=shape.feedforward, dropout=shape.activation_dropout
        )
        self.feedforward_residual = shape.residual()

    def forward(
        self,
        x: Float[Tensor, "batch time dim"],
        memory: KeyValues,
        visible: tuple[Visible, Visible, Visible],
        positions: Int[Tensor, "batch time"],
        order: Float[Tensor, "time dim"],
        *,
        need_weights: bool = False,
    ) -> tuple[Float[Tensor, "batch time dim"], Attended, Attended]:
        """The next states, and what self-attention and attention to the source gave.

        `visible` is what positions see of the states, of the positions, and of the source.
        """
        own, _ = self.attention(self.attention_residual.enter(x), visible[0], positions, need_weights=need_weights)
        x, seen = self.attention_residual.leave_twice(x, own.output)
        placed = self.order.mix(self.order_residual.enter(seen), order, visible[1])
        x, seen = self.order_residual.leave_twice(x, placed.output)
        across = self.cross.cross(self.cross_residual.enter(seen), memory, visible[2], need_weights=need_weights)
        x, seen = self.cross_residual.leave_twice(x, across.output)
        y = self.feedforward(self.feedforward_residual.enter(seen), visible[0])
        return self.feedforward_residual.leave(x, y), own, across


class PositionalDecoder(nn.Module):
    """Such layers one upon the other."""

    def __init__(self, layers: int, shape: LayerShape) -> None:
        super().__init__()
        self.layers = stacked(PositionalDecoderLayer, layers, shape)
        self.norm = final_norm(shape)

    def remember(self, states: Float[Tensor, "batch key dim"]) -> tuple[KeyValues, ...]:
        """Every layer's keys and values of the source."""
        return tuple(layer.cross.remember(states) for layer in self.layers)  # type: ignore[union-attr,operator]  # ModuleList forgets the class

    def forward(
        self,
        x: Float[Tensor, "batch time dim"],
        memory: tuple[KeyValues, ...],
        visible: tuple[Visible, Visible, Visible],
        positions: Int[Tensor, "batch time"],
        order: Float[Tensor, "time dim"],
        *,
        need_weights: bool = False,
    ) -> DecoderOutput:
        """The states of the last layer, and every layer's weights if asked for."""
        own, across = [], []
        for layer, keys in zip(self.layers, memory, strict=True):
            x, *attended = recomputed(layer, x, keys, visible, positions, order, need_weights=need_weights)
            own.append(attended[0].weights)
            across.append(attended[1].weights)
        weights = (tuple(own), tuple(across)) if need_weights else ((), ())
        return DecoderOutput(self.norm(x), (), *weights)

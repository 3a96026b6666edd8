"""The two boxes of figure 1: an encoder layer and a decoder layer."""

from dataclasses import dataclass
from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor, nn

from headway.nn.attention import KeyValues, MultiHeadAttention, Past, Visible
from headway.nn.feedforward import ConvolutionalFeedForward, FeedForward, FeedForwardKind
from headway.nn.positions import PositionKind, attention_positions
from headway.nn.residual import NormPlace, Residual


@dataclass(frozen=True)
class LayerShape:
    """Everything two layers of one stack have in common."""

    dim: int
    heads: int
    hidden: int
    norm: NormPlace = "post"
    feedforward: FeedForwardKind = "relu"
    positions: PositionKind = "sinusoidal"
    width: int | None = None
    """Features of a head; dim / heads where it is not said."""
    dropout: float = 0.0
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0

    def self_attention(self) -> MultiHeadAttention:
        """Attention within a sequence, which may know of positions."""
        width = self.width or self.dim // self.heads
        positions = attention_positions(self.positions, heads=self.heads, width=width)
        return MultiHeadAttention(
            self.dim, self.heads, width=width, dropout=self.attention_dropout, positions=positions
        )

    def cross_attention(self) -> MultiHeadAttention:
        """Attention from one sequence to another."""
        return MultiHeadAttention(self.dim, self.heads, width=self.width, dropout=self.attention_dropout)

    def residual(self) -> Residual:
        """What stands around a sub-layer."""
        return Residual(self.dim, norm=self.norm, dropout=self.dropout)


class EncoderLayer(nn.Module):
    """Self-attention, then a feed-forward network."""

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        self.attention, self.attention_residual = shape.self_attention(), shape.residual()
        self.feedforward: nn.Module
        if shape.feedforward == "convolutional":
            self.feedforward = ConvolutionalFeedForward(shape.dim, shape.hidden, dropout=shape.activation_dropout)
        else:
            self.feedforward = FeedForward(
                shape.dim, shape.hidden, kind=shape.feedforward, dropout=shape.activation_dropout
            )
        self.feedforward_residual = shape.residual()

    def forward(
        self,
        x: Float[Tensor, "*batch time dim"],
        visible: Visible,
        positions: Int[Tensor, "*batch time"],
        *,
        need_weights: bool = False,
    ) -> tuple[Float[Tensor, "*batch time dim"], Float[Tensor, "sentences heads query key"] | None]:
        """The next states, and the attention weights if asked for."""
        attended, _ = self.attention(self.attention_residual.enter(x), visible, positions, need_weights=need_weights)
        x, seen = self.attention_residual.leave_twice(x, attended.output)
        y = self.feedforward(self.feedforward_residual.enter(seen), visible)
        return self.feedforward_residual.leave(x, y), attended.weights


class DecoderLayerOutput(NamedTuple):
    """What a decoder layer gives: states, the self-attention memory from now on, and weights if asked for."""

    states: Float[Tensor, "*batch time dim"]
    past: Past | None
    self_weights: Float[Tensor, "sentences heads query key"] | None
    cross_weights: Float[Tensor, "sentences heads query key"] | None


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the source, then a feed-forward network.

    Its feed-forward network is position-wise in every model, so that keys and values are all a step must remember.
    """

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        self.attention, self.attention_residual = shape.self_attention(), shape.residual()
        self.cross, self.cross_residual = shape.cross_attention(), shape.residual()
        kind: FeedForwardKind = "relu" if shape.feedforward == "convolutional" else shape.feedforward
        self.feedforward = FeedForward(shape.dim, shape.hidden, kind=kind, dropout=shape.activation_dropout)
        self.feedforward_residual = shape.residual()

    def forward(
        self,
        x: Float[Tensor, "*batch time dim"],
        memory: KeyValues,
        visible: tuple[Visible, Visible],
        positions: Int[Tensor, "*batch time"],
        past: Past | None = None,
        *,
        need_weights: bool = False,
    ) -> DecoderLayerOutput:
        """The next states; `visible` is what positions see of the target and of the source."""
        own, past = self.attention(
            self.attention_residual.enter(x), visible[0], positions, past, need_weights=need_weights
        )
        x, seen = self.attention_residual.leave_twice(x, own.output)
        across = self.cross.cross(self.cross_residual.enter(seen), memory, visible[1], need_weights=need_weights)
        x, seen = self.cross_residual.leave_twice(x, across.output)
        y = self.feedforward(self.feedforward_residual.enter(seen), visible[0])
        return DecoderLayerOutput(self.feedforward_residual.leave(x, y), past, own.weights, across.weights)

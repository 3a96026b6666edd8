"""A decoder that reads nothing but its own past: the right half of figure 1 without attention to a source."""

from jaxtyping import Float, Int
from torch import Tensor, nn

from headway.nn.attention import Past, Visible
from headway.nn.feedforward import FeedForward
from headway.nn.layers import DecoderLayerOutput, LayerShape
from headway.nn.recomputing import recomputed
from headway.nn.stacks import DecoderOutput, final_norm, stacked


class CausalLayer(nn.Module):
    """Masked self-attention, then a position-wise feed-forward network."""

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        self.attention, self.attention_residual = shape.self_attention(), shape.residual()
        self.feedforward = FeedForward(
            shape.dim, shape.hidden, kind=shape.feedforward, dropout=shape.activation_dropout
        )
        self.feedforward_residual = shape.residual()

    def forward(
        self,
        x: Float[Tensor, "*batch time dim"],
        visible: Visible,
        positions: Int[Tensor, "*batch time"],
        past: Past | None = None,
        *,
        need_weights: bool = False,
    ) -> DecoderLayerOutput:
        """The next states; `past` is what the layer remembers of earlier positions, if any."""
        own, past = self.attention(
            self.attention_residual.enter(x), visible, positions, past, need_weights=need_weights
        )
        x, seen = self.attention_residual.leave_twice(x, own.output)
        y = self.feedforward(self.feedforward_residual.enter(seen), visible)
        return DecoderLayerOutput(self.feedforward_residual.leave(x, y), past, own.weights, None)


class CausalDecoder(nn.Module):
    """Such layers one upon the other."""

    def __init__(self, layers: int, shape: LayerShape) -> None:
        super().__init__()
        self.layers = stacked(CausalLayer, layers, shape)
        self.norm = final_norm(shape)

    def forward(
        self,
        x: Float[Tensor, "*batch time dim"],
        visible: Visible,
        positions: Int[Tensor, "*batch time"],
        past: tuple[Past, ...] = (),
        *,
        need_weights: bool = False,
    ) -> DecoderOutput:
        """The states of the last layer; `past` is what each layer remembers of earlier positions, if any."""
        outputs = []
        for index, layer in enumerate(self.layers):
            output = recomputed(layer, x, visible, positions, past[index] if past else None, need_weights=need_weights)
            x = output.states
            outputs.append(output)
        return DecoderOutput(
            self.norm(x),
            tuple(output.past for output in outputs if output.past is not None),
            tuple(output.self_weights for output in outputs) if need_weights else (),
            (),
        )

"""The conditional masked language model (Ghazvininejad et al. 2019), which writes by mask-predict."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor, nn

from headway.models.layered import StackedConfig
from headway.models.model import Decoded, Encoded, NonAutoregressive
from headway.nn.attention import KeyValues, Visible
from headway.nn.dropout import Dropout
from headway.nn.linear import Linear
from headway.nn.positions import SinusoidalPositions
from headway.nn.stacks import Decoder, Encoder
from headway.nn.straight import Straight, unseen
from headway.sequences import Sequences


class MaskPredictConfig(StackedConfig):
    """The shape of a conditional masked language model."""

    architecture: Literal["mask-predict"] = "mask-predict"
    """The kind of model."""
    hidden: int = Field(512, gt=0, le=65536)
    """Features inside the feed-forward network."""
    feedforward: Literal["relu", "gelu", "gated"] = "relu"
    """relu, gelu, or gated (SwiGLU)."""
    length_reach: int = Field(64, gt=0, le=4096)
    """How many tokens longer or shorter than its source a target may be; lengths in between are told apart."""


@dataclass(frozen=True)
class Measured(Encoded):
    """A source as the encoder understood it, and what it says of the target's length."""

    length: Float[Tensor, "batch dim"] | None = None


class MaskPredict(NonAutoregressive):
    """An encoder that also guesses the length, and a decoder that guesses hidden tokens from all the others."""

    config: MaskPredictConfig
    straight: tuple[Straight, Straight] | None = None
    """Encoder and decoder in straight lines, where the model was made ready to write."""

    def __init__(self, config: MaskPredictConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.embed(config, source_vocabulary, target_vocabulary)
        self.positions = SinusoidalPositions(config.dim, config.longest + 1)
        self.dropout = Dropout(config.dropout)
        self.encoder = Encoder(config.encoder_layers, config.shape)
        self.decoder = Decoder(config.decoder_layers, config.shape)
        self.signs = nn.Parameter(torch.empty(2, config.dim))
        """The vectors of two symbols that no vocabulary holds: a hidden token, and the length."""
        self.length = Linear(config.dim, 2 * config.length_reach + 1)
        nn.init.normal_(self.signs, std=config.dim**-0.5)
        nn.init.normal_(self.length.weight, std=0.02)
        with torch.no_grad():  # targets are about as long as their sources, and an untrained model may know
            offsets = torch.arange(-config.length_reach, config.length_reach + 1.0)
            self.length.bias.copy_(-0.5 * offsets.abs())

    def blocks(self) -> Iterator[nn.Module]:
        """All layers."""
        yield from (*self.encoder.layers, *self.decoder.layers)

    def straighten(self) -> None:
        """Let sentences go without the modules."""
        self.straight = Straight(self.encoder), Straight(self.decoder)

    def encode(self, source: Sequences, *, need_weights: bool = False) -> Measured:
        """Understand the source, which must be padded, led by a symbol whose state stands for the length.

        The weights have a row and a column for that symbol, before all others.
        """
        tokens = self.source_embedding(source.tokens)
        sign = (self.signs[1] * self.source_embedding.scale).to(tokens.dtype).expand(len(tokens), 1, -1)
        places = torch.arange(source.longest + 1, device=tokens.device).expand(len(tokens), -1)
        x = self.dropout(self.positions.embed(torch.cat((sign, tokens), 1), places))
        seen = Visible(keys=None if source.full else torch.cat((source.present[:, :1], source.present), 1))
        if self.straight is not None and not need_weights:
            states, weights = self.straight[0](x, (seen.ready().added, None, None)), ()
        else:
            states, weights = self.encoder(x, seen, places, need_weights=need_weights)
        return Measured(source, states[:, 1:], weights, states[:, 0])

    def lengths(self, encoded: Measured) -> Float[Tensor, "batch lengths"]:
        """The log-probability of every length: from `length_reach` below that of the source to as much above it."""
        assert encoded.length is not None  # as `encode` gives it
        return self.length(encoded.length).float().log_softmax(-1)

    def remember(self, encoded: Encoded) -> tuple[KeyValues, ...]:
        """Every decoder layer's keys and values of the source, which are the same in every round."""
        stack = self.decoder if self.straight is None else self.straight[1]
        return stack.remember(encoded.states)

    def decode(
        self,
        target: Sequences,
        hidden: Bool[Tensor, "batch time"],
        encoded: Encoded,
        memory: tuple[KeyValues, ...] | None = None,
        *,
        need_weights: bool = False,
    ) -> Decoded:
        """The states from which the hidden tokens are predicted, all other tokens given."""
        tokens = self.target_embedding(target.tokens)
        sign = (self.signs[0] * self.target_embedding.scale).to(tokens.dtype)
        x = self.dropout(self.positions.embed(torch.where(hidden[..., None], sign, tokens), target.positions))
        memory = self.remember(encoded) if memory is None else memory
        if self.straight is not None and not need_weights:
            return Decoded(self.straight[1](x, (unseen(target), None, unseen(encoded.source)), memory))
        output = self.decoder(
            x,
            memory,
            (Visible.between(target, target), Visible.between(target, encoded.source)),
            target.positions,
            need_weights=need_weights,
        )
        return Decoded(output.states, output.self_weights, output.cross_weights)

    def forward(self, source: Sequences, target: Sequences) -> Float[Tensor, "batch time dim"]:
        """The states of a target of known length, every token of it hidden."""
        return self.decode(target, torch.ones_like(target.present), self.encode(source)).states

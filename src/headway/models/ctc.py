"""Connectionist temporal classification (Graves et al. 2006): every slot writes a token or nothing, all at once."""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Tensor, nn

from headway.models.layered import layer_shape
from headway.models.model import Encoded, ModelConfig, NonAutoregressive
from headway.nn.dropout import Dropout
from headway.nn.embedding import Projection, embedded
from headway.nn.feedforward import FeedForwardKind
from headway.nn.layers import LayerShape
from headway.nn.linear import Linear
from headway.nn.positions import BIASED, PositionKind, Positions, embedding_positions
from headway.nn.readers import ReaderKind, reader
from headway.nn.recurrent import GATES, CellKind
from headway.nn.residual import NormPlace
from headway.sequences import Sequences


class CtcConfig(ModelConfig):
    """The shape of a model trained by connectionist temporal classification."""

    architecture: Literal["ctc"] = "ctc"
    """The kind of model."""
    tie: Literal["three-way", "two-way"] = "three-way"
    """Which matrices are one: source and output; or none. No target token is ever read."""
    encoder: ReaderKind = "transformer"
    """What reads the source, and then the slots: transformer, recurrent (both ways) or convolutional."""
    upsample: int = Field(3, ge=1, le=16)
    """Slots that every source token makes; an output never has more tokens than there are slots."""
    encoder_layers: int = Field(3, gt=0, le=256)
    """Layers that read the source."""
    decoder_layers: int = Field(3, ge=0, le=256)
    """Layers that read the slots; with none, a slot sees only what its source token saw."""
    heads: int = Field(4, gt=0, le=256)
    """Attention heads of a transformer."""
    hidden: int = Field(1024, gt=0, le=65536)
    """Features inside the feed-forward network of a transformer."""
    norm: NormPlace = "post"
    """Where LayerNorm stands in a transformer: post as in the paper, pre for deep models."""
    feedforward: FeedForwardKind = "relu"
    """relu, gelu, gated (SwiGLU) or convolutional, in a transformer."""
    positions: PositionKind = "sinusoidal"
    """sinusoidal, learned, or in a transformer also rotary, relative (Shaw) or alibi; a recurrent one needs none."""
    cell: CellKind = "lstm"
    """What a recurrent one is made of: lstm, gru or rnn."""
    kernel: int = Field(3, ge=3, le=63)
    """Positions a convolution sees; an odd number."""
    attention_dropout: float = Field(0.0, ge=0.0, lt=1.0)
    """Share of attention weights set to zero in training."""
    activation_dropout: float = Field(0.0, ge=0.0, lt=1.0)
    """Share of feed-forward activations set to zero in training."""

    @model_validator(mode="after")
    def _sizes_fit(self) -> "CtcConfig":
        attentive, inside = self.encoder == "transformer", ("rotary", *BIASED)
        if attentive and self.dim % self.heads:
            raise ValueError(f"dim {self.dim} is not divisible by heads {self.heads}")
        if self.dim % 2 or (attentive and self.positions == "rotary" and self.dim // self.heads % 2):
            raise ValueError(f"dim {self.dim} leaves an odd number of features; use an even one")
        if self.longest * self.upsample * self.dim > 1 << 28:
            told = f"a position table of {self.longest} x {self.upsample} x {self.dim}"
            raise ValueError(f"{told} is over 1 GiB; lower longest")
        if not attentive and self.positions in inside:
            raise ValueError(f"positions {self.positions} stand inside of attention; use sinusoidal or learned")
        if self.kernel % 2 == 0:
            raise ValueError(f"kernel {self.kernel} has no middle; use an odd one")
        return self

    @property
    def packable(self) -> bool:
        """Only attention without positions in its scores reads sentences that lie one after the other."""
        return self.encoder == "transformer" and self.positions not in BIASED

    @property
    def shape_in_words(self) -> str:
        """The layers before and after the slots are made, the features of a state, and the slots of a token."""
        layers = f"{self.encoder_layers}+{self.decoder_layers} {self.encoder} layers"
        return f"{layers} of {self.dim}, {self.upsample} slots a token"

    def fewest_parameters(self, vocabulary: int) -> int:
        """What the matrices of such a model hold at least: known before any memory is taken for them."""
        layer = {
            "transformer": 4 * self.dim + 2 * self.hidden,
            "recurrent": 3 * GATES[self.cell] * self.dim // 2,
            "convolutional": 2 * self.kernel * self.dim,
        }[self.encoder]
        layers = (self.encoder_layers + self.decoder_layers) * layer
        return (layers + self.upsample * self.dim + vocabulary) * self.dim

    def lacking(self, source: Sequence[int], target: Sequence[int]) -> int:
        """How many slots are too few to write a target: one a token, and a blank between two that are the same."""
        needed = len(target) + sum(left == right for left, right in pairwise(target))
        return max(0, needed - self.upsample * (len(source) + 1))

    @property
    def shape(self) -> LayerShape:
        """What all layers have in common."""
        return layer_shape(self)


class SlotProjection(Projection):
    """From slots to one logit a token and, last, that of the blank, which stands for no token.

    `weight` has the rows of the tokens alone, so that they may be an embedding's; the blank's row is its own.
    """

    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__(weight)
        self.blank = nn.Parameter(torch.zeros(weight.shape[1]))
        # A fresh model leaves about half of its slots blank: otherwise it first has to unlearn writing everywhere. The
        # logits of its tokens have a variance of 1, and the mean of their exponentials is then e to the half of it.
        self.blank_bias = nn.Parameter(torch.full((1,), math.log(max(len(weight), 1)) + 0.5))

    def forward(self, states: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch labels"]:
        """The logits of every slot."""
        blank = states @ self.blank[:, None] + self.blank_bias
        return torch.cat((super().forward(states), blank), -1)

    def wide(self, states: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch labels"]:
        """The logits in single precision, whatever the precision of the states."""
        blank = states.float() @ self.blank.float()[:, None] + self.blank_bias.float()
        return torch.cat((super().wide(states), blank), -1)


class Ctc(NonAutoregressive):
    """An encoder whose states each make some slots (Libovický and Helcl 2018), and what reads these."""

    config: CtcConfig
    output: SlotProjection

    def __init__(self, config: CtcConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.embed(config, source_vocabulary, target_vocabulary)
        self.output = SlotProjection(self.output.weight)
        self.dropout = Dropout(config.dropout)
        kind: PositionKind | None = None if config.encoder == "recurrent" else config.positions
        self.positions = _positions(kind, config.dim, config.longest)
        self.slot_positions = _positions(
            kind if config.decoder_layers else None, config.dim, config.longest * config.upsample
        )
        layers = partial(reader, config.encoder, shape=config.shape, cell=config.cell, kernel=config.kernel)
        self.encoder = layers(config.encoder_layers)
        self.upsample = Linear(config.dim, config.upsample * config.dim)
        nn.init.normal_(self.upsample.weight, std=config.dim**-0.5)
        nn.init.zeros_(self.upsample.bias)
        self.decoder = layers(config.decoder_layers)

    @property
    def blank(self) -> int:
        """The label of a slot that writes nothing: one more than there are tokens."""
        return len(self.output.weight)

    def blocks(self) -> Iterator[nn.Module]:
        """All layers."""
        yield from (*self.encoder.blocks(), *self.decoder.blocks())

    def encode(self, source: Sequences, *, need_weights: bool = False) -> Encoded:
        """Understand the source; with `need_weights` also return every layer's attention."""
        wide = self.config.norm == "pre"
        x = embedded(self.source_embedding, self.positions, self.dropout, source.tokens, source.positions, wide=wide)
        states, weights = self.encoder(x, source, need_weights=need_weights)
        return Encoded(source, states, weights)

    def slots(self, source: Sequences) -> Encoded:
        """The states of all slots; the tokens of their `source` say which source token made each."""
        encoded, times = self.encode(source), self.config.upsample
        room = self.upsample(encoded.states)
        states = room.view(*room.shape[:-2], room.shape[-2] * times, self.config.dim)
        made = widened(source, times)
        states = self.dropout(self.slot_positions.embed(states, made.positions))
        return Encoded(made, self.decoder(states, made)[0])

    def forward(self, source: Sequences, target: Sequences) -> Float[Tensor, "*batch time dim"]:
        """The states of all slots; no target is needed for them."""
        del target
        return self.slots(source).states


def widened(source: Sequences, times: int) -> Sequences:
    """The sentences with every token `times` over."""
    tokens: Int[Tensor, "*batch time"] = source.tokens.repeat_interleave(times, -1)
    return Sequences(tokens, source.lengths * times, source.longest * times, source.full)


def _positions(kind: PositionKind | None, dim: int, longest: int) -> Positions:
    return Positions() if kind is None else embedding_positions(kind, dim=dim, longest=longest)

"""The Transformer (Vaswani et al. 2017): encoder, decoder, and decoding one token at a time."""

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Tensor, nn

from headway.config import Settings
from headway.nn.attention import (
    FixedLineage,
    FixedPast,
    GrowingLineage,
    GrowingPast,
    KeyValues,
    Lineage,
    Past,
    Visible,
)
from headway.nn.dropout import Dropout
from headway.nn.embedding import Embedding, Projection, embedded
from headway.nn.feedforward import FeedForwardKind
from headway.nn.layers import LayerShape
from headway.nn.lean import LeanDecoder
from headway.nn.positions import PositionKind, embedding_positions
from headway.nn.residual import NormPlace
from headway.nn.stacks import Decoder, Encoder, Weights
from headway.sequences import Sequences

Preset = Literal["tiny", "small", "base", "big"]

PRESETS: dict[Preset, dict[str, Any]] = {
    "tiny": {"dim": 128, "heads": 4, "hidden": 256, "encoder_layers": 4, "decoder_layers": 4, "dropout": 0.3},
    "small": {"dim": 256, "heads": 4, "hidden": 1024, "encoder_layers": 3, "decoder_layers": 3, "dropout": 0.2},
    "base": {"dim": 512, "heads": 8, "hidden": 2048, "encoder_layers": 6, "decoder_layers": 6, "dropout": 0.1},
    "big": {"dim": 1024, "heads": 16, "hidden": 4096, "encoder_layers": 6, "decoder_layers": 6, "dropout": 0.3},
}
"""Sizes by name; `base` and `big` are the paper's (table 3), `tiny` is Wu et al.'s (2021) for 30,000 pairs."""


class TransformerConfig(Settings):
    """The shape of a Transformer."""

    architecture: Literal["transformer"] = "transformer"
    """The kind of model."""
    preset: Preset | None = None
    """Sizes by name: tiny, small, base or big; what is set beside it wins."""
    dim: int = Field(256, gt=0, le=16384)
    """Features of a token's state; a multiple of heads."""
    heads: int = Field(4, gt=0, le=256)
    """Attention heads."""
    hidden: int = Field(1024, gt=0, le=65536)
    """Features inside the feed-forward network."""
    encoder_layers: int = Field(3, gt=0, le=256)
    """Layers of the encoder; a deep encoder with a shallow decoder translates fast."""
    decoder_layers: int = Field(3, gt=0, le=256)
    """Layers of the decoder."""
    norm: NormPlace = "post"
    """Where LayerNorm stands: post as in the paper, pre for deep models."""
    feedforward: FeedForwardKind = "relu"
    """relu, gelu, gated (SwiGLU), or convolutional (in the encoder; the decoder then has relu)."""
    positions: PositionKind = "sinusoidal"
    """sinusoidal, learned, rotary, relative (Shaw) or alibi."""
    longest: int = Field(512, gt=1, le=65536)
    """The longest sentence in tokens, end symbol included; longer ones are left out of training."""
    tie: Literal["three-way", "two-way", "none"] = "three-way"
    """Which matrices are one: source, target and output; target and output; or none."""
    dropout: float = Field(0.1, ge=0.0, lt=1.0)
    """Share of embedding and sub-layer outputs set to zero in training."""
    attention_dropout: float = Field(0.0, ge=0.0, lt=1.0)
    """Share of attention weights set to zero in training."""
    activation_dropout: float = Field(0.0, ge=0.0, lt=1.0)
    """Share of feed-forward activations set to zero in training."""

    @model_validator(mode="before")
    @classmethod
    def _fill_from_preset(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("preset") in list(PRESETS):  # a list: the value may be unhashable
            return {**PRESETS[data["preset"]], **data}
        return data

    @model_validator(mode="after")
    def _sizes_fit(self) -> "TransformerConfig":
        if self.dim % self.heads:
            raise ValueError(f"dim {self.dim} is not divisible by heads {self.heads}")
        if self.dim % 2 or (self.positions == "rotary" and self.dim // self.heads % 2):
            raise ValueError(f"dim {self.dim} by {self.heads} heads leaves an odd number of features; use an even one")
        if self.longest * self.dim > 1 << 28:
            raise ValueError(f"a position table of {self.longest} x {self.dim} is over 1 GiB; lower longest")
        return self

    def fewest_parameters(self, vocabulary: int) -> int:
        """What the matrices of such a model hold at least: known before any memory is taken for them."""
        encoder = self.encoder_layers * (4 * self.dim + 2 * self.hidden)
        decoder = self.decoder_layers * (8 * self.dim + 2 * self.hidden)
        learned = self.longest if self.positions == "learned" else 0
        return (encoder + decoder + vocabulary + learned) * self.dim

    @property
    def shape(self) -> LayerShape:
        """What all layers have in common."""
        return LayerShape(
            dim=self.dim,
            heads=self.heads,
            hidden=self.hidden,
            norm=self.norm,
            feedforward=self.feedforward,
            positions=self.positions,
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
            activation_dropout=self.activation_dropout,
        )


@dataclass(frozen=True)
class Encoded:
    """A source as the encoder understood it."""

    source: Sequences
    states: Float[Tensor, "*batch time dim"]
    weights: Weights = ()


@dataclass(frozen=True)
class DecoderState:
    """All that decoding must remember between two tokens; a value, so that one model serves many at once."""

    memory: tuple[KeyValues, ...]
    visible: Visible
    past: tuple[Past, ...]
    lineage: Lineage
    length: int | Int[Tensor, ""] = 0
    """Tokens written so far, the start symbol among them."""
    coverage: Float[Tensor, "batch query key"] | None = None
    """How much of every source token each row has read so far, where that was asked for."""


@dataclass(frozen=True)
class Decoded:
    """A target as the decoder understood it: every position has seen the source and what stands left of it."""

    states: Float[Tensor, "*batch time dim"]
    self_weights: Weights = ()
    cross_weights: Weights = ()


class Transformer(nn.Module):
    """Figure 1: token sequences in, states of the target out; `output` turns states into logits."""

    capturable = True
    """A step does the same work whatever the tokens are, and asks the host nothing."""
    lean: LeanDecoder | None = None
    """The decoder in straight lines, where the model was made ready to decode on a CPU."""

    def __init__(self, config: TransformerConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.target_embedding = Embedding(target_vocabulary, config.dim)
        shared = config.tie == "three-way"
        if shared and source_vocabulary != target_vocabulary:
            raise ValueError("three-way tying needs one vocabulary for both sides")
        self.source_embedding = self.target_embedding if shared else Embedding(source_vocabulary, config.dim)
        untied = config.tie == "none"
        self.output = Projection(
            Embedding(target_vocabulary, config.dim).weight if untied else self.target_embedding.weight
        )
        self.positions = embedding_positions(config.positions, dim=config.dim, longest=config.longest)
        self.dropout = Dropout(config.dropout)
        self.encoder = Encoder(config.encoder_layers, config.shape)
        self.decoder = Decoder(config.decoder_layers, config.shape)

    def forward(self, source: Sequences, target: Sequences) -> Float[Tensor, "*batch time dim"]:
        """The state from which each next target token is predicted, every earlier one given (teacher forcing)."""
        return self.decode(target, self.encode(source)).states

    def encode(self, source: Sequences, *, need_weights: bool = False) -> Encoded:
        """Understand the source; with `need_weights` also return every layer's attention."""
        positions = source.positions
        x = self._embed(self.source_embedding, source.tokens, positions)
        states, weights = self.encoder(x, Visible.between(source, source), positions, need_weights=need_weights)
        return Encoded(source, states, weights)

    def decode(self, target: Sequences, encoded: Encoded, *, need_weights: bool = False) -> Decoded:
        """Understand whole targets at once."""
        positions = target.positions
        x = self._embed(self.target_embedding, target.tokens, positions)
        visible = Visible.between(target, target, causal=True), Visible.between(target, encoded.source)
        memory = self.decoder.remember(encoded.states)
        output = self.decoder(x, memory, visible, positions, need_weights=need_weights)
        return Decoded(output.states, output.self_weights, output.cross_weights)

    def start(self, encoded: Encoded, *, coverage: bool = False) -> DecoderState:
        """The state before the first target token; the source must be padded."""
        source = encoded.source
        return DecoderState(
            self.decoder.remember(encoded.states),
            Visible.between(source, source).ready(),
            tuple(GrowingPast() for _ in self.decoder.layers),
            GrowingLineage(source.tokens.new_zeros(0)),
            coverage=encoded.states.new_zeros(len(source.tokens), 1, source.tokens.shape[1]) if coverage else None,
        )

    def fixed(self, encoded: Encoded, *, rows: int, longest: int) -> DecoderState:
        """The same with `rows` rows a sentence and room for `longest` tokens each, to be stepped in place."""
        states, heads = encoded.states, self.config.heads
        sentences, entries, width = len(states), rows * longest, self.config.dim // heads
        slots = torch.arange(rows, device=states.device)
        size = sentences, entries, heads, width
        past = tuple(FixedPast(states.new_zeros(size), states.new_zeros(size), slots) for _ in self.decoder.layers)
        added = states.new_full((sentences, 1, rows, entries), -torch.inf)
        lineage = FixedLineage(torch.arange(entries, device=states.device) // rows, added, slots)
        visible = Visible(encoded.source.present).ready()
        return DecoderState(self.decoder.remember(states), visible, past, lineage, slots.new_zeros(()))

    def advance(
        self, tokens: Int[Tensor, "batch query"], parents: Int[Tensor, "batch query"] | None, state: DecoderState
    ) -> tuple[Float[Tensor, "batch query dim"], DecoderState]:
        """The states from which the tokens after `tokens` are predicted, and the state that includes them."""
        device = self.output.weight.device
        tokens, parents = tokens.to(device), None if parents is None else parents.to(device)
        lineage = state.lineage.grown(parents, tokens.shape[1])
        positions = torch.zeros_like(tokens) + state.length
        x = self._embed(self.target_embedding, tokens, positions)
        if self.lean is not None and state.coverage is None:
            added = lineage.added, state.visible.added
            states, past = self.lean(x, state.memory, added, state.past)
            return states, replace(state, past=past, lineage=lineage, length=state.length + 1)
        own = Visible(added=lineage.added, distance=(lineage.positions - state.length)[None])
        weigh = state.coverage is not None
        output = self.decoder(x, state.memory, (own, state.visible), positions, state.past, need_weights=weigh)
        coverage = state.coverage
        if coverage is not None:
            if parents is not None:
                coverage = coverage.gather(1, parents[:, :, None].expand(-1, -1, coverage.shape[2]))
            coverage = coverage + output.cross_weights[-1].mean(1)
        after = replace(state, past=output.past, lineage=lineage, length=state.length + 1, coverage=coverage)
        return output.states, after

    def step(
        self, tokens: Int[Tensor, "batch query"], parents: Int[Tensor, "batch query"] | None, state: DecoderState
    ) -> tuple[Float[Tensor, "batch query vocabulary"], DecoderState]:
        """Log-probabilities of the token after `tokens`, and the state with them.

        Row q of a sentence continues row `parents[q]` of the step before, or with None its own. Tokens and parents may
        be on the host.
        """
        states, after = self.advance(tokens, parents, state)
        return self.output.wide(states).log_softmax(-1), after

    def unread(self, state: DecoderState) -> Float[Tensor, "batch query"]:
        """How little of the source the rows have read, where `start` was asked to keep account of it."""
        assert state.coverage is not None
        read = state.coverage.clamp(1e-9, 1.0).log()
        return read.sum(-1) if state.visible.added is None else (read * (state.visible.added[:, 0] == 0)).sum(-1)

    def keep(self, state: DecoderState, sentences: Int[Tensor, " sentences"]) -> DecoderState:
        """The state of the chosen sentences, in that order; `sentences` may be on the host."""
        sentences = sentences.to(self.output.weight.device)
        return replace(
            state,
            memory=tuple(each.keep(sentences) for each in state.memory),
            past=tuple(each.keep(sentences) for each in state.past),
            lineage=state.lineage.keep(sentences),
            visible=state.visible.keep(sentences),
            coverage=None if state.coverage is None else state.coverage.index_select(0, sentences),
        )

    def _embed(
        self, embedding: Embedding, tokens: Int[Tensor, "*batch time"], positions: Int[Tensor, "*batch time"]
    ) -> Float[Tensor, "*batch time dim"]:
        wide = self.config.norm == "pre"  # what is added to from layer to layer is rounded but once
        return embedded(embedding, self.positions, self.dropout, tokens, positions, wide=wide)

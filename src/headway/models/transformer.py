"""The Transformer (Vaswani et al. 2017): encoder, decoder, and decoding one token at a time."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from headway.models.layered import StackedConfig
from headway.models.model import Autoregressive, Decoded, Encoded
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
from headway.nn.embedding import Embedding, embedded
from headway.nn.lean import LeanDecoder
from headway.nn.positions import BIASED, PositionKind, embedding_positions
from headway.nn.rows import followed, left_unread
from headway.nn.stacks import Decoder, Encoder
from headway.sequences import Sequences


class TransformerConfig(StackedConfig):
    """The shape of a Transformer."""

    architecture: Literal["transformer"] = "transformer"
    """The kind of model."""
    positions: PositionKind = "sinusoidal"
    """sinusoidal, learned, rotary, relative (Shaw) or alibi."""
    head_dim: int | None = Field(None, ge=2, le=1024)
    """Features of each head's queries, keys and values; dim / heads where unset."""
    window: int | None = Field(None, ge=1, le=65536)
    """Positions that each sees of its own sequence: in the encoder half of them on either side and itself, in the
    decoder the last of them, itself included; unset: all."""

    @property
    def given_width(self) -> int | None:
        """The setting."""
        return self.head_dim

    @property
    def reads_all(self) -> bool:  # type: ignore[override]  # of no other model does it hang on a setting
        """A window hides what is far."""
        return self.window is None

    @property
    def packable(self) -> bool:
        """Positions that are added to the scores of attention are known to no kernel for packed batches."""
        return self.positions not in BIASED


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


class Transformer(Autoregressive[Encoded, DecoderState]):
    """Figure 1: token sequences in, states of the target out; `output` turns states into logits."""

    config: TransformerConfig
    capturable = True
    lean: LeanDecoder | None = None
    """The decoder in straight lines, where the model was made ready to decode on a CPU."""

    def __init__(self, config: TransformerConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.embed(config, source_vocabulary, target_vocabulary)
        self.positions = embedding_positions(config.positions, dim=config.dim, longest=config.longest)
        self.dropout = Dropout(config.dropout)
        self.encoder = Encoder(config.encoder_layers, config.shape)
        self.decoder = Decoder(config.decoder_layers, config.shape)

    def blocks(self) -> Iterator[nn.Module]:
        """All layers."""
        yield from (*self.encoder.layers, *self.decoder.layers)

    def straighten(self) -> None:
        """Let a step go without the modules, where it can."""
        self.lean = LeanDecoder(self.decoder) if LeanDecoder.serves(self.decoder) else None

    def encode(self, source: Sequences, *, need_weights: bool = False) -> Encoded:
        """Understand the source; with `need_weights` also return every layer's attention."""
        positions = source.positions
        x = self._embed(self.source_embedding, source.tokens, positions)
        sides = None if self.config.window is None else self.config.window // 2
        visible = Visible.between(source, source, window=sides)
        states, weights = self.encoder(x, visible, positions, need_weights=need_weights)
        return Encoded(source, states, weights)

    def decode(self, target: Sequences, encoded: Encoded, *, need_weights: bool = False) -> Decoded:
        """Understand whole targets at once."""
        positions = target.positions
        x = self._embed(self.target_embedding, target.tokens, positions)
        back = None if self.config.window is None else self.config.window - 1
        own = Visible.between(target, target, causal=True, window=back)
        visible = own, Visible.between(target, encoded.source)
        memory = self.decoder.remember(encoded.states)
        output = self.decoder(x, memory, visible, positions, need_weights=need_weights)
        return Decoded(output.states, output.self_weights, output.cross_weights)

    def start(self, encoded: Encoded, *, coverage: bool = False) -> DecoderState:
        """The state before the first target token; the source must be padded."""
        source, states = encoded.source, encoded.states
        return DecoderState(
            self.decoder.remember(states),
            Visible.between(source, source).ready(),
            tuple(GrowingPast(window=self.config.window) for _ in self.decoder.layers),
            GrowingLineage(source.tokens.new_zeros(0), window=self.config.window),
            coverage=torch.zeros(len(source.tokens), 1, source.longest, device=states.device) if coverage else None,
        )

    def fixed(self, encoded: Encoded, *, rows: int, longest: int) -> DecoderState:
        """The same with `rows` rows a sentence and room for `longest` tokens each, to be stepped in place."""
        states, sentences, entries = encoded.states, len(encoded.states), rows * longest
        slots = torch.arange(rows, device=states.device)
        size = sentences, entries, self.config.heads, self.config.width
        past = tuple(FixedPast(states.new_zeros(size), states.new_zeros(size), slots) for _ in self.decoder.layers)
        added = states.new_full((sentences, 1, rows, entries), -torch.inf)
        positions = torch.arange(entries, device=states.device) // rows
        lineage = FixedLineage(positions, added, slots, self.config.window)
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
            states, past = self.lean(x, state.memory, added, state.past, positions)
            return states, replace(state, past=past, lineage=lineage, length=state.length + 1)
        own = Visible(added=lineage.added, distance=(lineage.positions - state.length)[None])
        weigh = state.coverage is not None
        output = self.decoder(x, state.memory, (own, state.visible), positions, state.past, need_weights=weigh)
        coverage = state.coverage
        if coverage is not None:
            coverage = followed(coverage, parents, tokens.shape[1]) + output.cross_weights[-1].mean(1)
        after = replace(state, past=output.past, lineage=lineage, length=state.length + 1, coverage=coverage)
        return output.states, after

    def unread(self, state: DecoderState) -> Float[Tensor, "batch query"]:
        """How little of the source the rows have read, where `start` was asked to keep account of it."""
        assert state.coverage is not None
        added = state.visible.added
        return left_unread(state.coverage, None if added is None else added[:, 0] != 0)

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

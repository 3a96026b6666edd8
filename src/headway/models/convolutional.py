"""Convolutional sequence to sequence learning (Gehring et al. 2017): gated convolutions, each layer with attention."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from pydantic import Field, model_validator
from torch import Tensor, nn

from headway.models.model import Autoregressive, Decoded, Encoded, ModelConfig
from headway.nn.attention import KeyValues, Visible, attend
from headway.nn.convolution import Convolution, shown
from headway.nn.dropout import Dropout
from headway.nn.embedding import Embedding
from headway.nn.linear import Linear
from headway.nn.positions import LearnedPositions, Positions, embedding_positions
from headway.nn.recomputing import recomputed
from headway.nn.rows import followed, left_unread
from headway.sequences import Sequences

HALF = math.sqrt(0.5)
"""What the sum of two states is multiplied by, so that its variance is theirs (section 3.4)."""
EMBEDDED = 0.1
"""The standard deviation of embedded tokens and of positions at the beginning (section 3.5).

Dot products are not divided by the root of their width, so that attention begins even only among small states.
"""


class ConvolutionalConfig(ModelConfig):
    """The shape of a convolutional model."""

    architecture: Literal["convolutional"] = "convolutional"
    """The kind of model."""
    kernel: int = Field(3, ge=3, le=63)
    """Positions a convolution sees; an odd number."""
    encoder_layers: int = Field(4, gt=0, le=256)
    """Layers of the encoder; each widens what a state sees by kernel - 1 tokens."""
    decoder_layers: int = Field(3, gt=0, le=256)
    """Layers of the decoder, every one with attention to the source."""
    positions: Literal["learned", "sinusoidal"] = "learned"
    """learned as in the paper, or sinusoidal."""

    reads_all = False

    @model_validator(mode="after")
    def _sizes_fit(self) -> "ConvolutionalConfig":
        if self.kernel % 2 == 0:
            raise ValueError(f"kernel {self.kernel} has no middle; use an odd one")
        if self.dim % 2:
            raise ValueError(f"dim {self.dim} is odd; use an even one")
        if self.longest * self.dim > 1 << 28:
            raise ValueError(f"a position table of {self.longest} x {self.dim} is over 1 GiB; lower longest")
        return self

    @property
    def attending(self) -> int:
        """Every decoder layer looks at the source."""
        return self.decoder_layers

    @property
    def shape_in_words(self) -> str:
        """Layers of encoder and decoder, the features of a state, and how many positions a convolution sees."""
        return f"{self.encoder_layers}+{self.decoder_layers} layers of {self.dim}, kernel {self.kernel}"

    def fewest_parameters(self, vocabulary: int) -> int:
        """What the matrices of such a model hold at least: known before any memory is taken for them."""
        convolutions = 2 * self.kernel * self.dim * (self.encoder_layers + self.decoder_layers)
        learned = 2 * self.longest if self.positions == "learned" else 0
        return (convolutions + self.decoder_layers * self.dim + vocabulary + learned) * self.dim


class GatedConvolution(nn.Module):
    """A convolution whose outputs are let through by gates, v([A B]) = A · σ(B) (Dauphin et al. 2017)."""

    def __init__(self, dim: int, *, kernel: int, causal: bool, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.convolution = Convolution(dim, 2 * dim, kernel=kernel, causal=causal)
        # The gates halve what they let through, and dropout raises the variance of what comes in (section 3.5).
        self.convolution.initialise(gain=2.0 * math.sqrt(1.0 - dropout))

    def forward(self, x: Float[Tensor, "batch time dim"]) -> Float[Tensor, "batch time dim"]:
        """Map every position of a sequence with its neighbours."""
        return F.glu(self.convolution(self.dropout(x)))

    def step(
        self, x: Float[Tensor, "batch query dim"], recent: Float[Tensor, "batch query reach dim"]
    ) -> tuple[Float[Tensor, "batch query dim"], Float[Tensor, "batch query reach dim"]]:
        """Map the newest position of every row, and what is remembered from now on."""
        mapped, recent = self.convolution.step(x, recent)
        return F.glu(mapped), recent


class EncoderLayer(nn.Module):
    """A gated convolution with a residual connection."""

    def __init__(self, config: ConvolutionalConfig) -> None:
        super().__init__()
        self.gated = GatedConvolution(config.dim, kernel=config.kernel, causal=False, dropout=config.dropout)

    def forward(
        self, x: Float[Tensor, "batch time dim"], present: Bool[Tensor, "batch time"] | None
    ) -> Float[Tensor, "batch time dim"]:
        """The next states; padding counts as the zeros beyond the edges."""
        return (self.gated(shown(x, present)) + x) * HALF


class Source(NamedTuple):
    """What every decoder layer attends to, the same for all of them."""

    memory: KeyValues
    """Encoder states z as keys; z + e, with the embeddings e, as values."""
    visible: Visible
    strength: Float[Tensor, "batch 1 1"]
    """√m of a source of m tokens: a mean of m states is weaker than one by as much (section 3.4)."""

    def keep(self, sentences: Int[Tensor, " sentences"]) -> "Source":
        """The chosen sentences of the batch, in that order; what they see must be `ready`."""
        return Source(
            self.memory.keep(sentences), self.visible.keep(sentences), self.strength.index_select(0, sentences)
        )


class Layered(NamedTuple):
    """What a decoder layer gives: states, the inputs it remembers from now on, and weights if asked for."""

    states: Float[Tensor, "batch time dim"]
    recent: Float[Tensor, "batch query reach dim"] | None
    weights: Float[Tensor, "sentences heads query key"] | None


class DecoderLayer(nn.Module):
    """A causal gated convolution, then one step of attention to the source, around both a residual connection."""

    def __init__(self, config: ConvolutionalConfig) -> None:
        super().__init__()
        self.gated = GatedConvolution(config.dim, kernel=config.kernel, causal=True, dropout=config.dropout)
        self.query = Linear(config.dim, config.dim)
        nn.init.normal_(self.query.weight, std=config.dim**-0.5)
        nn.init.zeros_(self.query.bias)

    def forward(
        self,
        x: Float[Tensor, "batch time dim"],
        embedded: Float[Tensor, "batch time dim"],
        source: Source,
        recent: Float[Tensor, "batch query reach dim"] | None = None,
        *,
        need_weights: bool = False,
    ) -> Layered:
        """The next states of whole targets, or with `recent` inputs of the newest position of every row."""
        hidden, recent = (self.gated(x), None) if recent is None else self.gated.step(x, recent)
        query = (self.query(hidden) + embedded) * (HALF * math.sqrt(x.shape[-1]))  # undoes what `attend` divides by
        attended = attend(query[:, :, None], *source.memory, source.visible, need_weights=need_weights)
        context = attended.output[:, :, 0] * source.strength
        return Layered(((hidden + context) * HALF + x) * HALF, recent, attended.weights)


@dataclass(frozen=True)
class ConvolutionalEncoded(Encoded):
    """A source as the encoder understood it, and its embeddings."""

    embedded: Float[Tensor, "batch time dim"] = field(kw_only=True)


@dataclass(frozen=True)
class ConvolutionalState:
    """All that decoding must remember between two tokens."""

    source: Source
    recent: tuple[Float[Tensor, "batch query reach dim"], ...]
    """The last kernel - 1 inputs of every layer, row by row."""
    length: int = 0
    """Tokens written so far, the start symbol among them."""
    coverage: Float[Tensor, "batch query key"] | None = None
    """How much of every source token each row has read so far, where that was asked for."""


class Convolutional(Autoregressive[ConvolutionalEncoded, ConvolutionalState]):
    """Figure 1 of the paper: stacks of gated convolutions, of which each of the decoder's attends to the source."""

    config: ConvolutionalConfig

    def __init__(self, config: ConvolutionalConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.embed(config, source_vocabulary, target_vocabulary)
        self.source_positions = _positions(config)
        self.target_positions = _positions(config)
        self.dropout = Dropout(config.dropout)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))

    def blocks(self) -> Iterator[nn.Module]:
        """All layers."""
        yield from (*self.encoder, *self.decoder)

    def encode(self, source: Sequences, *, need_weights: bool = False) -> ConvolutionalEncoded:
        """Understand the source; there is no attention within it."""
        del need_weights
        embedded = self._embed(self.source_embedding, self.source_positions, source.tokens, source.positions)
        x, present = embedded, None if source.full else source.present
        for layer in self.encoder:
            x = recomputed(layer, x, present)
        return ConvolutionalEncoded(source, x, embedded=embedded)

    def decode(self, target: Sequences, encoded: ConvolutionalEncoded, *, need_weights: bool = False) -> Decoded:
        """Understand whole targets at once."""
        embedded = self._embed(self.target_embedding, self.target_positions, target.tokens, target.positions)
        source = _source(encoded, Visible.between(target, encoded.source))
        x, weights = embedded, []
        for layer in self.decoder:
            layered = recomputed(layer, x, embedded, source, need_weights=need_weights)
            x = layered.states
            weights.append(layered.weights)
        return Decoded(self.dropout(x), (), tuple(weights) if need_weights else ())

    def start(self, encoded: ConvolutionalEncoded, *, coverage: bool = False) -> ConvolutionalState:
        """The state before the first target token; the source must be padded."""
        source, states = encoded.source, encoded.states
        return ConvolutionalState(
            _source(encoded, Visible.between(source, source).ready()),
            tuple(layer.gated.convolution.begin(states) for layer in self.decoder),  # type: ignore[union-attr,operator]  # ModuleList forgets the class
            coverage=torch.zeros(len(states), 1, source.longest, device=states.device) if coverage else None,
        )

    def advance(
        self, tokens: Int[Tensor, "batch query"], parents: Int[Tensor, "batch query"] | None, state: ConvolutionalState
    ) -> tuple[Float[Tensor, "batch query dim"], ConvolutionalState]:
        """The states from which the tokens after `tokens` are predicted, and the state that includes them."""
        device, rows = self.output.weight.device, tokens.shape[1]
        tokens, parents = tokens.to(device), None if parents is None else parents.to(device)
        positions = torch.full_like(tokens, state.length)
        embedded = self._embed(self.target_embedding, self.target_positions, tokens, positions)
        x, recent, weigh, weights = embedded, [], state.coverage is not None, None
        for layer, earlier in zip(self.decoder, state.recent, strict=True):
            x, own, weights = layer(x, embedded, state.source, followed(earlier, parents, rows), need_weights=weigh)
            recent.append(own)
        coverage = state.coverage
        if coverage is not None and weights is not None:
            coverage = followed(coverage, parents, rows) + weights[:, 0]
        return x, replace(state, recent=tuple(recent), length=state.length + 1, coverage=coverage)

    def unread(self, state: ConvolutionalState) -> Float[Tensor, "batch query"]:
        """How little of the source the rows have read, where `start` was asked to keep account of it."""
        assert state.coverage is not None
        added = state.source.visible.added
        return left_unread(state.coverage, None if added is None else added[:, 0] != 0)

    def keep(self, state: ConvolutionalState, sentences: Int[Tensor, " sentences"]) -> ConvolutionalState:
        """The state of the chosen sentences, in that order; `sentences` may be on the host."""
        sentences = sentences.to(self.output.weight.device)
        return replace(
            state,
            source=state.source.keep(sentences),
            recent=tuple(each.index_select(0, sentences) for each in state.recent),
            coverage=None if state.coverage is None else state.coverage.index_select(0, sentences),
        )

    def _embed(
        self,
        embedding: Embedding,
        order: Positions,
        tokens: Int[Tensor, "batch time"],
        positions: Int[Tensor, "batch time"],
    ) -> Float[Tensor, "batch time dim"]:
        return self.dropout(order.embed(embedding(tokens), positions) * EMBEDDED)


def _positions(config: ConvolutionalConfig) -> Positions:
    positions = embedding_positions(config.positions, dim=config.dim, longest=config.longest)
    if isinstance(positions, LearnedPositions):
        nn.init.normal_(positions.table)  # as strong as the tokens, as in the paper
    return positions


def _source(encoded: ConvolutionalEncoded, visible: Visible) -> Source:
    key, value = encoded.states, (encoded.states + encoded.embedded) * HALF
    strength = encoded.source.lengths.to(key.device).sqrt()[:, None, None].to(key.dtype)
    return Source(KeyValues(key[:, :, None], value[:, :, None]), visible, strength)

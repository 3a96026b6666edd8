"""A language model: a Transformer decoder with no source (Radford et al. 2018; Vaswani et al. 2017, figure 1)."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from headway.errors import ConfigError
from headway.models.layered import LayeredConfig, Presets
from headway.models.model import Autoregressive, Decoded, Encoded, Tie
from headway.nn.attention import GrowingLineage, GrowingPast, Lineage, Past, Visible
from headway.nn.causal import CausalDecoder
from headway.nn.dropout import Dropout
from headway.nn.embedding import Embedding, Projection, embedded
from headway.nn.positions import BIASED, PositionKind, embedding_positions
from headway.nn.residual import NormPlace
from headway.sequences import Sequences

PRESETS: Presets = {
    "mini": {"dim": 128, "heads": 4, "hidden": 512, "layers": 2, "dropout": 0.1},
    "tiny": {"dim": 128, "heads": 4, "hidden": 512, "layers": 4, "dropout": 0.2},
    "small": {"dim": 256, "heads": 4, "hidden": 1024, "layers": 4, "dropout": 0.1},
    "base": {"dim": 512, "heads": 8, "hidden": 2048, "layers": 6, "dropout": 0.1},
    "big": {"dim": 1024, "heads": 16, "hidden": 4096, "layers": 6, "dropout": 0.1},
}
"""Sizes by name: those of the Transformer's decoders, `tiny` with wider layers."""


class LanguageConfig(LayeredConfig):
    """The shape of a language model."""

    reads_source = False
    presets = PRESETS

    architecture: Literal["language"] = "language"
    """The kind of model."""
    layers: int = Field(4, gt=0, le=256)
    """Layers one upon the other."""
    norm: NormPlace = "pre"
    """Where LayerNorm stands: pre as in later models, post as in the Transformer's paper."""
    feedforward: Literal["relu", "gelu", "gated"] = "relu"
    """relu, gelu or gated (SwiGLU)."""
    positions: PositionKind = "sinusoidal"
    """sinusoidal, learned, rotary, relative (Shaw) or alibi."""
    tie: Tie = "two-way"
    """Whether the tokens that are read and those that are written share one matrix: two-way or three-way; or none."""

    @property
    def packable(self) -> bool:
        """Positions that are added to the scores of attention are known to no kernel for packed batches."""
        return self.positions not in BIASED

    @property
    def shape_in_words(self) -> str:
        """Layers, and the features of a state."""
        return f"{self.layers} layers of {self.dim}"

    def fewest_parameters(self, vocabulary: int) -> int:
        """What the matrices of such a model hold at least: known before any memory is taken for them."""
        learned = self.longest if self.positions == "learned" else 0
        return (self.layers * (4 * self.dim + 2 * self.hidden) + vocabulary + learned) * self.dim


@dataclass(frozen=True)
class LanguageState:
    """All that must be remembered between two tokens."""

    past: tuple[Past, ...]
    lineage: Lineage
    length: int = 0
    """Tokens written so far, the start symbol among them."""


class LanguageModel(Autoregressive[Encoded, LanguageState]):
    """p(text) = Π p(token | all before it); whatever source it is given, it reads none."""

    config: LanguageConfig

    def __init__(self, config: LanguageConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        del source_vocabulary
        self.config = config
        self.target_embedding = Embedding(target_vocabulary, config.dim)
        self.source_embedding = self.target_embedding  # no table for a source that is not there
        apart = config.tie == "none"
        self.output = Projection((Embedding(target_vocabulary, config.dim) if apart else self.target_embedding).weight)
        self.positions = embedding_positions(config.positions, dim=config.dim, longest=config.longest)
        self.dropout = Dropout(config.dropout)
        self.decoder = CausalDecoder(config.layers, config.shape)

    def blocks(self) -> Iterator[nn.Module]:
        """All layers."""
        yield from self.decoder.layers

    def encode(self, source: Sequences, *, need_weights: bool = False) -> Encoded:
        """Read nothing: the states are zeros that take no memory."""
        del need_weights
        nothing = self.output.weight.new_zeros(()).expand(*source.tokens.shape, self.config.dim)
        return Encoded(source, nothing)

    def decode(self, target: Sequences, encoded: Encoded, *, need_weights: bool = False) -> Decoded:
        """Understand whole texts at once."""
        del encoded
        positions = target.positions
        x = self._embed(target.tokens, positions)
        visible = Visible.between(target, target, causal=True)
        output = self.decoder(x, visible, positions, need_weights=need_weights)
        return Decoded(output.states, output.self_weights)

    def start(self, encoded: Encoded, *, coverage: bool = False) -> LanguageState:
        """The state before the first token."""
        if coverage:
            raise ConfigError("coverage_penalty: a language model has no source to cover; leave it out")
        past = tuple(GrowingPast() for _ in self.decoder.layers)
        return LanguageState(past, GrowingLineage(encoded.source.tokens.new_zeros(0)))

    def advance(
        self, tokens: Int[Tensor, "batch query"], parents: Int[Tensor, "batch query"] | None, state: LanguageState
    ) -> tuple[Float[Tensor, "batch query dim"], LanguageState]:
        """The states from which the tokens after `tokens` are predicted, and the state that includes them."""
        device = self.output.weight.device
        tokens, parents = tokens.to(device), None if parents is None else parents.to(device)
        lineage = state.lineage.grown(parents, tokens.shape[1])
        positions = torch.full_like(tokens, state.length)
        visible = Visible(added=lineage.added, distance=(lineage.positions - state.length)[None])
        output = self.decoder(self._embed(tokens, positions), visible, positions, state.past)
        return output.states, LanguageState(output.past, lineage, state.length + 1)

    def keep(self, state: LanguageState, sentences: Int[Tensor, " sentences"]) -> LanguageState:
        """The state of the chosen texts, in that order; `sentences` may be on the host."""
        sentences = sentences.to(self.output.weight.device)
        past = tuple(each.keep(sentences) for each in state.past)
        return replace(state, past=past, lineage=state.lineage.keep(sentences))

    def unread(self, state: LanguageState) -> Float[Tensor, "batch query"]:
        """Never asked for: see `start`."""
        raise NotImplementedError("a language model has no source")

    def _embed(
        self, tokens: Int[Tensor, "*batch time"], positions: Int[Tensor, "*batch time"]
    ) -> Float[Tensor, "*batch time dim"]:
        wide = self.config.norm == "pre"  # what is added to from layer to layer is rounded but once
        return embedded(self.target_embedding, self.positions, self.dropout, tokens, positions, wide=wide)

"""A model for every rung of the ladder from averaging to the Transformer, made of the Transformer's own parts."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headway.models.model import Autoregressive, Decoded, Encoded, ModelConfig
from headway.nn.attention import MultiHeadAttention, Visible
from headway.nn.embedding import Embedding, Projection
from headway.nn.feedforward import FeedForward
from headway.nn.positions import sinusoids
from headway.nn.residual import Residual
from headway.nn.rows import followed
from headway.sequences import Sequences

BESIDE = 16
"""Features that positions take up where they stand beside the token's own."""


class RungConfig(ModelConfig):
    """Which ideas a rung has."""

    architecture: Literal["rung"] = "rung"
    attention: bool = True
    """The decoder weighs the source tokens; otherwise it reads their mean."""
    positions: Literal["none", "added", "concatenated"] = "none"
    """How tokens know their places."""
    self_attention: bool = False
    """Tokens look at the others of their own sequence."""
    heads: int = 1
    """Heads of every attention."""
    hidden: int = 0
    """Features inside the feed-forward network; 0 for none."""
    layers: int = 1
    """Layers of encoder and decoder."""

    def fewest_parameters(self, vocabulary: int) -> int:
        """The table of tokens."""
        return vocabulary * self.dim


@dataclass(frozen=True)
class Written:
    """The source, and all tokens so far: a rung reads everything again at every step."""

    encoded: Encoded
    tokens: Int[Tensor, "batch query time"]


class Layer(nn.Module):
    """The sub-layers that a rung has, each with its residual connection and norm."""

    def __init__(self, config: RungConfig, *, reads_source: bool) -> None:
        super().__init__()
        dim = config.dim
        own = MultiHeadAttention(dim, config.heads) if config.self_attention else None
        across = MultiHeadAttention(dim, config.heads) if reads_source and config.attention else None
        self.own, self.across = own, across
        self.averages = reads_source and not config.attention
        self.feedforward = FeedForward(dim, config.hidden) if config.hidden else None
        self.residuals = nn.ModuleList(Residual(dim, norm="post", dropout=config.dropout) for _ in range(3))

    def forward(
        self,
        x: Float[Tensor, "batch time dim"],
        visible: Visible,
        positions: Int[Tensor, "batch time"],
        source: tuple[Encoded, Visible] | None = None,
    ) -> tuple[Float[Tensor, "batch time dim"], Tensor | None]:
        """The next states, and where the source was weighed, its weights."""
        weights = None
        if self.own is not None:
            attended, _ = self.own(x, visible, positions)
            x = self.residuals[0].leave(x, attended.output)  # type: ignore[operator]  # ModuleList forgets the class
        if self.averages and source is not None:
            x = self.residuals[1].leave(x, mean(source[0]).expand_as(x))  # type: ignore[operator]  # as above
        if self.across is not None and source is not None:
            encoded, seen = source
            read = self.across.cross(x, self.across.remember(encoded.states), seen, need_weights=True)
            x, weights = self.residuals[1].leave(x, read.output), read.weights  # type: ignore[operator]  # as above
        if self.feedforward is not None:
            x = self.residuals[2].leave(x, self.feedforward(x, visible))  # type: ignore[operator]  # as above
        return x, weights


def mean(encoded: Encoded) -> Float[Tensor, "batch 1 dim"]:
    """The mean of the source's states, padding left out."""
    present = encoded.source.present[..., None].to(encoded.states.dtype)
    return (encoded.states * present).sum(1, keepdim=True) / present.sum(1, keepdim=True)


class Rung(Autoregressive[Encoded, Written]):
    """One rung: an encoder and a decoder with as many ideas as its settings say."""

    table: Tensor

    def __init__(self, config: RungConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        self.config = config
        width = config.dim - BESIDE if config.positions == "concatenated" else config.dim
        self.source_embedding, self.target_embedding = (
            Embedding(size, width) for size in (source_vocabulary, target_vocabulary)
        )
        self.output = Projection(Embedding(target_vocabulary, config.dim).weight)
        wave = BESIDE if config.positions == "concatenated" else config.dim
        self.register_buffer("table", sinusoids(config.longest, wave), persistent=False)
        self.encoder = nn.ModuleList(Layer(config, reads_source=False) for _ in range(config.layers))
        self.decoder = nn.ModuleList(Layer(config, reads_source=True) for _ in range(config.layers))

    def placed(self, embedding: Embedding, sequences: Sequences) -> Float[Tensor, "batch time dim"]:
        """The tokens looked up, with their positions, if any, added or set beside them."""
        x, waves = embedding(sequences.tokens), self.table[sequences.positions]
        assert isinstance(self.config, RungConfig)
        if self.config.positions == "concatenated":
            return torch.cat((x, waves), -1)
        return x + waves if self.config.positions == "added" else x

    def encode(self, source: Sequences, *, need_weights: bool = False) -> Encoded:  # noqa: ARG002  # none are shown
        """Understand the source."""
        x, visible = self.placed(self.source_embedding, source), Visible.between(source, source)
        for layer in self.encoder:
            x, _ = layer(x, visible, source.positions)
        return Encoded(source, x)

    def decode(self, target: Sequences, encoded: Encoded, *, need_weights: bool = False) -> Decoded:
        """Understand whole targets at once."""
        x, own = self.placed(self.target_embedding, target), Visible.between(target, target, causal=True)
        across, collected = Visible.between(target, encoded.source), []
        for layer in self.decoder:
            x, weights = layer(x, own, target.positions, (encoded, across))
            collected.append(weights)
        found = need_weights and all(weights is not None for weights in collected)
        return Decoded(x, cross_weights=tuple(collected) if found else ())

    def start(self, encoded: Encoded, *, coverage: bool = False) -> Written:  # noqa: ARG002  # never asked for
        """Nothing is written yet."""
        return Written(encoded, encoded.source.tokens.new_zeros(len(encoded.source.tokens), 1, 0))

    def advance(
        self, tokens: Int[Tensor, "batch query"], parents: Int[Tensor, "batch query"] | None, state: Written
    ) -> tuple[Float[Tensor, "batch query dim"], Written]:
        """Read all tokens of every row again."""
        batch, rows = tokens.shape
        written = torch.cat((followed(state.tokens, parents, rows), tokens[..., None]), -1)
        source = state.encoded.source
        repeated = Encoded(
            Sequences(
                source.tokens.repeat_interleave(rows, 0),
                source.lengths.repeat_interleave(rows, 0),
                source.longest,
                source.full,
            ),
            state.encoded.states.repeat_interleave(rows, 0),
        )
        flat, length = written.flatten(0, 1), written.shape[2]
        target = Sequences(flat, flat.new_full((batch * rows,), length), length, True)
        states = self.decode(target, repeated).states[:, -1]
        return states.unflatten(0, (batch, rows)), Written(state.encoded, written)

    def keep(self, state: Written, sentences: Int[Tensor, " sentences"]) -> Written:
        """The state of the chosen sentences."""
        source, states = state.encoded.source, state.encoded.states
        kept = Sequences(source.tokens[sentences], source.lengths[sentences], source.longest, source.full)
        return Written(Encoded(kept, states[sentences]), state.tokens[sentences])

    def unread(self, state: Written) -> Float[Tensor, "batch query"]:
        """Never asked for."""
        raise NotImplementedError

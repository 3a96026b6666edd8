"""The non-autoregressive Transformer (Gu et al. 2018): every source token says how often it is copied."""

from collections.abc import Iterator
from typing import Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from headway.models.layered import StackedConfig
from headway.models.model import Decoded, Encoded, NonAutoregressive
from headway.nn.attention import Visible
from headway.nn.dropout import Dropout
from headway.nn.embedding import embedded
from headway.nn.linear import Linear
from headway.nn.positional import PositionalDecoder
from headway.nn.positions import SinusoidalPositions
from headway.nn.stacks import Encoder
from headway.nn.straight import Straight, unseen
from headway.sequences import Sequences


class FertilityConfig(StackedConfig):
    """The shape of a non-autoregressive Transformer with fertilities."""

    architecture: Literal["fertility"] = "fertility"
    """The kind of model."""
    hidden: int = Field(512, gt=0, le=65536)
    """Features inside the feed-forward network."""
    feedforward: Literal["relu", "gelu", "gated"] = "relu"
    """relu, gelu, or gated (SwiGLU)."""
    tie: Literal["three-way", "two-way"] = "three-way"
    """Which matrices are one: source, target and output; or the last two. The decoder reads source tokens."""
    largest_fertility: int = Field(50, gt=0, le=1000)
    """The most target tokens that a source token may become."""
    see_itself: bool = False
    """Whether a position of the decoder may attend to itself, which in the paper it may not."""

    aligned = True

    def fewest_parameters(self, vocabulary: int) -> int:
        """The same with positional attention."""
        return super().fewest_parameters(vocabulary) + 4 * self.decoder_layers * self.dim**2


class FertilityTransformer(NonAutoregressive):
    """Figure 2: an encoder, a head that says the fertility of every source token, and a decoder that writes at once."""

    config: FertilityConfig
    straight: tuple[Straight, Straight] | None = None
    """Encoder and decoder in straight lines, where the model was made ready to write."""

    def __init__(self, config: FertilityConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.embed(config, source_vocabulary, target_vocabulary)
        self.positions = SinusoidalPositions(config.dim, config.longest)
        self.dropout = Dropout(config.dropout)
        self.encoder = Encoder(config.encoder_layers, config.shape)
        self.fertility = Linear(config.dim, config.largest_fertility + 1)
        self.decoder = PositionalDecoder(config.decoder_layers, config.shape)
        nn.init.normal_(self.fertility.weight, std=0.02)
        with torch.no_grad():  # most tokens become one, and an untrained model may know
            self.fertility.bias.copy_(-(torch.arange(config.largest_fertility + 1.0) - 1.0).abs())

    def blocks(self) -> Iterator[nn.Module]:
        """All layers."""
        yield from (*self.encoder.layers, *self.decoder.layers)

    def straighten(self) -> None:
        """Let sentences go without the modules."""
        self.straight = Straight(self.encoder), Straight(self.decoder, self.positions.table)

    def encode(self, source: Sequences, *, need_weights: bool = False) -> Encoded:
        """Understand the source, which must be padded; with `need_weights` also return every layer's attention."""
        x = self._embed(source)
        if self.straight is not None and not need_weights:
            return Encoded(source, self.straight[0](x, (unseen(source), None, None)))
        states, weights = self.encoder(x, Visible.between(source, source), source.positions, need_weights=need_weights)
        return Encoded(source, states, weights)

    def fertilities(self, encoded: Encoded) -> Float[Tensor, "batch source fertilities"]:
        """The log-probability of every fertility of every source token, in single precision (equation 6).

        Cells of padding have fertility 0 for certain.
        """
        found = self.fertility(encoded.states).float().log_softmax(-1)
        if encoded.source.full:
            return found
        none = torch.full_like(found[0, 0], -torch.inf)
        none[:1].zero_()
        return torch.where(encoded.source.present[..., None], found, none)

    def decode(self, copies: Sequences, encoded: Encoded, *, need_weights: bool = False) -> Decoded:
        """The states from which all target tokens are predicted, given the source tokens copied to their places."""
        see_itself = self.config.see_itself
        if self.straight is not None and not need_weights:
            other, own = unseen(copies), unseen(copies) if see_itself else _apart(copies)
            added = own, other, unseen(encoded.source)
            states = self.straight[1](self._embed(copies), added, self.straight[1].remember(encoded.states))
            return Decoded(states)
        visible = Visible.between(copies, copies)
        apart = visible if see_itself else Visible(added=_apart(copies))
        output = self.decoder(
            self._embed(copies),
            self.decoder.remember(encoded.states),
            (apart, visible, Visible.between(copies, encoded.source)),
            copies.positions,
            self.positions.table[: copies.longest].to(encoded.states.dtype),
            need_weights=need_weights,
        )
        return Decoded(output.states, output.self_weights, output.cross_weights)

    def forward(self, source: Sequences, target: Sequences) -> Float[Tensor, "batch time dim"]:
        """The states of a target of known length when every source token is copied as often as any other."""
        encoded = self.encode(source)
        shares = (target.positions * source.lengths[:, None]).div(target.lengths[:, None], rounding_mode="floor")
        places = shares.minimum(source.lengths[:, None] - 1)
        copies = Sequences(source.tokens.gather(1, places), target.lengths, target.longest, target.full)
        return self.decode(copies, encoded).states

    def _embed(self, tokens: Sequences) -> Float[Tensor, "batch time dim"]:
        wide = self.config.norm == "pre"
        given = tokens.tokens, tokens.positions
        return embedded(self.source_embedding, self.positions, self.dropout, *given, wide=wide)


def copied(
    source: Int[Tensor, "batch source"], fertilities: Int[Tensor, "batch source"], longest: int
) -> Int[Tensor, "batch target"]:
    """Every source token as often as its fertility says, in order, in `longest` places (section 3.1).

    Places beyond the sum of the fertilities hold the last token.
    """
    ends = fertilities.cumsum(1)
    places = torch.arange(longest, device=source.device).expand(len(source), -1).contiguous()
    found = torch.searchsorted(ends, places, right=True)
    return source.gather(1, found.clamp_(max=source.shape[1] - 1))


def _apart(sentences: Sequences) -> Float[Tensor, "batch 1 query key"]:
    """What is added to scores so that no position sees itself or padding; one that would see nothing sees itself."""
    alone = torch.eye(sentences.longest, dtype=torch.bool, device=sentences.tokens.device)
    if sentences.full:
        hidden = alone[None] if sentences.longest > 1 else torch.zeros_like(alone)[None]
    else:
        present = sentences.present[:, None, :]
        allowed = present & ~alone
        hidden = ~(allowed | (~allowed.any(-1, keepdim=True) & alone))
    scores = torch.zeros(hidden.shape, device=sentences.tokens.device).masked_fill_(hidden, -torch.inf)
    return scores[:, None].expand(len(sentences.tokens), -1, -1, -1)

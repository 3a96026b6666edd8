"""ByteNet (Kalchbrenner et al. 2016): dilated convolutions, a decoder stacked on the encoder, and no attention."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from pydantic import Field, model_validator
from torch import Tensor, nn

from headway.errors import ConfigError
from headway.models.model import Autoregressive, Decoded, Encoded, ModelConfig
from headway.nn.convolution import Convolution, shown
from headway.nn.dropout import Dropout
from headway.nn.feedforward import initialise
from headway.nn.linear import Linear
from headway.nn.recomputing import recomputed
from headway.nn.residual import Norm
from headway.nn.rows import followed
from headway.sequences import Sequences


class ByteNetConfig(ModelConfig):
    """The shape of a ByteNet."""

    architecture: Literal["bytenet"] = "bytenet"
    """The kind of model."""
    kernel: int = Field(3, ge=3, le=63)
    """Positions a convolution sees; an odd number."""
    dilations: int = Field(5, gt=0, le=16)
    """Layers of a set: in its first layer these positions are neighbours, in each next one twice as far apart."""
    encoder_layers: int = Field(10, gt=0, le=256)
    """Layers of the encoder, set after set."""
    decoder_layers: int = Field(10, gt=0, le=256)
    """Layers of the decoder, set after set."""
    unfold: float = Field(1.2, ge=1.0, le=16.0)
    """Columns of the source representation to a source token, of which every target position reads its own."""
    unfold_extra: int = Field(4, ge=0, le=1024)
    """Columns beyond these."""

    reads_all = False

    @model_validator(mode="after")
    def _sizes_fit(self) -> "ByteNetConfig":
        if self.kernel % 2 == 0:
            raise ValueError(f"kernel {self.kernel} has no middle; use an odd one")
        if self.dim % 2:
            raise ValueError(f"dim {self.dim} is odd, and convolutions have half of it; use an even one")
        return self

    @property
    def attending(self) -> int:
        """It reads the source column by column."""
        return 0

    @property
    def shape_in_words(self) -> str:
        """Layers of encoder and decoder, the features of a state, and how far apart a convolution looks."""
        furthest = 2 ** (min(self.dilations, max(self.encoder_layers, self.decoder_layers)) - 1)
        return f"{self.encoder_layers}+{self.decoder_layers} layers of {self.dim}, dilated up to {furthest}"

    def fewest_parameters(self, vocabulary: int) -> int:
        """What the matrices of such a model hold at least: known before any memory is taken for them."""
        half = self.dim // 2
        layer = 2 * self.dim * half + self.kernel * half * half
        return (self.encoder_layers + self.decoder_layers) * layer + (vocabulary + self.dim) * self.dim

    def dilation(self, layer: int) -> int:
        """How far apart the positions lie that the convolution of a layer sees."""
        return int(2 ** (layer % self.dilations))

    def columns(self, length: int) -> int:
        """How many columns represent a source of this many tokens (section 3.2)."""
        return math.ceil(self.unfold * length) + self.unfold_extra


class ResidualBlock(nn.Module):
    """Half of the features, a dilated convolution, and all features again, added to the states (figure 3, left)."""

    def __init__(self, config: ByteNetConfig, dilation: int, *, causal: bool) -> None:
        super().__init__()
        dim, half = config.dim, config.dim // 2
        self.norm_wide, self.narrow = Norm(dim), Linear(dim, half)
        self.norm_narrow = Norm(half)
        self.convolution = Convolution(half, half, kernel=config.kernel, dilation=dilation, causal=causal)
        self.norm_seen, self.widen = Norm(half), Linear(half, dim)
        self.dropout = Dropout(config.dropout)
        initialise(self.narrow, self.widen)
        self.convolution.initialise(gain=math.sqrt(2.0))  # half of what comes in was rectified away

    def forward(
        self,
        x: Float[Tensor, "batch time dim"],
        present: Bool[Tensor, "batch time"] | None = None,
        recent: Float[Tensor, "batch query reach hidden"] | None = None,
    ) -> tuple[Float[Tensor, "batch time dim"], Float[Tensor, "batch query reach hidden"] | None]:
        """The next states of whole sequences, or with `recent` inputs of the newest position of every row.

        Cells that are not present count as the zeros beyond the edges.
        """
        y = self.norm_narrow(self.narrow(self.norm_wide(x).relu())).relu()
        if recent is None:
            y = self.convolution(shown(y, present))
        else:
            y, recent = self.convolution.step(y, recent)
        return self.dropout.add(x, self.widen(self.norm_seen(y).relu())), recent


@dataclass(frozen=True)
class ByteNetEncoded(Encoded):
    """A source as the encoder understood it: its own cells, and all columns that represent it."""

    columns: Float[Tensor, "batch target dim"] = field(kw_only=True)
    """What target positions read, each its own; zeros after the last column of a source."""


@dataclass(frozen=True)
class ByteNetState:
    """All that decoding must remember between two tokens."""

    columns: Float[Tensor, "batch target dim"]
    recent: tuple[Float[Tensor, "batch query _reach hidden"], ...]
    """The inputs that the convolution of every layer still looks back to, row by row."""
    length: int = 0
    """Tokens written so far, the start symbol among them."""


class ByteNet(Autoregressive[ByteNetEncoded, ByteNetState]):
    """Figure 1 of the paper: the decoder stands on the encoder, column upon column, and both are convolutions.

    The work grows with the length of the sentences, not with its square.
    """

    config: ByteNetConfig

    def __init__(self, config: ByteNetConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.embed(config, source_vocabulary, target_vocabulary)
        self.dropout = Dropout(config.dropout)
        self.encoder = nn.ModuleList(
            ResidualBlock(config, config.dilation(layer), causal=False) for layer in range(config.encoder_layers)
        )
        self.encoder_norm = Norm(config.dim)
        self.column = Linear(config.dim, config.dim)
        self.decoder = nn.ModuleList(
            ResidualBlock(config, config.dilation(layer), causal=True) for layer in range(config.decoder_layers)
        )
        self.decoder_norm = Norm(config.dim)
        initialise(self.column)

    def blocks(self) -> Iterator[nn.Module]:
        """All layers."""
        yield from (*self.encoder, *self.decoder)

    def encode(self, source: Sequences, *, need_weights: bool = False) -> ByteNetEncoded:
        """Understand the source in as many columns as it is unfolded to; there is no attention within it."""
        del need_weights
        width = self.config.columns(source.longest)
        embedded = shown(self.source_embedding(source.tokens), None if source.full else source.present)
        x = self.dropout(F.pad(embedded, (0, 0, 0, width - source.longest)))
        present = None
        if not source.full:
            counts = (source.lengths.double() * self.config.unfold).ceil().long() + self.config.unfold_extra
            present = torch.arange(width, device=counts.device) < counts[:, None]
        for layer in self.encoder:
            x, _ = recomputed(layer, x, present)
        x = self.encoder_norm(x)
        return ByteNetEncoded(source, x[:, : source.longest], columns=shown(self.column(x), present))

    def decode(self, target: Sequences, encoded: ByteNetEncoded, *, need_weights: bool = False) -> Decoded:
        """Understand whole targets at once; there is no attention in it."""
        del need_weights
        missing = max(0, target.longest - encoded.columns.shape[1])
        columns = F.pad(encoded.columns, (0, 0, 0, missing))[:, : target.longest]
        x = self.dropout(self.target_embedding(target.tokens) + columns)
        for layer in self.decoder:
            x, _ = recomputed(layer, x)
        return Decoded(self.decoder_norm(x))

    def start(self, encoded: ByteNetEncoded, *, coverage: bool = False) -> ByteNetState:
        """The state before the first target token; the source must be padded."""
        if coverage:
            raise ConfigError(
                "decoding.coverage_penalty: a bytenet model has no attention to the source; leave the setting out"
            )
        recent = tuple(layer.convolution.begin(encoded.columns) for layer in self.decoder)  # type: ignore[union-attr,operator]  # ModuleList forgets the class
        return ByteNetState(encoded.columns, recent)

    def advance(
        self, tokens: Int[Tensor, "batch query"], parents: Int[Tensor, "batch query"] | None, state: ByteNetState
    ) -> tuple[Float[Tensor, "batch query dim"], ByteNetState]:
        """The states from which the tokens after `tokens` are predicted, and the state that includes them."""
        device, rows = self.output.weight.device, tokens.shape[1]
        tokens, parents = tokens.to(device), None if parents is None else parents.to(device)
        x = self.target_embedding(tokens)
        if state.length < state.columns.shape[1]:
            x = x + state.columns[:, state.length, None]
        recent = []
        for layer, earlier in zip(self.decoder, state.recent, strict=True):
            x, own = layer(x, None, followed(earlier, parents, rows))
            recent.append(own)
        return self.decoder_norm(x), replace(state, recent=tuple(recent), length=state.length + 1)

    def unread(self, state: ByteNetState) -> Float[Tensor, "batch query"]:
        """Never asked: `start` has refused to keep account of it."""
        del state
        raise NotImplementedError("a ByteNet has no attention to the source")

    def keep(self, state: ByteNetState, sentences: Int[Tensor, " sentences"]) -> ByteNetState:
        """The state of the chosen sentences, in that order; `sentences` may be on the host."""
        sentences = sentences.to(self.output.weight.device)
        recent = tuple(each.index_select(0, sentences) for each in state.recent)
        return replace(state, columns=state.columns.index_select(0, sentences), recent=recent)

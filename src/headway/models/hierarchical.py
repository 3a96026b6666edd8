"""Hierarchical attention (Yang et al. 2016): words make sentences, sentences make a document."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field, model_validator
from torch import Tensor, nn

from headway.errors import ConfigError
from headway.models.model import Autoregressive, Decoded, Encoded, ModelConfig
from headway.nn.attention.hierarchical import DocumentMemory, HierarchicalAttention
from headway.nn.attention.temporal import Read
from headway.nn.convolution import shown
from headway.nn.dropout import Dropout
from headway.nn.feedforward import initialise
from headway.nn.hierarchy import Hierarchy
from headway.nn.linear import Linear
from headway.nn.pooling import Pooling
from headway.nn.recomputing import recomputed
from headway.nn.recurrent import LayerState, RecurrentEncoder, RecurrentLayer
from headway.nn.rows import followed, left_unread
from headway.nn.stacks import Weights
from headway.sequences import Sequences

MARKS = (".", "!", "?", "…", "。", "！", "？", "\n")
"""A source token that ends in one of these ends a sentence."""


class HierarchicalConfig(ModelConfig):
    """The shape of a hierarchical model."""

    architecture: Literal["hierarchical"] = "hierarchical"
    """The kind of model."""
    longest: int = Field(1024, gt=1, le=65536)
    """The longest document in tokens, end symbol included; longer ones are left out of training."""
    context: Literal["words", "document"] = "words"
    """What the decoder reads: at every token sentences and the words in them, or one vector for the document."""
    boundary: str = Field("", max_length=64)
    """A mark, such as |, that ends a sentence wherever it stands in a source, beside full stops and line ends."""
    word_layers: int = Field(1, gt=0, le=64)
    """Layers that read the words of each sentence, in both directions."""
    sentence_layers: int = Field(1, gt=0, le=64)
    """Layers that read the sentences of the document, in both directions."""
    decoder_layers: int = Field(1, gt=0, le=64)
    """Layers of the decoder."""
    attention_hidden: int = Field(128, gt=0, le=16384)
    """Features inside the scores of attention."""
    dropout: float = Field(0.2, ge=0.0, lt=1.0)
    """Share of embeddings, of what goes from layer to layer and of the output's features set to zero in training."""

    @model_validator(mode="after")
    def _sizes_fit(self) -> "HierarchicalConfig":
        if self.dim % 2:
            raise ValueError(f"dim {self.dim} is odd, and each direction has half of it; use an even one")
        if self.boundary != self.boundary.strip() or any(map(str.isspace, self.boundary)):
            raise ValueError(f"boundary {self.boundary!r} has a blank in it; use a mark without any")
        return self

    @property
    def shape_in_words(self) -> str:
        """Layers over words, over sentences and of the decoder, and the features of a state."""
        layers = f"{self.word_layers}+{self.sentence_layers}+{self.decoder_layers}"
        return f"{layers} gru layers of {self.dim} (words, sentences, decoder)"

    def fewest_parameters(self, vocabulary: int) -> int:
        """What the matrices of such a model hold at least: known before any memory is taken for them."""
        dim, hidden = self.dim, self.attention_hidden
        encoder = (self.word_layers + self.sentence_layers) * 3 * (dim + dim // 2) * dim
        decoder = (self.decoder_layers * 7 + 2) * dim * dim
        scores = (6 if self.context == "words" else 2) * dim * hidden
        return encoder + decoder + scores + vocabulary * dim


@dataclass(frozen=True)
class HierarchicalEncoded(Encoded):
    """A document as the encoder understood it: word by word, sentence by sentence, and in one vector."""

    hierarchy: Hierarchy = field(kw_only=True)
    sentences: Float[Tensor, "batch parts dim"] = field(kw_only=True)
    document: Float[Tensor, "batch dim"] = field(kw_only=True)
    shares: Float[Tensor, "batch time"] = field(kw_only=True)
    """What every word weighs in the document: its weight in its sentence times that of its sentence."""


class HierarchicalEncoder(nn.Module):
    """Figure 2 of the paper: each sentence is read word by word and pooled, the document sentence by sentence."""

    def __init__(self, config: HierarchicalConfig) -> None:
        super().__init__()
        dim, dropout = config.dim, config.dropout
        self.words = RecurrentEncoder("gru", config.word_layers, dim, bidirectional=True, dropout=dropout)
        self.word_pooling = Pooling(dim, config.attention_hidden)
        self.sentences = RecurrentEncoder("gru", config.sentence_layers, dim, bidirectional=True, dropout=dropout)
        self.sentence_pooling = Pooling(dim, config.attention_hidden)
        self.dropout = Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "batch time dim"], source: Sequences, hierarchy: Hierarchy, *, need_weights: bool
    ) -> HierarchicalEncoded:
        """Understand embedded documents."""
        states, _ = self.words(hierarchy.divided(x), hierarchy.words)
        pooled, inner = self.word_pooling(states, hierarchy.words.present)
        sentences, _ = self.sentences(self.dropout(hierarchy.gathered(pooled)), hierarchy.parts)
        document, outer = self.sentence_pooling(sentences, hierarchy.parts.present)
        inside = shown(hierarchy.joined(inner[..., None]), source.present)[..., 0]
        shares = inside * outer.gather(1, hierarchy.part)
        return HierarchicalEncoded(
            source,
            shown(hierarchy.joined(states), source.present),
            _pooled(inside, shares, hierarchy) if need_weights else (),
            hierarchy=hierarchy,
            sentences=sentences,
            document=document,
            shares=shares,
        )


@dataclass(frozen=True)
class HierarchicalState:
    """All that decoding must remember between two tokens."""

    memory: DocumentMemory | None
    """What there is to read, where the decoder reads words."""
    document: Float[Tensor, "batch dim"]
    shares: Float[Tensor, "batch time"]
    present: Bool[Tensor, "batch time"]
    layers: tuple[Float[Tensor, "batch query dim"], ...]
    """The state of every layer, row by row."""
    coverage: Float[Tensor, "batch query key"] | None = None
    """How much of every source token each row has read so far, where that was asked for."""


class Hierarchical(Autoregressive[HierarchicalEncoded, HierarchicalState]):
    """Documents in, states of the target out, be it a label, a summary or a translation.

    With s the state of the decoder and c what it reads, it predicts from tanh(W [s; c]). A source without any mark is
    one sentence.
    """

    config: HierarchicalConfig

    def __init__(self, config: HierarchicalConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.embed(config, source_vocabulary, target_vocabulary)
        self.ends = nn.Parameter(torch.zeros(source_vocabulary), requires_grad=False)
        """1 for a source token that ends a sentence, else 0; kept with the weights, but never learnt."""
        self.dropout = Dropout(config.dropout)
        self.encoder = HierarchicalEncoder(config)
        self.begin = Linear(config.dim, config.decoder_layers * config.dim)
        self.decoder = nn.ModuleList(
            RecurrentLayer("gru", config.dim, config.dim) for _ in range(config.decoder_layers)
        )
        words = config.context == "words"
        self.attention = HierarchicalAttention(config.dim, config.attention_hidden) if words else None
        self.join = Linear(2 * config.dim, config.dim)
        initialise(self.begin, self.join)

    def prepare(self, spelled: Iterable[str]) -> None:
        """Learn which source tokens end a sentence from what they spell."""
        boundary = self.config.boundary
        marked = [text.rstrip(" ") for text in spelled]
        if boundary and not any(text.endswith(boundary) for text in marked):
            raise ConfigError(
                f"model.boundary: no source token ends in {boundary!r}; use a mark that stands in the data"
            )
        marks = (*MARKS, boundary) if boundary else MARKS
        with torch.no_grad():
            self.ends.copy_(torch.tensor([float(text.endswith(marks)) for text in marked]))

    def encode(self, source: Sequences, *, need_weights: bool = False) -> HierarchicalEncoded:
        """Understand documents; with `need_weights` also what sentences and documents were pooled from."""
        hierarchy = Hierarchy.of(source, self.ends[source.tokens] > 0.5)
        x = self.dropout(self.source_embedding(source.tokens))
        encoded: HierarchicalEncoded = self.encoder(x, source, hierarchy, need_weights=need_weights)
        return encoded

    def decode(self, target: Sequences, encoded: HierarchicalEncoded, *, need_weights: bool = False) -> Decoded:
        """Understand whole targets at once."""
        state = self.start(encoded)
        x = self.dropout(self.target_embedding(target.tokens))
        for place, (layer, begun) in enumerate(zip(self.decoder, state.layers, strict=True)):
            x = recomputed(layer, self.dropout(x) if place else x, (begun,))
        found = self._read(x, state)
        weights = found.weights if need_weights else None
        return Decoded(self._join(x, found), cross_weights=() if weights is None else (weights[:, None],))

    def start(self, encoded: HierarchicalEncoded, *, coverage: bool = False) -> HierarchicalState:
        """The state before the first target token; the source must be padded."""
        source, hierarchy = encoded.source, encoded.hierarchy
        memory = None
        if self.attention is not None:
            memory = self.attention.remember(encoded.states, encoded.sentences, hierarchy.part, source.present)
        begun = self.begin(encoded.document).tanh()[:, None].chunk(self.config.decoder_layers, -1)
        read = torch.zeros_like(encoded.shares)[:, None] if coverage else None
        return HierarchicalState(memory, encoded.document, encoded.shares, source.present, tuple(begun), read)

    def advance(
        self, tokens: Int[Tensor, "batch query"], parents: Int[Tensor, "batch query"] | None, state: HierarchicalState
    ) -> tuple[Float[Tensor, "batch query dim"], HierarchicalState]:
        """The states from which the tokens after `tokens` are predicted, and the state that includes them."""
        device, rows = self.output.weight.device, tokens.shape[1]
        tokens, parents = tokens.to(device), None if parents is None else parents.to(device)
        x, layers = self.target_embedding(tokens), []
        for layer, before in zip(self.decoder, state.layers, strict=True):
            assert isinstance(layer, RecurrentLayer)
            remembered: LayerState = layer.step(x, (followed(before, parents, rows),))
            x = remembered[0]
            layers.append(x)
        found = self._read(x, state)
        coverage = state.coverage
        if coverage is not None:
            assert found.weights is not None
            coverage = followed(coverage, parents, rows) + found.weights
        return self._join(x, found), replace(state, layers=tuple(layers), coverage=coverage)

    def unread(self, state: HierarchicalState) -> Float[Tensor, "batch query"]:
        """How little of the source the rows have read, where `start` was asked to keep account of it."""
        assert state.coverage is not None
        return left_unread(state.coverage, ~state.present[:, None])

    def keep(self, state: HierarchicalState, sentences: Int[Tensor, " sentences"]) -> HierarchicalState:
        """The state of the chosen documents, in that order; `sentences` may be on the host."""
        chosen = sentences.to(self.output.weight.device)
        return HierarchicalState(
            None if state.memory is None else state.memory.keep(chosen),
            state.document.index_select(0, chosen),
            state.shares.index_select(0, chosen),
            state.present.index_select(0, chosen),
            tuple(each.index_select(0, chosen) for each in state.layers),
            None if state.coverage is None else state.coverage.index_select(0, chosen),
        )

    def _read(self, query: Float[Tensor, "batch query dim"], state: HierarchicalState) -> Read:
        """What every query reads: the words it looks at, or the one vector, and what that was pooled from."""
        if self.attention is not None:
            read: Read = recomputed(self.attention, query, state.memory)
            return read
        each = -1, query.shape[1], -1
        return Read(state.document[:, None].expand(each), state.shares[:, None].expand(each))

    def _join(self, x: Float[Tensor, "batch query dim"], found: Read) -> Float[Tensor, "batch query dim"]:
        return self.dropout(torch.tanh(self.join(torch.cat((x, found.context.to(x.dtype)), -1))))


def _pooled(inside: Float[Tensor, "batch time"], shares: Float[Tensor, "batch time"], hierarchy: Hierarchy) -> Weights:
    """What every token's sentence was pooled from, and what the document was, which is the same for all tokens."""
    same = hierarchy.part[:, :, None] == hierarchy.part[:, None]
    within = inside[:, None].expand(-1, inside.shape[1], -1).masked_fill(~same, 0.0)
    return within[:, None], shares[:, None, None].expand(-1, 1, inside.shape[1], -1)

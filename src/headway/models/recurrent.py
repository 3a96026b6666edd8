"""Recurrent encoder-decoders: one fixed context (Cho et al. 2014), or attention (Bahdanau et al. 2015)."""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Tensor, nn

from headway.errors import ConfigError
from headway.models.model import Autoregressive, Decoded, Encoded, ModelConfig
from headway.nn.attention.local import WindowKind, window_of
from headway.nn.attention.scores import ScoreKind, score_of
from headway.nn.attention.temporal import FixedContext, Read, SourceMemory, TemporalAttention
from headway.nn.dropout import Dropout
from headway.nn.embedding import Embedding, embedded
from headway.nn.linear import Linear
from headway.nn.positions import Positions
from headway.nn.recomputing import recomputed
from headway.nn.recurrent import GATES, CellKind, LayerState, RecurrentEncoder, RecurrentLayer
from headway.nn.rows import followed, left_unread
from headway.sequences import Sequences

QueryKind = Literal["previous", "current"]


class RecurrentConfig(ModelConfig):
    """The shape of a recurrent encoder-decoder."""

    architecture: Literal["recurrent"] = "recurrent"
    """The kind of model."""
    dim: int = Field(256, gt=0, le=16384)
    """Features of a token's state; even where the encoder is bidirectional, half of them for each direction."""
    cell: CellKind = "gru"
    """rnn (plain, tanh), gru or lstm."""
    encoder_layers: int = Field(2, gt=0, le=64)
    """Layers of the encoder."""
    decoder_layers: int = Field(2, gt=0, le=64)
    """Layers of the decoder."""
    bidirectional: bool = True
    """The encoder reads the source in both directions."""
    attention: Literal[ScoreKind, "none"] = "additive"
    """The score by which it looks at the source: dot, scaled-dot, multiplicative, additive or function; or none."""
    attention_hidden: int = Field(128, gt=0, le=16384)
    """Features inside an additive or function score."""
    query: QueryKind | None = None
    """The state of the decoder that looks: previous (Bahdanau; additive does by default) or current (Luong)."""
    input_feeding: bool = False
    """Each step also reads what the one before found (Luong et al. 2015, section 3.3)."""
    window: WindowKind = "all"
    """What it may look at: all, or local-m and local-p, near a place that moves on by one a token, or is predicted."""
    window_size: int = Field(10, gt=0, le=65536)
    """How far from that place a source token may stand."""
    dropout: float = Field(0.2, ge=0.0, lt=1.0)
    """Share of embeddings, of what goes from layer to layer and of the output's features set to zero in training."""

    @model_validator(mode="after")
    def _settings_fit(self) -> "RecurrentConfig":
        if self.bidirectional and self.dim % 2:
            raise ValueError(f"dim {self.dim} is odd: two directions need an even one, or set bidirectional = false")
        if self.attention == "none" and (self.query or self.input_feeding or self.window != "all"):
            raise ValueError('attention "none" looks at nothing: leave query, input_feeding and window out')
        if self.input_feeding and self.looks == "previous":
            raise ValueError('input_feeding: a step already reads what the previous state found; set query = "current"')
        return self

    @property
    def attending(self) -> int:
        """One layer looks, or none: one fixed context is the same for all."""
        return int(self.attention != "none")

    @property
    def looks(self) -> QueryKind:
        """Which state of the decoder looks at the source; a fixed context is what any state would find."""
        return self.query or ("previous" if self.attention in ("additive", "none") else "current")

    @property
    def shape_in_words(self) -> str:
        """Layers of encoder and decoder, and the features of a state."""
        return f"{self.encoder_layers}+{self.decoder_layers} {self.cell} layers of {self.dim}"

    def fewest_parameters(self, vocabulary: int) -> int:
        """What the matrices of such a model hold at least: known before any memory is taken for them."""
        gates, dim = GATES[self.cell], self.dim
        width = dim // 2 if self.bidirectional else dim
        encoder = self.encoder_layers * gates * (dim + width) * dim
        decoder = (self.decoder_layers * (2 * gates + 1) + 2) * dim * dim
        return encoder + decoder + vocabulary * dim


@dataclass(frozen=True)
class RecurrentEncoded(Encoded):
    """A source as a recurrent encoder understood it: the state of every token, and all of it in one vector."""

    summary: Float[Tensor, "batch dim"] | None = None


@dataclass(frozen=True)
class Carried:
    """What goes from one step to the next, a row of its own for every hypothesis."""

    layers: tuple[LayerState, ...]
    fed: Float[Tensor, "batch query dim"] | None = None
    """With input feeding, the state from which the last token was predicted."""

    def followed(self, parents: Int[Tensor, "batch query"] | None, rows: int) -> "Carried":
        """The same after the rows have parted."""
        layers = tuple(tuple(followed(each, parents, rows) for each in layer) for layer in self.layers)
        return Carried(layers, None if self.fed is None else followed(self.fed, parents, rows))

    def keep(self, sentences: Int[Tensor, " sentences"]) -> "Carried":
        """The same for the chosen sentences."""
        layers = tuple(tuple(each.index_select(0, sentences) for each in layer) for layer in self.layers)
        return Carried(layers, None if self.fed is None else self.fed.index_select(0, sentences))


class RecurrentDecoder(nn.Module):
    """Layers that begin with the summary of the source, and read it or what they find of it at every step.

    With y the token, s the state of the top layer and c the context, a step is

    - query "previous": c = read(s before); s = layers([y; c]) (Bahdanau et al. 2015; with one fixed c Cho et al. 2014)
    - query "current": s = layers(y), or layers([y; h before]) with input feeding; c = read(s) (Luong et al. 2015)

    and predicts from h = tanh(W [s; c]) (Luong et al. 2015, equation 5).
    """

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        dim, layers, cell = config.dim, config.decoder_layers, config.cell
        self.lstm, self.feeding = cell == "lstm", config.input_feeding
        self.looks_back = config.looks == "previous"
        self.begin = Linear(dim, layers * dim)
        self.attention: FixedContext | TemporalAttention = FixedContext()
        if config.attention != "none":
            score = score_of(config.attention, query_dim=dim, key_dim=dim, hidden=config.attention_hidden)
            self.attention = TemporalAttention(score, window_of(config.window, size=config.window_size, dim=dim))
        first = 2 * dim if self.looks_back or self.feeding else dim
        self.layers = nn.ModuleList(RecurrentLayer(cell, dim if place else first, dim) for place in range(layers))
        self.join = Linear(2 * dim, dim)
        self.dropout = Dropout(config.dropout)
        for each in (self.begin, self.join):
            nn.init.xavier_uniform_(each.weight)
            nn.init.zeros_(each.bias)

    @property
    def parallel(self) -> bool:
        """Whether no step reads what the one before found, so that the layers can go over a whole target at once."""
        return isinstance(self.attention, FixedContext) or not (self.looks_back or self.feeding)

    def remember(self, encoded: RecurrentEncoded) -> SourceMemory:
        """What there is to read at every step."""
        if isinstance(self.attention, TemporalAttention):
            return self.attention.remember(encoded.states, encoded.source)
        assert encoded.summary is not None
        return self.attention.remember(encoded.summary, encoded.source)

    def start(self, encoded: RecurrentEncoded) -> Carried:
        """Before the first step every layer remembers its own map of the summary, squashed by tanh.

        The cell of an LSTM is the map itself, as if its output gate stood open.
        """
        assert encoded.summary is not None
        begun = self.begin(encoded.summary)[:, None].chunk(len(self.layers), -1)
        layers = tuple((each.tanh(), each) if self.lstm else (each.tanh(),) for each in begun)
        return Carried(layers, torch.zeros_like(encoded.summary)[:, None] if self.feeding else None)

    def whole(
        self, x: Float[Tensor, "batch time dim"], memory: SourceMemory, carried: Carried
    ) -> tuple[Float[Tensor, "batch time dim"], Float[Tensor, "batch query key"] | None]:
        """What `stepwise` does where the decoder is `parallel`, every position at once."""
        positions = torch.arange(x.shape[1], device=x.device)
        found = None
        if isinstance(self.attention, FixedContext):
            found = self.attention(x, memory, positions)
            x = torch.cat([x, found.context.to(x.dtype)], -1)
        for place, (layer, start) in enumerate(zip(self.layers, carried.layers, strict=True)):
            x = recomputed(layer, self.dropout(x) if place else x, start)
        found = found or recomputed(self.attention, x, memory, positions)
        return self.read(x, found), found.weights

    def stepwise(
        self, x: Float[Tensor, "batch time dim"], memory: SourceMemory, carried: Carried
    ) -> tuple[Float[Tensor, "batch time dim"], Float[Tensor, "batch query key"] | None]:
        """The states and weights of whole targets, one step after the other."""
        states, read, fed = [], [], []
        for time in range(x.shape[1]):
            state, found, carried = self.move(x[:, time : time + 1], memory, carried, time)
            states.append(state)
            read.append(found)
            if carried.fed is not None:
                fed.append(carried.fed)
        contexts, weights = zip(*read, strict=True)
        joined = Read(torch.cat(contexts, 1), None if weights[0] is None else torch.cat(weights, 1))
        return torch.cat(fed, 1) if fed else self.read(torch.cat(states, 1), joined), joined.weights

    def step(
        self, x: Float[Tensor, "batch query dim"], memory: SourceMemory, carried: Carried, time: int
    ) -> tuple[Float[Tensor, "batch query dim"], Float[Tensor, "batch query key"] | None, Carried]:
        """The states from which the tokens after those in `x` are predicted, one of every row."""
        state, found, after = self.move(x, memory, carried, time)
        return self.read(state, found) if after.fed is None else after.fed, found.weights, after

    def move(
        self, x: Float[Tensor, "batch query dim"], memory: SourceMemory, carried: Carried, time: int
    ) -> tuple[Float[Tensor, "batch query dim"], Read, Carried]:
        """The state of the top layer after one more token of every row, what was read, and what is carried on."""
        positions, found = torch.full((1,), time, device=x.device), None
        if self.looks_back:
            found = recomputed(self.attention, carried.layers[-1][0], memory, positions)
            x = torch.cat([x, found.context.to(x.dtype)], -1)
        elif carried.fed is not None:
            x = torch.cat([x, carried.fed.to(x.dtype)], -1)
        layers: list[LayerState] = []
        for layer, before in zip(self.layers, carried.layers, strict=True):
            assert isinstance(layer, RecurrentLayer)
            layers.append(layer.step(self.dropout(x) if layers else x, before))
            x = layers[-1][0]
        found = found or recomputed(self.attention, x, memory, positions)
        return x, found, Carried(tuple(layers), self.read(x, found) if self.feeding else None)

    def read(self, state: Float[Tensor, "batch time dim"], found: Read) -> Float[Tensor, "batch time dim"]:
        """tanh(W [s; c]), some of it dropped in training."""
        return self.dropout(torch.tanh(self.join(torch.cat([state, found.context.to(state.dtype)], -1))))


@dataclass(frozen=True)
class RecurrentState:
    """All that decoding must remember between two tokens; a value, so that one model serves many at once."""

    memory: SourceMemory
    carried: Carried
    length: int = 0
    """Tokens written so far, the start symbol among them."""
    coverage: Float[Tensor, "batch query key"] | None = None
    """How much of every source token each row has read so far, where that was asked for."""


class Recurrent(Autoregressive[RecurrentEncoded, RecurrentState]):
    """Token sequences in, states of the target out; `output` turns states into logits."""

    config: RecurrentConfig

    def __init__(self, config: RecurrentConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.embed(config, source_vocabulary, target_vocabulary)
        self.positions = Positions()  # a recurrent network knows the order by itself
        self.dropout = Dropout(config.dropout)
        self.encoder = RecurrentEncoder(
            config.cell,
            config.encoder_layers,
            config.dim,
            bidirectional=config.bidirectional,
            dropout=config.dropout,
        )
        self.decoder = RecurrentDecoder(config)

    def encode(self, source: Sequences, *, need_weights: bool = False) -> RecurrentEncoded:
        """Understand the source; the encoder has no attention whose weights could be returned."""
        del need_weights
        states, summary = self.encoder(self._embed(self.source_embedding, source.tokens, source.positions), source)
        return RecurrentEncoded(source, states, summary=summary)

    def decode(self, target: Sequences, encoded: RecurrentEncoded, *, need_weights: bool = False) -> Decoded:
        """Understand whole targets: at once where nothing that was found is read again, and step by step otherwise."""
        x = self._embed(self.target_embedding, target.tokens, target.positions)
        memory, carried = self.decoder.remember(encoded), self.decoder.start(encoded)
        read = self.decoder.whole if self.decoder.parallel else self.decoder.stepwise
        states, weights = read(x, memory, carried)
        return Decoded(states, cross_weights=(weights[:, None],) if need_weights and weights is not None else ())

    def start(self, encoded: RecurrentEncoded, *, coverage: bool = False) -> RecurrentState:
        """The state before the first target token."""
        if coverage and self.config.attention == "none":
            raise ConfigError(
                "coverage_penalty: a model of one fixed context has no attention to reckon it by; leave out"
            )
        tokens = encoded.source.tokens
        read = torch.zeros(len(tokens), 1, tokens.shape[1], device=tokens.device) if coverage else None
        return RecurrentState(self.decoder.remember(encoded), self.decoder.start(encoded), coverage=read)

    def advance(
        self, tokens: Int[Tensor, "batch query"], parents: Int[Tensor, "batch query"] | None, state: RecurrentState
    ) -> tuple[Float[Tensor, "batch query dim"], RecurrentState]:
        """The states from which the tokens after `tokens` are predicted, and the state that includes them."""
        device, rows = self.output.weight.device, tokens.shape[1]
        tokens, parents = tokens.to(device), None if parents is None else parents.to(device)
        x = self._embed(self.target_embedding, tokens, torch.zeros_like(tokens))
        carried = state.carried.followed(parents, rows)
        states, weights, carried = self.decoder.step(x, state.memory, carried, state.length)
        coverage = state.coverage
        if coverage is not None:
            assert weights is not None
            coverage = followed(coverage, parents, rows) + weights
        return states, replace(state, carried=carried, length=state.length + 1, coverage=coverage)

    def keep(self, state: RecurrentState, sentences: Int[Tensor, " sentences"]) -> RecurrentState:
        """The state of the chosen sentences, in that order; `sentences` may be on the host."""
        sentences = sentences.to(self.output.weight.device)
        coverage = None if state.coverage is None else state.coverage.index_select(0, sentences)
        return replace(
            state, memory=state.memory.keep(sentences), carried=state.carried.keep(sentences), coverage=coverage
        )

    def unread(self, state: RecurrentState) -> Float[Tensor, "batch query"]:
        """How little of the source the rows have read, where `start` was asked to keep account of it."""
        assert state.coverage is not None
        return left_unread(state.coverage, state.memory.absent)

    def _embed(
        self, embedding: Embedding, tokens: Int[Tensor, "*batch time"], positions: Int[Tensor, "*batch time"]
    ) -> Float[Tensor, "*batch time dim"]:
        return embedded(embedding, self.positions, self.dropout, tokens, positions, wide=False)

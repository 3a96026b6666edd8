"""What every model has in common: its settings, and what the rest of the package may ask of it."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, TypeVar

from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from headway.config import Settings
from headway.errors import ConfigError
from headway.nn.embedding import Embedding, Projection
from headway.nn.stacks import Weights
from headway.sequences import Sequences

Tie = Literal["three-way", "two-way", "none"]


class ModelConfig(Settings):
    """What every architecture is asked for."""

    architecture: str
    """The kind of model."""
    dim: int = Field(256, gt=0, le=16384)
    """Features of a token's state."""
    longest: int = Field(512, gt=1, le=65536)
    """The longest sentence in tokens, end symbol included; longer ones are left out of training."""
    tie: Tie = "three-way"
    """Which matrices are one: source, target and output; target and output; or none."""
    dropout: float = Field(0.1, ge=0.0, lt=1.0)
    """Share of a layer's features set to zero in training."""

    reads_all: ClassVar[bool] = True
    """Every state hangs on the whole source and on all that was written before, near or far."""

    reads_source: ClassVar[bool] = True
    """Outputs are made from a source; a language model has none."""

    aligned: ClassVar[bool] = False
    """Training must know which tokens translate which; alignments are found where none are given."""

    @property
    def attending(self) -> int:
        """How many decoder layers look at single tokens of the source, and so have weights to show and to guide."""
        return int(self.reads_source)

    @property
    def packable(self) -> bool:
        """Whether sentences may lie one after the other in a batch, with no padding between."""
        return False

    @property
    def shape_in_words(self) -> str:
        """The size as people say it, such as "3+3 layers of 256"."""
        return f"{self.dim} features"

    @abstractmethod
    def fewest_parameters(self, vocabulary: int) -> int:
        """What the matrices of such a model hold at least: known before any memory is taken for them."""


@dataclass(frozen=True)
class Encoded:
    """A source as the encoder understood it."""

    source: Sequences
    states: Float[Tensor, "*batch time dim"]
    weights: Weights = ()


@dataclass(frozen=True)
class Decoded:
    """A target as the decoder understood it: every position has seen the source and what stands left of it."""

    states: Float[Tensor, "*batch time dim"]
    self_weights: Weights = ()
    cross_weights: Weights = ()


Understood = TypeVar("Understood", bound=Encoded)
State = TypeVar("State")


class Model(nn.Module):
    """Token sequences in, states out; `output` turns states into logits."""

    config: ModelConfig
    source_embedding: Embedding
    target_embedding: Embedding
    output: Projection

    capturable = False
    """A step of decoding does the same work whatever the tokens are, and asks the host nothing."""

    def embed(self, config: ModelConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        """Make the three tables of tokens, some of them one, as the settings say."""
        self.target_embedding = Embedding(target_vocabulary, config.dim)
        shared = config.tie == "three-way"
        if shared and source_vocabulary != target_vocabulary:
            raise ValueError("three-way tying needs one vocabulary for both sides")
        self.source_embedding = self.target_embedding if shared else Embedding(source_vocabulary, config.dim)
        untied = config.tie == "none"
        self.output = Projection(
            Embedding(target_vocabulary, config.dim).weight if untied else self.target_embedding.weight
        )

    @abstractmethod
    def forward(self, source: Sequences, target: Sequences) -> Float[Tensor, "*batch time dim"]:
        """The states from which the target is predicted in training."""

    @abstractmethod
    def encode(self, source: Sequences, *, need_weights: bool = False) -> Encoded:
        """Understand the source; with `need_weights` also return every layer's attention."""

    def prepare(self, spelled: Iterable[str]) -> None:
        """Take in what must be known of the source tokens beyond their ids: what each of them spells, in order."""

    def blocks(self) -> Iterator[nn.Module]:
        """The layers, which processes that share one model gather one after the other."""
        yield from ()

    def straighten(self) -> None:
        """Make decoding as fast as it can be where the weights are; they must not change from here on."""


class Autoregressive(Model, Generic[Understood, State]):
    """A model that writes one token after the other, each given all before it."""

    @abstractmethod
    def encode(self, source: Sequences, *, need_weights: bool = False) -> Understood:
        """Understand the source; with `need_weights` also return every layer's attention."""

    @abstractmethod
    def decode(self, target: Sequences, encoded: Understood, *, need_weights: bool = False) -> Decoded:
        """Understand whole targets at once."""

    @abstractmethod
    def start(self, encoded: Understood, *, coverage: bool = False) -> State:
        """The state before the first target token; the source must be padded."""

    @abstractmethod
    def advance(
        self, tokens: Int[Tensor, "batch query"], parents: Int[Tensor, "batch query"] | None, state: State
    ) -> tuple[Float[Tensor, "batch query dim"], State]:
        """The states from which the tokens after `tokens` are predicted, and the state that includes them."""

    @abstractmethod
    def keep(self, state: State, sentences: Int[Tensor, " sentences"]) -> State:
        """The state of the chosen sentences, in that order; `sentences` may be on the host."""

    @abstractmethod
    def unread(self, state: State) -> Float[Tensor, "batch query"]:
        """How little of the source the rows have read, where `start` was asked to keep account of it."""

    def forward(self, source: Sequences, target: Sequences) -> Float[Tensor, "*batch time dim"]:
        """The state from which each next target token is predicted, every earlier one given (teacher forcing)."""
        return self.decode(target, self.encode(source)).states

    def step(
        self, tokens: Int[Tensor, "batch query"], parents: Int[Tensor, "batch query"] | None, state: State
    ) -> tuple[Float[Tensor, "batch query vocabulary"], State]:
        """Log-probabilities of the token after `tokens`, and the state with them.

        Row q of a sentence continues row `parents[q]` of the step before, or with None its own. Tokens and parents may
        be on the host.
        """
        states, after = self.advance(tokens, parents, state)
        return self.output.wide(states).log_softmax(-1), after


class NonAutoregressive(Model):
    """A model that writes all tokens at once, or in a few rounds; `search/parallel.py` knows how each of them does."""


def autoregressive(model: Model, what: str) -> Autoregressive[Any, Any]:
    """The model, if it writes token by token; otherwise a `ConfigError` that says what needs one that does."""
    if not isinstance(model, Autoregressive):
        told = f"{what}: a {model.config.architecture} model writes all tokens at once"
        raise ConfigError(f"{told}; use one that writes them one after the other")
    return model


def translating(model: Model, what: str) -> Model:
    """The model, if it makes its outputs from sources; otherwise a `ConfigError` that says what needs one that does."""
    if not model.config.reads_source:
        told = f"{what}: a {model.config.architecture} model has no source"
        raise ConfigError(f"{told}; draw texts from it by 'headway sample', judge them by 'headway score'")
    return model

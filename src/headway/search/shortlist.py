"""A vocabulary shortlist: the output layer computed for the tokens a source may call for, and for no others."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headway.nn.embedding import Projection, widened

State = TypeVar("State")


@runtime_checkable
class Advancing(Protocol[State]):
    """A model whose states and output layer can be had apart."""

    output: Projection

    def advance(self, tokens: Tensor, parents: Tensor | None, state: State) -> tuple[Tensor, State]:
        """The states from which the next tokens are predicted."""
        ...

    def keep(self, state: State, sentences: Tensor) -> State:
        """The state of the chosen sentences."""
        ...


@dataclass(frozen=True)
class Shortlisted:
    """A stepper in a vocabulary of its own: token i of it is token `vocabulary[i]` of the model's.

    The vocabulary is what any sentence of the batch may use; what one sentence may use is its own, so that its answer
    does not depend on the others.
    """

    model: Advancing[Any]
    vocabulary: Int[Tensor, " tokens"]
    weight: Float[Tensor, "tokens dim"]
    bias: Float[Tensor, " tokens"]

    @classmethod
    def over(cls, model: Advancing[Any], vocabulary: Int[np.ndarray, " tokens"]) -> "Shortlisted":
        """The model with its output layer cut down to `vocabulary`."""
        ids = torch.from_numpy(vocabulary).to(model.output.weight.device, torch.int64)
        return cls(model, ids, model.output.weight.index_select(0, ids), model.output.bias.index_select(0, ids))

    def start(self, state: Any, allowed: Sequence[Int[np.ndarray, " _tokens"]]) -> tuple[Any, Tensor]:
        """The state of a model before the first token, for sentences that may use these tokens of the model's."""
        own = torch.full((len(allowed), 1, len(self.vocabulary)), -torch.inf)
        names = self.vocabulary.numpy(force=True)
        for line, tokens in enumerate(allowed):
            own[line, 0, torch.from_numpy(np.searchsorted(names, tokens))] = 0.0
        return state, own.to(self.weight.device)

    def step(
        self, tokens: Int[Tensor, "batch beam"], parents: Int[Tensor, "batch beam"] | None, state: tuple[Any, Tensor]
    ) -> tuple[Float[Tensor, "batch beam tokens"], tuple[Any, Tensor]]:
        """Log-probabilities among the tokens of each sentence."""
        inner, own = state
        states, after = self.model.advance(self.vocabulary[tokens.to(self.vocabulary.device)], parents, inner)
        return (widened(states, self.weight, self.bias) + own).log_softmax(-1), (after, own)

    def keep(self, state: tuple[Any, Tensor], sentences: Int[Tensor, " sentences"]) -> tuple[Any, Tensor]:
        """The states of the chosen sentences, in that order."""
        inner, own = state
        return self.model.keep(inner, sentences), own.index_select(0, sentences.to(own.device))

    def unread(self, state: tuple[Any, Tensor]) -> Float[Tensor, "batch beam"]:
        """What the model left unread."""
        return self.model.unread(state[0])  # type: ignore[attr-defined]  # a reader, where it is asked for

"""What the search asks of a model: one step, and the choice of sentences."""

from typing import Protocol, TypeVar, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

State = TypeVar("State")
State_contra = TypeVar("State_contra", contravariant=True)


@runtime_checkable  # so that the tests can check signatures that name it
class Stepper(Protocol[State]):
    """A model as the search sees it: several rows for every sentence, and its memory of them passed in and returned."""

    def step(
        self, tokens: Int[Tensor, "batch beam"], parents: Int[Tensor, "batch beam"] | None, state: State
    ) -> tuple[Float[Tensor, "batch beam vocabulary"], State]:
        """Log-probabilities of the token after `tokens`, the newest of each row, and the state that includes them.

        Row q continues row `parents[q]` of the step before, of which there may have been more or fewer; None: each row
        continues itself, or there was no step before. The log-probabilities are the search's own: it changes them.
        """
        ...

    def keep(self, state: State, sentences: Int[Tensor, " sentences"]) -> State:
        """The state of the chosen sentences, in that order."""
        ...


@runtime_checkable
class Reader(Protocol[State_contra]):
    """A stepper that knows how much of the source its rows have read."""

    def unread(self, state: State_contra) -> Float[Tensor, "batch beam"]:
        """The sum over source tokens of log(min(attention received so far, 1)) (Wu et al. 2016, equation 14)."""
        ...

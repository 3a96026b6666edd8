"""What the search asks of a model: one step, and the choice of rows."""

from typing import Protocol, TypeVar, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

State = TypeVar("State")


@runtime_checkable  # so that the tests can check signatures that name it
class Stepper(Protocol[State]):
    """A model as the search sees it: row by row, with its memory of the tokens so far passed in and returned.

    The search keeps its books on the host: `tokens` and `rows` arrive there, and the stepper moves them to its device.
    """

    def step(self, tokens: Int[Tensor, " rows"], state: State) -> tuple[Float[Tensor, "rows vocabulary"], State]:
        """Log-probabilities of the token after `tokens` (the newest of each row), and the state that includes them."""
        ...

    def select(self, state: State, rows: Int[Tensor, " rows"]) -> State:
        """The state of the chosen rows, in that order; a row may be chosen many times or not at all."""
        ...

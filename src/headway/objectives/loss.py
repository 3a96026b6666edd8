"""A loss whose sum and count travel together, and what gives one."""

from typing import NamedTuple, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from headway.data.batches import Batch
from headway.models.model import Model


class Loss(NamedTuple):
    """A total over `units` target tokens; only the training loop divides, once, by the count of all its batches."""

    total: Float[Tensor, ""]
    units: int
    surprise: Float[Tensor, ""]
    """The negative log-likelihood in nats, without smoothing and without a gradient: what perplexity is made of."""


@runtime_checkable
class Objective(Protocol):
    """What is to be minimised."""

    def __call__(self, model: Model, batch: Batch, step: int = 0) -> Loss:
        """The loss of a batch in update number `step`."""
        ...

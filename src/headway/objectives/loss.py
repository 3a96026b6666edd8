"""A loss whose sum and count travel together."""

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor


class Loss(NamedTuple):
    """A total over `units` target tokens; only the training loop divides, once, by the count of all its batches."""

    total: Float[Tensor, ""]
    units: int
    surprise: Float[Tensor, ""]
    """The negative log-likelihood in nats, without smoothing and without a gradient: what perplexity is made of."""

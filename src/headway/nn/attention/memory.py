"""Keys and values already computed: the state of decoding, passed in and returned as a value."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor


class KeyValues(NamedTuple):
    """What may be attended to, projected: once per source, or once per decoded token."""

    key: Float[Tensor, "*batch key heads width"]
    value: Float[Tensor, "*batch key heads width"]

    def extended(self, newer: "KeyValues") -> "KeyValues":
        """These positions followed by `newer` ones."""
        return KeyValues(torch.cat((self.key, newer.key), -3), torch.cat((self.value, newer.value), -3))

    def select(self, rows: Int[Tensor, " rows"]) -> "KeyValues":
        """The chosen rows of the batch, in that order."""
        return KeyValues(self.key.index_select(0, rows), self.value.index_select(0, rows))

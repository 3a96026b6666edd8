"""The hypotheses that have ended, as tensors: they stay on the device of the search until it is over."""

from dataclasses import dataclass, fields

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Found:
    """Up to as many ended hypotheses for each sentence as there are places, in the order they were found.

    There is one place more than asked for: whatever is written there is forgotten.
    """

    scores: Float[Tensor, "batch places"]
    lengths: Int[Tensor, "batch places"]
    """Tokens, the end symbol not among them."""
    rows: Int[Tensor, "batch places"]
    """The row of the search that ended, among those of the step in which it did."""
    endings: Float[Tensor, "batch places"]
    """The log-probability of the end symbol."""
    finished: Bool[Tensor, "batch places"]
    """The end symbol was chosen; otherwise the hypothesis was cut."""
    count: Int[Tensor, " batch"]

    @classmethod
    def none(cls, sentences: int, places: int, device: torch.device) -> "Found":
        """Nothing found yet; no two tensors share their memory, so that each may be written to."""
        numbers = torch.zeros(sentences, places + 1, device=device, dtype=torch.float64)
        return cls(numbers - torch.inf, numbers.long(), numbers.long(), numbers, numbers.bool(), numbers[:, 0].long())

    def add(
        self,
        ending: Bool[Tensor, "batch candidates"],
        *,
        scores: Float[Tensor, "batch candidates"],
        lengths: Int[Tensor, "#batch #candidates"],
        rows: Int[Tensor, "batch candidates"],
        endings: Float[Tensor, "batch candidates"] | None,
    ) -> "Found":
        """These and, where `ending`, the given ones, finished by an end symbol if its log-probability is given."""
        last = self.scores.shape[1] - 1
        place = (self.count[:, None] + ending.cumsum(1) - 1).masked_fill(~ending, last).clamp(max=last)
        finished = torch.full_like(ending, endings is not None)
        endings = torch.zeros_like(scores) if endings is None else endings
        beyond = torch.arange(last + 1, device=place.device) == last
        return Found(
            self.scores.scatter(1, place, scores).masked_fill(beyond, -torch.inf),
            self.lengths.scatter(1, place, lengths.expand_as(place)),
            self.rows.scatter(1, place, rows),
            self.endings.scatter(1, place, endings),
            self.finished.scatter(1, place, finished),
            self.count + ending.sum(1),
        )

    def best(self, number: int) -> "Found":
        """The best `number` alone, best first; of equal scores, the one found first."""
        order = self.scores.sort(dim=1, descending=True, stable=True).indices[:, :number]
        chosen = [part.gather(1, order) for part in self.parts()[:-1]]
        return Found(*chosen, self.count.clamp(max=number))  # type: ignore[call-arg]  # a star hides how many

    def worst(self, number: int) -> Float[Tensor, " batch"]:
        """The score of the `number`-th best; minus infinity where there are fewer."""
        return self.scores.topk(number, 1).values[:, -1]

    def parts(self) -> tuple[Tensor, ...]:
        """All tensors."""
        return tuple(getattr(self, each.name) for each in fields(self))

    def keep(self, sentences: Int[Tensor, " sentences"]) -> "Found":
        """The chosen sentences, in that order."""
        return Found(*(part.index_select(0, sentences) for part in self.parts()))

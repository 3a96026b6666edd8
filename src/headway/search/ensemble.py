"""Several models that decode as one: the mean of their probabilities."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headway.search.stepper import Stepper


@dataclass(frozen=True)
class Ensemble:
    """A stepper over others with one vocabulary; its state holds theirs."""

    members: Sequence[Stepper[Any]]

    def step(
        self, tokens: Int[Tensor, "batch beam"], parents: Int[Tensor, "batch beam"] | None, state: tuple[Any, ...]
    ) -> tuple[Float[Tensor, "batch beam vocabulary"], tuple[Any, ...]]:
        """The logarithm of the members' mean probability."""
        steps = [each.step(tokens, parents, own) for each, own in zip(self.members, state, strict=True)]
        together = torch.stack([log_probabilities for log_probabilities, _ in steps])
        return together.logsumexp(0) - math.log(len(steps)), tuple(after for _, after in steps)

    def keep(self, state: tuple[Any, ...], sentences: Int[Tensor, " sentences"]) -> tuple[Any, ...]:
        """The states of the chosen sentences, in that order."""
        return tuple(each.keep(own, sentences) for each, own in zip(self.members, state, strict=True))

    def unread(self, state: tuple[Any, ...]) -> Float[Tensor, "batch beam"]:
        """The mean of what the members left unread."""
        each = [member.unread(own) for member, own in zip(self.members, state, strict=True)]  # type: ignore[attr-defined]  # readers, where it is asked for
        return torch.stack(each).mean(0)

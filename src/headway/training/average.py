"""A moving average of the weights: smoother than any of the points training passes through."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from headway.training.parallel import placed


class MovingAverage:
    """After every update, average ← decay · average + (1 - decay) · weight (Polyak and Juditsky 1992).

    In the first updates it forgets faster, so that it does not remember how training began.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self._weights = dict(model.named_parameters())
        self.weights: dict[str, Tensor] = {name: weight.detach().clone() for name, weight in self._weights.items()}

    def update(self, step: int) -> None:
        """Take the weights after update number `step` in."""
        decay = min(self.decay, (1 + step) / (10 + step))
        current = [weight.detach() for weight in self._weights.values()]
        torch._foreach_lerp_(list(self.weights.values()), current, 1.0 - decay)

    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Go on from a stored average."""
        for name, weight in self.weights.items():
            weight.copy_(placed(weights[name], weight))

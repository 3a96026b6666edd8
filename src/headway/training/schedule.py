"""Learning-rate schedules: linear warm-up, then down."""

import math
from typing import Literal

ScheduleKind = Literal["inverse_sqrt", "linear", "cosine"]
ENDING: tuple[ScheduleKind, ...] = ("linear", "cosine")
"""Those that fall to zero and must know when."""


def learning_rate(step: int, *, peak: float, warmup: int, kind: ScheduleKind, steps: int | None) -> float:
    """The learning rate of update number `step`, counted from 1 (inverse_sqrt: equation 3)."""
    if step < warmup:
        return peak * step / warmup
    if kind == "inverse_sqrt":
        return peak * (max(warmup, 1) / step) ** 0.5
    if steps is None:
        raise ValueError(f"a {kind} schedule needs the number of steps")
    left = max(0.0, steps + 1 - step) / max(1, steps + 1 - warmup)
    return peak * left if kind == "linear" else peak * (1 - math.cos(math.pi * left)) / 2


def shortened_warmup(warmup: int, steps: int) -> int:
    """The warm-up of a short run: an eighth of its updates, at least a hundred, but at most half of them."""
    return min(warmup, max(steps // 8, min(100, steps // 2)))

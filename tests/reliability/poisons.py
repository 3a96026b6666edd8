"""Numbers that are not finite, brought into a run that is otherwise the real command."""

import math
from typing import Any

import torch
from trials import become_rank

import headway.cli
from headway.objectives import LabelSmoothedLikelihood
from headway.training.checkpoint import Checkpoints

NUMBERS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf, "huge": 1e30}
"""The last one is finite, but its square is not."""


def poisoned(arguments: list[str], place: str, number: str, steps: list[int], part: int | None = None) -> None:
    """Run `headway train` with a bad number in one place at some steps; no checkpoint is pruned.

    `part` names the only batch of an update that is hit; unset: all are.
    """
    Checkpoints.prune = lambda self, newest, keep: None  # type: ignore[method-assign]  # every step is looked at
    poison(place, NUMBERS[number], steps, part)
    headway.cli.main(arguments)


def poisoned_rank(arguments: list[str], rank: int, store: str, place: str, steps: list[int]) -> None:
    """The same in one of two processes; only rank 1 is hit."""
    become_rank(rank, store)
    poisoned(arguments, place, "nan", steps if rank == 1 else [])


def poison(place: str, number: float, steps: list[int], part: int | None) -> None:
    """Bring the number in when the time comes."""
    original, seen = LabelSmoothedLikelihood.__call__, {"validations": 0}

    def wrapped(self: Any, model: Any, batch: Any, step: int = 0) -> Any:
        if not model.training:
            loss = original(self, model, batch, step)
            hit = place == "validation" and seen["validations"] in steps
            return loss._replace(surprise=loss.surprise * number) if hit else loss
        index = seen[step] = seen.get(step, -1) + 1
        hit = step in steps and part in (None, index)
        if hit and place == "weight":
            with torch.no_grad():
                next(model.parameters())[0, 0] = number
        loss = original(self, model, batch, step)
        if hit and place == "loss":
            return loss._replace(total=loss.total * number)
        if hit and place == "gradient":
            handle = next(model.parameters()).register_hook(lambda gradient: handle.remove() or gradient * 0 + number)
        return loss

    LabelSmoothedLikelihood.__call__ = wrapped  # type: ignore[method-assign]
    if place == "validation":
        _count_validations(seen)
    if place == "step":
        _after_step(number, steps)


def _count_validations(seen: dict[Any, Any]) -> None:
    from headway.validation import Validator

    original = Validator.__call__

    def wrapped(self: Any, *given: Any) -> Any:
        seen["validations"] += 1
        return original(self, *given)

    Validator.__call__ = wrapped  # type: ignore[method-assign]


def _after_step(number: float, steps: list[int]) -> None:
    """The optimiser itself leaves a bad weight behind, though every gradient was finite."""
    original, done = torch.optim.Adam.step, [0]

    def wrapped(self: Any, *given: Any) -> Any:
        done[0] += 1
        original(self, *given)
        if done[0] in steps:
            with torch.no_grad():
                self.param_groups[0]["params"][0][0, 0] = number

    torch.optim.Adam.step = wrapped  # type: ignore[method-assign]

"""The state of a run, small: a model, its optimiser, checkpoints of several steps, and digests to compare by."""

import hashlib
from pathlib import Path

import torch
from torch import Tensor, nn

from headway.training.checkpoint import Checkpoints, parameters
from headway.training.optimiser import Optimiser
from headway.training.progress import Progress

FACTS = {"kind": "checkpoint", "data": ["a", "b"]}


class State:
    """A model and its optimiser that move when told to; the same seed moves them alike."""

    def __init__(self, seed: int = 1) -> None:
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16))
        self.optimiser = Optimiser(self.model, "adam", (0.9, 0.98))
        self.progress = Progress(steps=100)

    def move(self, step: int) -> None:
        """Take a made-up update to `step`."""
        for weight in self.model.parameters():
            weight.grad = torch.randn_like(weight)
        self.optimiser.step(0.01)
        self.progress = Progress(step=step, epoch=1, position=step, steps=100, best=((1.0 / step, step),))

    def save(self, checkpoints: Checkpoints) -> None:
        checkpoints.save(self.model, self.optimiser, self.progress)

    def load(self, checkpoints: Checkpoints, step: int) -> str:
        """Load a step and return its digest."""
        self.progress = checkpoints.load(step, self.model, self.optimiser)
        return self.digest()

    def digest(self) -> str:
        """The sha256 of weights, optimiser, random state and progress."""
        total = hashlib.sha256(repr(self.progress).encode())
        tensors: dict[str, Tensor] = dict(parameters(self.model))
        for name, weight in self.model.named_parameters():
            tensors |= {f"{name}/{key}": value for key, value in self.optimiser.state(weight).items()}
        tensors["random"] = torch.get_rng_state()
        for name, tensor in sorted(tensors.items()):
            total.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode() + tensor.detach().numpy().tobytes())
        return total.hexdigest()


def series(folder: Path, steps: list[int]) -> dict[int, str]:
    """Save a checkpoint at every step; the digest of each."""
    state, digests = State(), {}
    checkpoints = Checkpoints(folder, FACTS)
    for step in steps:
        state.move(step)
        state.save(checkpoints)
        digests[step] = state.digest()
    return digests

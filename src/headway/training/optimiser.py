"""Optimisers: which weights learn, which optimiser moves them, and which of them decay."""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from headway.errors import ConfigError
from headway.training.muon import Muon

OptimiserKind = Literal["adam", "adamw", "muon"]

EPSILON = 1e-9
"""Adam's, as in the paper (section 5.3)."""


class Optimiser:
    """One or two of torch's optimisers over the weights that learn; the learning rate is given at every update.

    Matrices decay where that is asked for; biases, norms and all tables that are looked up never do. Muon (Jordan et
    al. 2024) moves the matrices by orthogonal updates, scaled to the size of Adam's, and AdamW moves the rest.
    """

    def __init__(self, model: nn.Module, kind: OptimiserKind, betas: tuple[float, float], decay: float = 0.0) -> None:
        learning = [weight for weight in model.parameters() if weight.requires_grad]
        self.weights = learning
        adam: dict[str, Any] = {"lr": 0.0, "betas": betas, "eps": EPSILON, "fused": True}
        if learning[0].is_cuda and not hasattr(learning[0], "full_tensor"):  # where steps may be captured
            adam |= {"lr": torch.zeros((), device=learning[0].device), "capturable": True}
        inner = matrices(model)
        if kind == "adam":
            self.parts: list[torch.optim.Optimizer] = [torch.optim.Adam(learning, **adam)]
            return
        flat = [weight for weight in learning if kind == "muon" and weight in inner and weight.dim() == 2]
        rest = [weight for weight in learning if weight not in set(flat)]
        groups = [
            {"params": [weight for weight in rest if weight in inner], "weight_decay": decay},
            {"params": [weight for weight in rest if weight not in inner], "weight_decay": 0.0},
        ]
        self.parts = [torch.optim.AdamW([group for group in groups if group["params"]], **adam)]
        if flat:
            self.parts.append(Muon(flat, weight_decay=decay))

    def step(self, rate: float) -> None:
        """Move the weights along their gradients."""
        self.set_rate(rate)
        self.move()

    def set_rate(self, rate: float) -> None:
        """Choose the learning rate of the updates to come, also of captured ones."""
        for group in (group for part in self.parts for group in part.param_groups):
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def move(self, *, divisor: Tensor | None = None, skipped: Tensor | None = None) -> None:
        """Move the weights at the chosen rate; Adam divides the gradients and, where `skipped` is 1, does nothing."""
        for part in self.parts:
            part.grad_scale, part.found_inf = divisor, skipped  # type: ignore[attr-defined]  # as torch's own scaler does
            part.step()

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for part in self.parts:
            part.zero_grad(set_to_none=True)

    def state(self, weight: nn.Parameter) -> dict[str, Tensor]:
        """What is remembered of a weight: Adam's moments and counter, Muon's momentum; nothing of a frozen one."""
        return next((part.state[weight] for part in self.parts if weight in part.state), {})

    def remember(self, weight: nn.Parameter, state: dict[str, Tensor]) -> None:
        """The inverse of `state`; tensors that are there already are filled, because captured updates hold them."""
        for part in self.parts:
            if any(weight is each for group in part.param_groups for each in group["params"]):
                own = part.state[weight]
                for name, value in state.items():
                    own[name] = own[name].copy_(value) if name in own else value

    def forget(self) -> None:
        """Go back to the state before the first update."""
        for part in self.parts:
            for state in part.state.values():
                for value in state.values():
                    value.zero_()


def matrices(model: nn.Module) -> set[Tensor]:
    """The weights that multiply states: those of linear layers, convolutions and recurrent layers."""
    held = [module.weight for module in model.modules() if isinstance(module, nn.Linear | nn.Conv1d)]
    recurrent = (module for module in model.modules() if isinstance(module, nn.RNNBase))
    return {*held, *(weight for module in recurrent for weight in module.parameters() if weight.dim() == 2)}


def freeze(model: nn.Module, parts: tuple[str, ...]) -> None:
    """Keep the weights whose names begin with one of `parts` as they are, under all the names a tied one has."""
    names = dict(model.named_parameters(remove_duplicate=False))
    for part in parts:
        chosen = [weight for name, weight in names.items() if f"{name}.".startswith(f"{part}.")]
        if not chosen:
            known = ", ".join(name for name, _ in model.named_children())
            raise ConfigError(f"training.freeze: no part of the model is called {part}; its parts are {known}")
        for weight in chosen:
            weight.requires_grad_(False)
    if not any(weight.requires_grad for weight in model.parameters()):
        raise ConfigError("training.freeze: nothing is left to learn; leave a part out")

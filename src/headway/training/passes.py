"""One pass: a model and its objective, from a batch to a loss."""

import torch
from torch import nn

from headway.data.batches import Batch
from headway.models.model import Model
from headway.nn.dropout import seeds_ahead
from headway.nn.linear import lowered
from headway.nn.recomputing import recomputing
from headway.objectives import Loss, Objective


class Pass(nn.Module):
    """A model and its objective as one module: what is done with every batch, so that all of it can be distributed."""

    def __init__(self, model: Model, objective: Objective, *, divided: bool = False, recompute: bool = False) -> None:
        super().__init__()
        self.model, self.objective = model, objective
        self.divided = divided
        """Each process holds a part of every weight."""
        self.recompute = recompute
        """Layers keep only what they are given, and compute the rest again in the backward pass."""

    def forward(self, batch: Batch, step: int) -> Loss:
        """The loss of a batch at this step."""
        with recomputing(self.recompute):
            if self.divided or not torch.is_autocast_enabled("cuda"):
                return self.objective(self.model, batch, step)
            with lowered(self.model, torch.get_autocast_dtype("cuda")), seeds_ahead(batch.labels.device):
                return self.objective(self.model, batch, step)

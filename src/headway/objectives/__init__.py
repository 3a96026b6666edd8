"""Objectives: from a model and a batch to a loss as a sum and a count."""

from headway.objectives.likelihood import LabelSmoothedLikelihood
from headway.objectives.loss import Loss

__all__ = ["LabelSmoothedLikelihood", "Loss"]

"""Objectives: from a model and a batch to a loss as a sum and a count."""

from headway.objectives.consistency import ConsistentLikelihood
from headway.objectives.guidance import GuidedLikelihood, check_guidance
from headway.objectives.likelihood import LabelSmoothedLikelihood
from headway.objectives.loss import Loss, Objective
from headway.objectives.sampling import ScheduledSampling

__all__ = [
    "ConsistentLikelihood",
    "GuidedLikelihood",
    "LabelSmoothedLikelihood",
    "Loss",
    "Objective",
    "ScheduledSampling",
    "check_guidance",
]

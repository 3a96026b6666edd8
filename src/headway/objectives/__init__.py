"""Objectives: from a model and a batch to a loss as a sum and a count."""

from headway.objectives.consistency import ConsistentLikelihood
from headway.objectives.ctc import AlignmentLikelihood, countable, without_path
from headway.objectives.fertility import FertilityLikelihood, check_alignable
from headway.objectives.guidance import GuidedHead, GuidedLikelihood, check_guidance, decisive, guided_head
from headway.objectives.likelihood import LabelSmoothedLikelihood
from headway.objectives.loss import Loss, Objective
from headway.objectives.masked import MaskedLikelihood
from headway.objectives.sampling import ScheduledSampling

__all__ = [
    "AlignmentLikelihood",
    "ConsistentLikelihood",
    "FertilityLikelihood",
    "GuidedHead",
    "GuidedLikelihood",
    "LabelSmoothedLikelihood",
    "Loss",
    "MaskedLikelihood",
    "Objective",
    "ScheduledSampling",
    "check_alignable",
    "check_guidance",
    "countable",
    "decisive",
    "guided_head",
    "without_path",
]

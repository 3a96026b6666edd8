"""How good outputs are, and whether one system's are better than another's."""

from headway.evaluation.compare import Comparison, Difference, compare
from headway.evaluation.scores import Score, ScoreCard, score

__all__ = ["Comparison", "Difference", "Score", "ScoreCard", "compare", "score"]

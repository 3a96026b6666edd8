"""How good outputs are, and whether one system's are better than another's."""

from headway.evaluation.compare import Comparison, Difference, compare
from headway.evaluation.edits import token_error_rate
from headway.evaluation.rouge import rouge
from headway.evaluation.scores import Score, ScoreCard, score
from headway.evaluation.yardstick import Yardstick

__all__ = [
    "Comparison",
    "Difference",
    "Score",
    "ScoreCard",
    "Yardstick",
    "compare",
    "rouge",
    "score",
    "token_error_rate",
]

"""Attention: who may see whom, the one door to every kernel, and the heads of figure 2."""

from headway.nn.attention.attend import Attended, attend
from headway.nn.attention.heads import MultiHeadAttention
from headway.nn.attention.lineage import FixedLineage, GrowingLineage, Lineage
from headway.nn.attention.memory import FixedPast, GrowingPast, KeyValues, Past
from headway.nn.attention.visibility import Segments, Visible

__all__ = [
    "Attended",
    "FixedLineage",
    "FixedPast",
    "GrowingLineage",
    "GrowingPast",
    "KeyValues",
    "Lineage",
    "MultiHeadAttention",
    "Past",
    "Segments",
    "Visible",
    "attend",
]

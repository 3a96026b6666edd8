"""Attention: who may see whom, the one door to every kernel, and the heads of figure 2."""

from headway.nn.attention.attend import Attended, attend
from headway.nn.attention.heads import MultiHeadAttention
from headway.nn.attention.memory import KeyValues
from headway.nn.attention.visibility import Segments, Visible

__all__ = ["Attended", "KeyValues", "MultiHeadAttention", "Segments", "Visible", "attend"]

"""Looking inside a translation: attention weights and positional encodings, as a page or a picture."""

from headway.inspection.attention import Attention
from headway.inspection.pictures import draw_attention, draw_positions

__all__ = ["Attention", "draw_attention", "draw_positions"]

"""From requests to outputs: batches of like length, on the fastest path that can do what is asked."""

from headway.engine.backend import Backend
from headway.engine.engine import Engine

__all__ = ["Backend", "Engine"]

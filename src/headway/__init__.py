"""Headway: sequence-to-sequence models built on attention."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["__version__", "load"]

if TYPE_CHECKING:
    from headway.translator import load


def __getattr__(name: str) -> Any:
    """Load what needs torch only when it is asked for, so that `headway --help` is fast."""
    if name == "load":
        from headway.translator import load

        return load
    raise AttributeError(f"module 'headway' has no attribute {name!r}")

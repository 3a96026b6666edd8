"""stub"""


def keep_freed_memory() -> None:
    """Stub"""

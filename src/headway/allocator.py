"""Keeping freed memory: large CPU tensors are then reused instead of returned to the system page by page."""

import ctypes
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4  # malloc.h of the GNU C library


def keep_freed_memory() -> bool:
    """Tell the C library to keep what is freed for this process; whether it took the advice.

    A training step on a CPU allocates and frees the same large tensors again and again, and every page returned to the
    system costs a fault when it comes back. Only the GNU C library knows these settings: elsewhere nothing happens.
    """
    if sys.platform != "linux":
        return False
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is None:
        return False
    options = {_MMAP_MAX: 0, _TRIM_THRESHOLD: 2**31 - 1, _TOP_PAD: 64 << 20}
    return all(set_option(option, value) == 1 for option, value in options.items())

"""Whether kernels of our own can be had here."""

from functools import cache

import torch


@cache
def compiles() -> bool:
    """Whether Triton is there and compiles for this GPU, which is tried; where it does not, torch's kernels serve."""
    try:
        from headway.nn.elements import totals

        totals(torch.ones(1, 16, device="cuda"))
    except Exception:  # noqa: BLE001  # no Triton, no compiler for it, a GPU it does not know: all the same
        return False
    return True

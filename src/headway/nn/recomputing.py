"""Layers that keep only what they are given, and compute the rest again for their gradients (Chen et al. 2016)."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten
from torch.utils.checkpoint import checkpoint

from headway.nn.dropout import seeds_again
from headway.nn.linear import as_lowered

_WANTED: ContextVar[bool] = ContextVar("layers are computed again", default=False)


@contextmanager
def recomputing(wanted: bool) -> Iterator[None]:
    """While inside, layers are computed a second time in the backward pass, if that is wanted."""
    before = _WANTED.set(wanted)
    try:
        yield
    finally:
        _WANTED.reset(before)


def recomputed(layer: nn.Module, x: Float[Tensor, "*batch time dim"], *given: Any, **more: Any) -> Any:
    """What the layer makes of what it is given; inside `recomputing` no more than that is kept for the backward pass.

    The second time it finds all as it was: precision, the seeds of our kernels, and torch's generators, but for those
    of a GPU while a graph is captured, in which nothing may read or set them.
    """
    if not (_WANTED.get() and torch.is_grad_enabled()):
        return layer(x, *given, **more)
    kept, shape = tree_flatten(((x, *given), more))
    as_now, device = as_lowered(layer), x.device
    seeds: list[Tensor] = []

    def compute(*kept: Any) -> Any:
        given, more = tree_unflatten(kept, shape)
        with as_now(), seeds_again(seeds, device):
            return layer(*given, **more)

    captured = x.is_cuda and torch.cuda.is_current_stream_capturing()
    return checkpoint(compute, *kept, use_reentrant=False, preserve_rng_state=not captured)

"""Random numbers by counting: a hash of a seed and an index, the same bits in our kernels and in torch.

A mask is thus never stored: whoever knows the seed and the place of an element can draw its number again. Imported only
where Triton is.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
import triton
import triton.language as tl
from jaxtyping import Int
from torch import Tensor

RANGE = 1 << 32
"""How many numbers there are to draw."""


@triton.jit
def draw(seed, index):
    """A number below 2³² for every index, each as likely; `seed` and `index` are whole numbers of 32 bits."""
    mixed = index.to(tl.uint32) * 0x9E3779B1 + seed.to(tl.uint32)
    mixed ^= mixed >> 16
    mixed = (mixed * 0x7FEB352D) ^ seed.to(tl.uint32)  # once more, lest another seed be only another place to begin
    mixed ^= mixed >> 15
    mixed *= 0x846CA68B
    mixed ^= mixed >> 16
    return mixed


def draws(seed: int, index: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
    """What `draw` gives, in torch."""
    low = RANGE - 1
    mixed = (index * 0x9E3779B1 + seed) & low
    mixed = mixed ^ (mixed >> 16)
    mixed = (mixed * 0x7FEB352D) & low ^ (seed & low)
    mixed = mixed ^ (mixed >> 15)
    mixed = (mixed * 0x846CA68B) & low
    return mixed ^ (mixed >> 16)


def threshold(probability: float) -> int:
    """Numbers below this one are drawn with this probability."""
    return min(round(probability * RANGE), RANGE - 1)


_LEFT: ContextVar[list[Tensor] | None] = ContextVar("seeds drawn ahead", default=None)


@contextmanager
def ahead(device: torch.device, count: int = 64) -> Iterator[None]:
    """While inside, seeds are drawn so many at once."""
    # Two numbers apart, so that every seed lies where kernels like to read.
    drawn = torch.empty(count, 2, dtype=torch.int64, device=device).random_(0, RANGE)
    before = _LEFT.set(list(drawn[:, 0].unbind()))
    try:
        yield
    finally:
        _LEFT.reset(before)


_REPEATED: ContextVar[Iterator[Tensor] | None] = ContextVar("seeds drawn before", default=None)


@contextmanager
def again(seeds: list[Tensor], device: torch.device) -> Iterator[None]:
    """While inside, seeds are these, in their order; where they end, new ones are drawn and join them."""
    before = _REPEATED.set(_repeated(seeds, device))
    try:
        yield
    finally:
        _REPEATED.reset(before)


def new_seed(device: torch.device) -> Int[Tensor, ""]:
    """A seed from torch's generator of the device, or inside `again` one that was drawn before."""
    repeated = _REPEATED.get()
    return _drawn(device) if repeated is None else next(repeated)


def _repeated(seeds: list[Tensor], device: torch.device) -> Iterator[Tensor]:
    yield from seeds
    while True:
        seeds.append(_drawn(device))
        yield seeds[-1]


def _drawn(device: torch.device) -> Tensor:
    left = _LEFT.get()
    return left.pop() if left else torch.empty((), dtype=torch.int64, device=device).random_(0, RANGE)

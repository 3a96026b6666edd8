"""The work every system on a GPU is given: sizes of models, synthetic pairs, batches, and the arithmetic they cost."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from headway.throughput import LENGTHS, LONGEST, RATIO, SHORTEST
from peers import origin

PADDING, START, END, FIRST = 0, 1, 2, 4
DROPOUT, SMOOTHING, CLIP = 0.1, 0.1, 1.0
KNOWN = 128
"""Positions a model has."""
CORPUS = 8
"""Times as large as all batches taken from it: the corpus that is sorted by length."""
MULTIPLE = 8
"""Padded widths are multiples of it: kernels of half precision are slower between."""

Integers = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Size:
    """A model and how many target tokens it learns from at a step."""

    name: str
    dim: int
    heads: int
    hidden: int
    layers: int
    vocabulary: int
    tokens: int

    def flops(self, source: float, target: float) -> float:
        """Of a step: six for every weight and token, the cross-attention's keys counted with the target."""
        inner = 2 * self.dim * self.hidden
        encoder, decoder = 4 * self.dim**2 + inner, 8 * self.dim**2 + inner
        return 6 * (self.layers * (encoder * source + decoder * target) + self.vocabulary * self.dim * target)

    def model(self, **changed: Any) -> dict[str, Any]:
        """The settings of Headway's model."""
        shape = {"dim": self.dim, "heads": self.heads, "hidden": self.hidden, "longest": KNOWN}
        layers = {"encoder_layers": self.layers, "decoder_layers": self.layers}
        return {**shape, **layers, "dropout": DROPOUT, "activation_dropout": DROPOUT, **changed}


SIZES = {
    size.name: size
    for size in (
        Size("base", 512, 8, 2048, 6, vocabulary=37_000, tokens=25_600),
        Size("small", 256, 4, 1024, 3, vocabulary=16_000, tokens=8_192),
        Size("tiny", 128, 4, 256, 4, vocabulary=10_000, tokens=8_192),
        Size("mini", 32, 2, 64, 1, vocabulary=200, tokens=512),  # to try the scripts on a CPU
    )
}


@dataclass(frozen=True)
class Work:
    """Batches of one layout, as whoever trains on them wants them, and the real tokens of each."""

    batches: list[Any]
    source: list[int]
    target: list[int]

    def __len__(self) -> int:
        return len(self.batches)


def lengths(count: int, chance: np.random.Generator) -> Integers:
    """Tokens of both sides of so many pairs, end symbols included: log-normal, about 25, sources a little shorter."""
    source = np.exp(chance.normal(*LENGTHS, count)).clip(SHORTEST, LONGEST).astype(np.int64)
    target = (source * chance.uniform(*RATIO, count)).clip(SHORTEST, LONGEST).astype(np.int64)
    return np.stack([source, target])


def cut(sizes: Integers, tokens: int) -> list[slice]:
    """Neighbouring pairs in batches of at most so many tokens on either side; the last one may be small."""
    ends, start, found = sizes.cumsum(axis=1), 0, []
    before = np.zeros(2, np.int64)
    while start < sizes.shape[1]:
        stop = min(int(np.searchsorted(ends[side], before[side] + tokens, side="right")) for side in (0, 1))
        stop = max(stop, start + 1)
        found.append(slice(start, stop))
        start, before = stop, ends[:, stop - 1]
    return found


def sorted_work(size: Size, count: int, device: torch.device, seed: int = 1) -> Work:
    """Batches of like lengths on the device, at even steps through a sorted corpus; padding comes on top of `tokens`.

    A batch is the source and the target, which has one token more than it has labels.
    """
    chance = np.random.default_rng(seed)
    sizes = lengths(max(2000, CORPUS * count * size.tokens // 25), chance)
    sizes = sizes[:, np.lexsort((sizes[0], sizes[1]))]
    whole = cut(sizes, size.tokens)[:-1]
    chosen = [sizes[:, whole[int((place + 0.5) * len(whole) / count)]] for place in range(count)]
    chosen = [chosen[place] for place in chance.permutation(count)]
    batches = [_rectangles(each, size.vocabulary, chance, device) for each in chosen]
    return Work(batches, *(tally(chosen, side) for side in (0, 1)))


def tally(chosen: list[Integers], side: int) -> list[int]:
    return [int(each[side].sum()) for each in chosen]


def _rectangles(
    sizes: Integers, vocabulary: int, chance: np.random.Generator, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    sides = []
    for each, extra in zip(sizes, (0, 1), strict=True):
        width = -(-int(each.max()) // MULTIPLE) * MULTIPLE + extra
        tokens = chance.integers(FIRST, vocabulary, (sizes.shape[1], width))
        tokens[np.arange(width) >= each[:, None] + extra] = PADDING
        sides.append(torch.from_numpy(tokens).to(device))
    return sides[0], sides[1]


def drawn(size: Size, count: int, seed: int = 1) -> list[Integers]:
    """The lengths of so many batches of pairs in random order, full to the last sentence."""
    chance = np.random.default_rng(seed)
    sizes = lengths((count + 1) * size.tokens // 20, chance)
    return [sizes[:, part] for part in cut(sizes, size.tokens)[:count]]


@dataclass
class Clock:
    """Seconds of work on a device, waited for."""

    device: torch.device
    began: float = field(default_factory=time.perf_counter)

    def __call__(self) -> float:
        """Seconds since it began or was last asked."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        before, self.began = self.began, time.perf_counter()
        return self.began - before


def named(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def show(**line: Any) -> None:
    origin.show(line)


def largest(fits: Callable[[int], bool], *, start: int, most: int, share: float = 0.05) -> int:
    """The largest number up to `most` that fits, within `share` of it; 0 where not even `start` does.

    Doubles while it fits, then halves the gap.
    """
    low, high = 0, min(start, most)
    while fits(high):
        low, high = high, min(2 * high, most)
        if low == most:
            return low
    while low and high - low > share * low:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low

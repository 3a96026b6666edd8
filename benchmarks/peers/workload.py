"""The work every system is given: synthetic sentence pairs in length-sorted batches, and the size of the model."""

import math
import random
from dataclasses import dataclass

import numpy
import torch

UNKNOWN, PADDING, BEGIN, END = range(4)
VOCABULARY, DIM, HEADS, HIDDEN, LAYERS = 8_000, 256, 4, 1_024, 3
DROPOUT, SMOOTHING = 0.1, 0.1
LONGEST = 128

Pair = tuple[list[int], list[int]]


@dataclass(frozen=True)
class Batch:
    """Pairs of token lists without begin and end symbols."""

    pairs: list[Pair]

    @property
    def target_tokens(self) -> int:
        """Tokens to predict: the end symbol counts, padding does not."""
        return sum(len(target) + 1 for _, target in self.pairs)

    def padded(self, padding: int = PADDING, begin: int = BEGIN) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Source with end symbol, target shifted right behind `begin`, and labels."""
        return (
            rectangle([[*source, END] for source, _ in self.pairs], padding),
            rectangle([[begin, *target] for _, target in self.pairs], padding),
            rectangle([[*target, END] for _, target in self.pairs], padding),
        )

    def source_lengths(self) -> torch.Tensor:
        return torch.tensor([len(source) + 1 for source, _ in self.pairs])

    def target_lengths(self) -> torch.Tensor:
        return torch.tensor([len(target) + 1 for _, target in self.pairs])


def rectangle(rows: list[list[int]], padding: int) -> torch.Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [padding] * (longest - len(row)) for row in rows])


def batches(count: int, target_tokens: int = 4_096, corpus: int = 40_000, seed: int = 1234) -> list[Batch]:
    """`count` batches at even quantiles of a length-sorted corpus, so that they have its distribution of lengths.

    Target lengths are log-normal with mean 15; a source is as long as its target within about 20 %; words follow Zipf.
    """
    generator = numpy.random.default_rng(seed)
    spread = 0.5
    target_lengths = generator.lognormal(math.log(15) - spread**2 / 2, spread, corpus)
    source_lengths = target_lengths * generator.lognormal(-0.02, 0.2, corpus)
    frequency = 1 / (numpy.arange(VOCABULARY - 4) + 10)
    frequency /= frequency.sum()

    def sentences(lengths: numpy.ndarray) -> list[list[int]]:
        whole = numpy.clip(numpy.rint(lengths), 2, 100).astype(int)
        words = generator.choice(VOCABULARY - 4, whole.sum(), p=frequency) + 4
        return [part.tolist() for part in numpy.split(words, numpy.cumsum(whole)[:-1])]

    pairs = sorted(
        zip(sentences(source_lengths), sentences(target_lengths), strict=True),
        key=lambda pair: (len(pair[1]), len(pair[0])),
    )
    full: list[Batch] = []
    current: list[Pair] = []
    room = target_tokens
    for pair in pairs:
        needed = len(pair[1]) + 1
        if needed > room:
            full.append(Batch(current))
            current, room = [], target_tokens
        current.append(pair)
        room -= needed
    chosen = [full[int((index + 0.5) * len(full) / count)] for index in range(count)]
    random.Random(seed).shuffle(chosen)
    return chosen

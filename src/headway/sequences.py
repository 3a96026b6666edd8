"""Token sequences of unequal length as one value, padded `[batch, time]` or packed `[tokens]`."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor


@dataclass(frozen=True)
class Sequences:
    """Sentences side by side: padded on the right to the longest, or packed one after the other.

    Built by `pad` or `pack` on the host, so that `longest` is known without asking the device.
    """

    tokens: Int[Tensor, "*batch time"]
    lengths: Int[Tensor, " sentences"]
    longest: int
    full: bool
    """No cell is padding: every sentence is as long as the longest."""

    @classmethod
    def pad(cls, sentences: Sequence[Sequence[int]], padding: int) -> "Sequences":
        """Lay the sentences out as rows, filled on the right with `padding`."""
        lengths = [len(sentence) for sentence in sentences]
        longest = max(lengths, default=0)
        rows = np.full((len(sentences), longest), padding, dtype=np.int64)
        for row, sentence in zip(rows, sentences, strict=True):
            row[: len(sentence)] = sentence
        return cls(
            torch.from_numpy(rows),
            torch.tensor(lengths, dtype=torch.int64),
            longest,
            min(lengths, default=0) == longest,
        )

    @classmethod
    def pack(cls, sentences: Sequence[Sequence[int]]) -> "Sequences":
        """Lay the sentences out one after the other, with no cell in between."""
        parts = [torch.as_tensor(sentence, dtype=torch.int64) for sentence in sentences]
        lengths = [len(part) for part in parts]
        tokens = torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64)
        return cls(tokens, torch.tensor(lengths, dtype=torch.int64), max(lengths, default=0), True)

    @property
    def packed(self) -> bool:
        """Whether the sentences share one axis."""
        return self.tokens.dim() == 1

    @cached_property
    def present(self) -> Bool[Tensor, "*batch time"]:
        """Which cells hold a token rather than padding."""
        if self.packed:
            return torch.ones_like(self.tokens, dtype=torch.bool)
        return torch.arange(self.longest, device=self.lengths.device) < self.lengths[:, None]

    @cached_property
    def positions(self) -> Int[Tensor, "*batch time"]:
        """The place of every cell in its own sentence, from 0."""
        if not self.packed:
            return torch.arange(self.longest, device=self.tokens.device).expand(self.tokens.shape)
        starts = self.bounds[:-1].long()
        return torch.arange(len(self.tokens), device=self.tokens.device) - starts.repeat_interleave(
            self.lengths, output_size=len(self.tokens)
        )

    @cached_property
    def bounds(self) -> Int[Tensor, " bounds"]:
        """Where every packed sentence starts, and last where they end."""
        return torch.nn.functional.pad(self.lengths.cumsum(0), (1, 0)).int()

    def to(self, device: torch.device | str) -> "Sequences":
        """The same sentences on another device."""
        tokens = self.tokens.to(device, non_blocking=True)
        return Sequences(tokens, self.lengths.to(device, non_blocking=True), self.longest, self.full)

    def repeated(self, times: int) -> "Sequences":
        """All the sentences, then all of them again, `times` over."""
        tokens = self.tokens.repeat(times, *[1] * (self.tokens.dim() - 1))
        return Sequences(tokens, self.lengths.repeat(times), self.longest, self.full)

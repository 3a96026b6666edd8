"""What is decoded: loads for every turn of a benchmark, and their shares for several processes."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import workload

SINGLES, BATCHES, TEXTS = 12, 2, 64  # a turn: sentences one by one, batches, or texts of a file


@dataclass(frozen=True)
class Load:
    """Sources decoded together (tokens without end symbol, or texts); each output has `length` tokens, 0: any."""

    sources: list[Any]
    length: int

    @property
    def size(self) -> int:
        return self.length * len(self.sources) or sum(map(len, self.sources))


Decode = Callable[[list[Load], int], list[int]]
"""From loads and a beam to the number of tokens of every output."""


def forced(batch: int, turns: int) -> list[list[Load]]:
    """Loads for every turn, from the training benchmark: one by one of all lengths, in batches of like length."""
    pairs = sorted(
        (pair for full in workload.batches(150) for pair in full.pairs), key=lambda pair: (len(pair[1]), len(pair[0]))
    )
    if batch == 1:
        count = turns * SINGLES
        chosen = [pairs[int((index + 0.5) * len(pairs) / count)] for index in range(count)]
        return [[Load([source], len(target)) for source, target in chosen[turn::turns]] for turn in range(turns)]
    found = []
    for turn in range(turns):
        middle = int((turn + 0.5) * len(pairs) / turns)
        mine = pairs[middle - batch * BATCHES // 2 :][: batch * BATCHES]
        longest = max(len(target) for _, target in mine)  # one length a turn: two processes have equal shares
        sources = [source for source, _ in mine]
        found.append([Load(sources[start : start + batch], longest) for start in range(0, len(sources), batch)])
    return found


def natural(text: Path, turns: int) -> list[list[Load]]:
    """Single texts for every turn; a short file is begun again."""
    lines = [line for line in text.read_text(encoding="utf-8").splitlines() if line.strip()]
    return [[Load([lines[(turn * TEXTS + place) % len(lines)]], 0) for place in range(TEXTS)] for turn in range(turns)]


def share(loads: list[Load], part: int, parts: int) -> list[Load]:
    """What one of several processes has to do: the largest load first, each to the one with the least so far."""
    shares: list[list[Load]] = [[] for _ in range(parts)]
    for load in sorted(loads, key=lambda load: -load.size):
        min(shares, key=lambda given: sum(other.size for other in given)).append(load)
    return shares[part]


def one_by_one(decode: Callable[[Load, int], list[int]]) -> Decode:
    return lambda loads, beam: [count for load in loads for count in decode(load, beam)]


def padded(sources: list[list[int]], padding: int, *, end: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """The tokens as a rectangle, and the lengths."""
    rows = [[*source, *end] for source in sources]
    return workload.rectangle(rows, padding), torch.tensor([len(row) for row in rows])

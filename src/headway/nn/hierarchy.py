"""Documents of a batch as sentences, and sentences as words: the same tokens in two layouts."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headway.sequences import Sequences


@dataclass(frozen=True)
class Hierarchy:
    """Which sentence every token of every document stands in, all sentences of the batch being numbered through."""

    words: Sequences
    """The sentences of all documents, one below the other."""
    parts: Sequences
    """The sentences of every document, by their numbers."""
    cells: tuple[Int[Tensor, "sentences 1"], Int[Tensor, "sentences words"]]
    """Document and position of every word; beyond the end of its sentence some other one."""
    places: tuple[Int[Tensor, "batch time"], Int[Tensor, "batch time"]]
    """Sentence and position within it of every token; of padding some other one."""

    @classmethod
    def of(cls, source: Sequences, ends: Bool[Tensor, "batch time"]) -> "Hierarchy":
        """Divide padded documents after tokens that end a sentence.

        Marks that follow one another end one sentence, and the last token, the end symbol, begins none.
        """
        positions = source.positions
        inside = (positions > 0) & (positions < source.lengths[:, None] - 1)
        opened = (positions == 0) | (inside & F.pad(ends[:, :-1], (1, 0)) & ~ends)
        document, first = opened.nonzero(as_tuple=True)
        numbers = (opened.flatten().cumsum(0) - 1).view_as(positions)
        lengths = torch.zeros_like(first).index_add(0, numbers.flatten(), source.present.flatten().long())
        counts = opened.sum(1)
        longest, most = torch.stack((lengths.max(), counts.max())).tolist()
        within = first[:, None] + torch.arange(longest, device=first.device)
        cells = document[:, None], within.clamp(max=source.longest - 1)
        rows = (counts.cumsum(0) - counts)[:, None] + torch.arange(most, device=first.device)
        return cls(
            Sequences(source.tokens[cells], lengths, longest, full=False),
            Sequences(rows.clamp(max=len(first) - 1), counts, most, full=False),
            cells,
            (numbers, (positions - first[numbers]).clamp(max=longest - 1)),
        )

    @property
    def part(self) -> Int[Tensor, "batch time"]:
        """The number of every token's sentence in its own document."""
        return self.places[0] - self.parts.tokens[:, :1]

    def divided(self, x: Float[Tensor, "batch time dim"]) -> Float[Tensor, "sentences words dim"]:
        """From one row a document to one row a sentence."""
        return x[self.cells]

    def joined(self, x: Float[Tensor, "sentences words *rest"]) -> Float[Tensor, "batch time *rest"]:
        """From one row a sentence back to one row a document."""
        return x[self.places]

    def gathered(self, x: Float[Tensor, "sentences dim"]) -> Float[Tensor, "batch parts dim"]:
        """What is known of the sentences, one row a document."""
        return x[self.parts.tokens]

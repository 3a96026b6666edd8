"""Who may see whom, as one value: padding, causality, a window, or packed sentences."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headway.nn.positions import distances
from headway.sequences import Sequences


@dataclass(frozen=True)
class Segments:
    """Packed sentences: sentence number i of the queries sees sentence number i of the keys and no other."""

    queries: Sequences
    keys: Sequences

    def pad_queries(self, packed: Float[Tensor, "tokens *rest"]) -> Float[Tensor, "sentences query *rest"]:
        """Lay packed query rows out as a padded batch; padding cells are zero."""
        return _padded(packed, self.queries)

    def pad_keys(self, packed: Float[Tensor, "tokens *rest"]) -> Float[Tensor, "sentences key *rest"]:
        """Lay packed key rows out as a padded batch; padding cells are zero."""
        return _padded(packed, self.keys)

    def pack_queries(self, padded: Float[Tensor, "sentences query *rest"]) -> Float[Tensor, "tokens *rest"]:
        """The inverse of `pad_queries`."""
        return padded.flatten(0, 1)[_cells(self.queries)]


def _cells(packed: Sequences) -> Int[Tensor, " tokens"]:
    """The cell of every packed token in the flattened padded layout."""
    row = torch.arange(len(packed.lengths), device=packed.tokens.device)
    row = row.repeat_interleave(packed.lengths, output_size=len(packed.tokens))
    return row * packed.longest + packed.positions


def _padded(x: Float[Tensor, "tokens *rest"], packed: Sequences) -> Float[Tensor, "sentences time *rest"]:
    cells = x.new_zeros(len(packed.lengths) * packed.longest, *x.shape[1:])
    return cells.index_copy(0, _cells(packed), x).unflatten(0, (len(packed.lengths), packed.longest))


@dataclass(frozen=True)
class Visible:
    """Which keys every query may attend to: all that every given condition allows.

    The last query stands at the last key, so that one new query sees a whole cache: query i of q stands at key
    i + k - q of k.
    """

    keys: Bool[Tensor, "batch key"] | None = None
    """True where a key is a token, False where it is padding; None when there is no padding."""
    causal: bool = False
    """No query sees a key to its right (section 3.2.3)."""
    window: int | None = None
    """No query sees a key more than this many positions away."""
    segments: Segments | None = None
    """The sentences of a packed batch; `keys` is then None."""
    added: Float[Tensor, "batch 1 #query key"] | None = None
    """Instead of all these, what is added to the scores: zero or minus infinity, and every query sees something."""
    distance: Int[Tensor, "#query key"] | None = None
    """How far right of each query each key stands, where they do not stand in order."""

    @classmethod
    def between(
        cls, queries: Sequences, keys: Sequences, *, causal: bool = False, window: int | None = None
    ) -> "Visible":
        """What the sentences `queries` see of the sentences `keys`, in the layout these have."""
        if queries.packed:
            return cls(causal=causal, window=window, segments=Segments(queries, keys))
        # With padding on the right, a causal query that is a token sees no padding: the mask would change nothing.
        return cls(keys=None if keys.full or causal else keys.present, causal=causal, window=window)

    def allowed(self, queries: int, keys: int, device: torch.device) -> Bool[Tensor, "*batch #query key"] | None:
        """The mask of a padded batch, True = may attend; None when every query sees every key."""
        mask = None if self.keys is None else self.keys[:, None, :]
        limited = self.window is not None or (self.causal and queries > 1)
        if not limited:
            return mask
        near = _near(self.distances(queries, keys, device), self.causal, self.window)
        return near if mask is None else mask & near

    def distances(self, queries: int, keys: int, device: torch.device) -> Int[Tensor, "#query key"]:
        """How far right of each query each key stands."""
        return distances(queries, keys, device) if self.distance is None else self.distance

    def ready(self) -> "Visible":
        """The same for keys that every query sees alike, made ready to be added to scores many times over.

        Every sentence has a key to see.
        """
        if self.keys is None:
            return Visible()
        scores = torch.zeros(self.keys.shape, device=self.keys.device).masked_fill_(~self.keys, -torch.inf)
        return Visible(added=scores[:, None, None, :])

    def keep(self, sentences: Int[Tensor, " sentences"]) -> "Visible":
        """What is `ready` for the chosen sentences of the batch, in that order."""
        return self if self.added is None else Visible(added=self.added.index_select(0, sentences))

    def padded(self) -> "Visible":
        """The same description for packed sentences laid out as a padded batch."""
        if self.segments is None:
            return self
        present = torch.arange(self.segments.keys.longest, device=self.segments.keys.lengths.device)
        return Visible(present < self.segments.keys.lengths[:, None], self.causal, self.window)


def _near(distance: Int[Tensor, "query key"], causal: bool, window: int | None) -> Bool[Tensor, "query key"]:
    near = torch.ones_like(distance, dtype=torch.bool)
    if causal:
        near &= distance <= 0
    if window is not None:
        near &= distance.abs() <= window
    return near

"""Keys and values already computed: the memory of decoding, passed in and returned as a value."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor


class KeyValues(NamedTuple):
    """What may be attended to, projected: once per source, or once per decoded token."""

    key: Float[Tensor, "*batch key heads width"]
    value: Float[Tensor, "*batch key heads width"]

    def keep(self, sentences: Int[Tensor, " sentences"]) -> "KeyValues":
        """The chosen sentences of the batch, in that order."""
        return KeyValues(self.key.index_select(0, sentences), self.value.index_select(0, sentences))


@runtime_checkable
class Past(Protocol):
    """A memory that takes in what is written, token by token."""

    def extended(self, newer: KeyValues) -> "Past":
        """The memory from now on."""
        ...

    def held(self) -> KeyValues:
        """All there is to attend to."""
        ...

    def keep(self, sentences: Int[Tensor, " sentences"]) -> "Past":
        """The memory of the chosen sentences of the batch, in that order."""
        ...


class _Room:
    """Space for more positions than are written; `used` of them are."""

    def __init__(self, held: KeyValues, capacity: int) -> None:
        self.key, self.value = (
            each.new_empty(each.shape[0], capacity, *each.shape[2:]) for each in (held.key, held.value)
        )
        self.used = 0
        self.write(held)

    def write(self, newer: KeyValues) -> None:
        end = self.used + newer.key.shape[1]
        self.key[:, self.used : end] = newer.key
        self.value[:, self.used : end] = newer.value
        self.used = end


@dataclass(frozen=True)
class GrowingPast:
    """A memory that grows in place while it is continued once, and copies itself when it is continued again."""

    room: _Room | None = None
    length: int = 0
    window: int | None = None
    """Steps that are held, the newest among them, and after which older ones are forgotten; None: all."""
    steps: tuple[int, ...] = ()
    """The positions of each of these."""

    def extended(self, newer: KeyValues) -> "GrowingPast":
        """These positions followed by `newer` ones."""
        length = self.length + newer.key.shape[1]
        room = self.room
        if room is None:
            room = _Room(newer, 64 * newer.key.shape[1])
        elif room.used == self.length and length <= room.key.shape[1] and not newer.key.requires_grad:
            room.write(newer)  # a gradient would need what stood there before
        else:
            held = self.held()
            length = held.key.shape[1] + newer.key.shape[1]
            room = _Room(held, 2 * length)
            room.write(newer)
        steps = () if self.window is None else (*self.steps, newer.key.shape[1])[-self.window :]
        return GrowingPast(room, length, self.window, steps)

    def held(self) -> KeyValues:
        """All positions written so far, or those of the window."""
        assert self.room is not None  # there is nothing to attend to before the first token
        seen = slice(0 if self.window is None else self.length - sum(self.steps), self.length)
        return KeyValues(self.room.key[:, seen], self.room.value[:, seen])

    def keep(self, sentences: Int[Tensor, " sentences"]) -> "GrowingPast":
        """The memory of the chosen sentences, in that order."""
        if self.room is None:
            return self
        room = _Room(self.held().keep(sentences), self.room.key.shape[1])
        return GrowingPast(room, room.used, self.window, self.steps)


@dataclass(frozen=True)
class FixedPast:
    """A memory of fixed size and place, written at `slots`: what a captured step needs."""

    key: Float[Tensor, "batch key heads width"]
    value: Float[Tensor, "batch key heads width"]
    slots: Int[Tensor, " query"]

    def extended(self, newer: KeyValues) -> "FixedPast":
        """The same memory with `newer` positions written in place."""
        self.key.index_copy_(1, self.slots, newer.key)
        self.value.index_copy_(1, self.slots, newer.value)
        return self

    def held(self) -> KeyValues:
        """All slots, written or not."""
        return KeyValues(self.key, self.value)

    def keep(self, sentences: Int[Tensor, " sentences"]) -> "FixedPast":
        """Refused: its place is fixed."""
        raise NotImplementedError("a fixed memory keeps all its sentences")

"""Numbers in a file, of which only the slices asked for are read."""

import os
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from headway.errors import FolderError

BLOCK = 1 << 16
"""Numbers of a block."""


class StoredArray:
    """A one-dimensional array on disk: `len`, an index and contiguous slices.

    It is read rather than mapped into memory: a file that another program truncates then costs an error that names it,
    where a mapped one would end the process, and what was read does not count as memory of this process.
    """

    def __init__(self, path: Path, dtype: DTypeLike, *, first: int = 0, size: int | None = None) -> None:
        """Open `size` numbers from byte `first` on; without a size, all there are."""
        self.path, self.dtype, self._first = path, np.dtype(dtype), first
        self._handle = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._handle)
        self._size = (os.fstat(self._handle).st_size - first) // self.dtype.itemsize if size is None else size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, place: int | slice) -> Any:
        """A number, or a slice of step 1 as an array."""
        if not isinstance(place, slice):
            return self.read(range(self._size)[place], range(self._size)[place] + 1)[0]
        start, stop, step = place.indices(self._size)
        if step != 1:
            raise ValueError(f"step {step}: a stored array has contiguous slices alone")
        return self.read(start, max(start, stop))

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """All numbers in memory."""
        if copy is False:
            raise ValueError("a stored array is read from disk, which is always a copy")
        return np.asarray(self.read(0, self._size), dtype)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """The numbers from `start` up to `stop`; a file that does not have them is a `FolderError`."""
        size, read = (stop - start) * self.dtype.itemsize, b""
        if 0 <= start <= stop <= self._size:
            read = os.pread(self._handle, size, self._first + start * self.dtype.itemsize)
            while 0 < len(read) < size:  # the system reads 2 GiB at once at most
                more = os.pread(self._handle, size - len(read), self._first + start * self.dtype.itemsize + len(read))
                if not more:
                    break
                read += more
        if len(read) != size or start > stop:
            raise FolderError(f"{self.path}: damaged or changed while in use; give the command again with --resume")
        return np.frombuffer(read, self.dtype)


Lengths = NDArray[np.int32] | StoredArray
"""How many tokens every sentence has, in memory or on disk."""
Numbers = NDArray[np.int64] | StoredArray
"""Larger numbers, in memory or on disk."""


def blocks(array: Lengths) -> Iterator[NDArray[Any]]:
    """The numbers of an array in order, so many at a time that memory does not grow with it."""
    for start in range(0, len(array), BLOCK):
        yield array[start : start + BLOCK]


def maximum(array: Lengths) -> int:
    """The largest number of an array; 0 of none."""
    return max((int(block.max()) for block in blocks(array)), default=0)

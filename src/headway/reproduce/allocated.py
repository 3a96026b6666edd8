"""How much memory a computation takes: the tensors that are alive at once."""

from collections.abc import Callable
from typing import Any
from weakref import finalize

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class _Alive(TorchDispatchMode):
    """Counts the bytes of all tensors made inside, after every operation."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as torch left it
        self.known: dict[int, int] = {}
        """The bytes of every piece of memory that is alive, by its name; none of what was given."""
        self.now = self.most = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        for tensor in _tensors((args, kwargs)):
            self._note(tensor, made=False)
        result = function(*args, **(kwargs or {}))
        for tensor in _tensors(result):
            self._note(tensor, made=True)
        self.most = max(self.most, self.now)
        return result

    def _note(self, tensor: Tensor, *, made: bool) -> None:
        """Remember a tensor's memory, unless it is known, for as long as it lives."""
        storage = tensor.untyped_storage()
        name = storage._cdata
        if name in self.known:
            return
        self.known[name] = storage.nbytes() if made else 0
        self.now += self.known[name]
        finalize(storage, self._forget, name)

    def _forget(self, name: int) -> None:
        self.now -= self.known.pop(name)


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def most_bytes(work: Callable[[], Any], device: torch.device) -> int:
    """The most bytes that tensors made in `work` take at once; what it is given does not count.

    On a GPU the allocator tells. On a CPU tensors are counted after every operation, so that what an operation takes
    only while it runs goes unseen.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        work()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    with _Alive() as alive:
        work()
    return alive.most

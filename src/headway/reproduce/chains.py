"""How many operations of a computation must wait for one another: its longest chain of dependent ones."""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class _Chains(TorchDispatchMode):
    """Notes for every piece of memory how many operations, one after the other, led to what it holds."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as torch left it
        self.depths: dict[int, int] = {}
        self.held: list[Any] = []
        self.longest = 0

    def __torch_dispatch__(self, function: OpOverload, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        read = [leaf for leaf in tree_leaves((args, _read(function, kwargs or {}))) if isinstance(leaf, Tensor)]
        result = function(*args, **(kwargs or {}))
        before = max((self.depths.get(_place(tensor), 0) for tensor in read), default=0)
        places = {_place(tensor) for tensor in read}
        for tensor in (leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)):
            place = _place(tensor)
            if place not in self.depths:
                self.held.append(tensor.untyped_storage())  # so that no other memory gets its name
            # A view of what was read is no operation, unless it was also written.
            looked = place in places and not function._schema.is_mutable
            after = before if looked else before + 1
            self.depths[place] = max(self.depths.get(place, 0), after)
            self.longest = max(self.longest, after)
        return result


def _read(function: OpOverload, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The named arguments that an operation reads: not those that only take its result."""
    written = {argument.name for argument in function._schema.arguments if argument.is_out}
    return {name: value for name, value in kwargs.items() if name not in written}


def _place(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def longest_chain(work: Callable[[], Any]) -> int:
    """The most operations in `work` of which each needs the result of the one before; on a CPU."""
    with _Chains() as chains:
        work()
    return chains.longest

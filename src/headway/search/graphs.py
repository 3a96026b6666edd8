"""Work of a GPU as one graph: its kernels are launched together, which takes most of the time where they are small."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from functools import cache, partial
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from headway.models.model import Model
from headway.sequences import Sequences

KEPT = 64
"""Functions kept for each model; the one used longest ago goes first."""

SMALL = 4096
"""Cells up to which launching takes longer than computing."""

ONE_AT_A_TIME = Lock()
"""Held while graphs are replayed, since their tensors have their places."""


def rounded(length: int, most: int) -> int:
    """The next multiple of a quarter of the power of two below, and of 16: never over a quarter more.

    Nor is it over `most`, as long as the length itself is not.
    """
    step = max(16, 1 << max(0, (length - 1).bit_length() - 3))
    return max(length, min(-(-length // step) * step, most))


def placed(sentences: Sequence[Sequence[int]], padding: int, device: torch.device, most: int) -> Sequences:
    """The sentences on a device, padded, in room where graphs serve; `most` is the most tokens of any."""
    padded = Sequences.pad(sentences, padding)
    if device.type != "cuda" or not 0 < padded.tokens.numel() <= SMALL:
        return padded.to(device)
    roomy = in_room(padded, padding, most)
    rows, cells = roomy.tokens.shape
    if rows * cells > SMALL:
        return padded.to(device)
    both = torch.cat((roomy.tokens.flatten(), roomy.lengths)).to(device, non_blocking=True)  # one way for all
    return Sequences(both[:-rows].view(rows, cells), both[-rows:], cells, False)


def in_room(sentences: Sequences, padding: int, most: int) -> Sequences:
    """The sentences filled up with others of one token, and with padding, so that one graph serves many sizes."""
    count, longest = sentences.tokens.shape
    rows, cells = 1 << (count - 1).bit_length(), rounded(longest, most)
    tokens = sentences.tokens.new_full((rows, cells), padding)
    tokens[:count, :longest] = sentences.tokens
    lengths = sentences.lengths.new_ones(rows)
    lengths[:count] = sentences.lengths
    return Sequences(tokens, lengths, cells, False)


def as_graph(work: Callable[[], None], changed: Sequence[Tensor] = ()) -> Callable[[], None]:
    """The work as one graph, which stays undone; `changed` is what it builds on itself."""
    kept = [each.clone() for each in changed]
    aside = _aside(torch.cuda.current_device())
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):  # libraries set themselves up at first use, which cannot be captured
        work()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=_pool(), stream=aside, capture_error_mode="thread_local"):
        work()
    for each, before in zip(changed, kept, strict=True):
        each.copy_(before)
    return graph.replay


@cache
def _aside(device: int) -> torch.cuda.Stream:
    """A stream of a device for what is captured."""
    return torch.cuda.Stream(device)


@cache
def _pool() -> Any:
    """Scratch memory that all graphs share: none keeps anything there from one replay to the next."""
    return torch.cuda.graph_pool_handle()


class Replayed:
    """A function of tensors as a graph; its arguments and what it returns have places of their own."""

    def __init__(self, function: Callable[..., tuple[Tensor, ...]], arguments: Sequence[Tensor]) -> None:
        self.arguments = list(arguments)
        self.returned = tuple(each.clone() for each in function(*self.arguments))

        def work() -> None:
            for held, made in zip(self.returned, function(*self.arguments), strict=True):
                held.copy_(made)

        self.replay = as_graph(work)

    def __call__(self, arguments: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """What the function returns; the next call writes it anew."""
        for held, given in zip(self.arguments, arguments, strict=True):
            held.copy_(given, non_blocking=True)
        self.replay()
        return self.returned


_FUNCTIONS: "WeakKeyDictionary[Model, OrderedDict[Hashable, Replayed]]" = WeakKeyDictionary()


def weights_of(model: Model) -> Hashable:
    """What tells whether the weights are where they were: graphs read them there, whatever their values are by then."""
    return model.output.weight.data_ptr(), model.output.weight.dtype


def replays(tokens: Tensor) -> bool:
    """Whether so many tokens are where there are graphs, and few enough for these to be sooner done."""
    return tokens.device.type == "cuda" and 0 < tokens.numel() <= SMALL


def replayed(
    function: Callable[..., tuple[Tensor, ...]], model: Model, tokens: Tensor, *others: Tensor, **fixed: Hashable
) -> tuple[Tensor, ...]:
    """`function(model, tokens, *others, **fixed)`, by a graph captured now or earlier where that is sooner done.

    The function asks the host nothing; `others` may be there. Whoever calls holds `ONE_AT_A_TIME` until what is
    returned was read.
    """
    work = partial(function, model, **fixed)
    if not replays(tokens):
        return work(tokens, *(each.to(tokens.device) for each in others))
    known = _FUNCTIONS.setdefault(model, OrderedDict())
    arguments = tokens, *others
    key = function, weights_of(model), tuple(fixed.items()), tuple((each.shape, each.dtype) for each in arguments)
    if key not in known:
        if len(known) == KEPT:
            known.popitem(last=False)
        known[key] = Replayed(work, [each.to(tokens.device, copy=True) for each in arguments])
    known.move_to_end(key)
    return known[key](arguments)

"""Table 1 of 'Attention is all you need', measured: time, memory, sequential operations and paths of four layers."""

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from headway.reproduce.allocated import most_bytes
from headway.reproduce.chains import longest_chain
from headway.reproduce.experiment import Say, Scale
from headway.reproduce.kinds import (
    CLAIMS,
    KERNEL,
    WINDOW,
    Attention,
    Convolution,
    Kind,
    built,
    layers_between,
    steps_between,
)
from headway.reproduce.report import Plot, Report, Table

LENGTHS, DIM = (256, 512, 1024, 2048, 4096), 64
"""Positions of the sequences, and the features of each."""
WIDTHS, LENGTH = (64, 128, 256, 512, 1024), 512
"""Features, and the positions of the sequence that has them."""
ROUNDS = 5
CHAINS = (16, 32, 64, 128, 256)
"""Positions of the sequences whose operations are followed one by one."""
PATHS, NEAR = (8, 16, 32, 64), 8
"""Positions of the sequences in which ways are looked for, and the window r there."""
KEPT: Kind = "self-attention, scores kept"

Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Cost:
    """What learning through a layer once costs."""

    seconds: float
    bytes_taken: int
    operations: int


def run(scale: Scale, say: Say) -> Report:
    """See `layers` in the documentation; a CPU measures on one thread, which waits for no other on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _compared(scale, say)
    finally:
        torch.set_num_threads(threads)


def _compared(scale: Scale, say: Say) -> Report:
    began = time.monotonic()
    longest = LENGTHS[-1] * scale.effort
    lengths = [*LENGTHS, *(LENGTHS[-1] << power for power in range(1, 8) if LENGTHS[-1] << power <= longest)]
    by_length: dict[int, dict[Kind, Cost]] = {}
    by_width: dict[int, dict[Kind, Cost]] = {}
    for length in lengths:
        by_length[length] = costs(length, DIM, scale.device)
        say(_told(f"{length} positions of {DIM}", by_length[length]))
    for width in WIDTHS:
        by_width[width] = costs(LENGTH, width, scale.device)
        say(_told(f"{LENGTH} positions of {width}", by_width[width]))
    chains: dict[str, Points] = {
        kind: [(float(length), float(_chain(kind, length))) for length in CHAINS] for kind in CLAIMS
    }
    paths = {name: [(float(length), float(way(length))) for length in PATHS] for name, way in WAYS.items()}
    say(f"chains of operations and paths in sequences of up to {CHAINS[-1]} positions: done")
    return _report(by_length, by_width, chains, paths, scale, time.monotonic() - began)


def costs(length: int, width: int, device: torch.device) -> dict[Kind, Cost]:
    """What each kind of layer costs, forwards and backwards; the kinds take turns."""
    torch.manual_seed(1)
    x = torch.randn(1, length, width, device=device, requires_grad=True)
    layers = {kind: built(kind, width).to(device) for kind in CLAIMS}
    seconds: dict[Kind, list[float]] = {kind: [] for kind in layers}
    for number in range(ROUNDS + 1):
        for kind, layer in layers.items():
            began = time.perf_counter()
            _learn(layer, x)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            if number:  # the first warms up
                seconds[kind].append(time.perf_counter() - began)
    found = {}
    for kind, layer in layers.items():
        taken = most_bytes(partial(_learn, layer, x), device)
        found[kind] = Cost(statistics.median(seconds[kind]), taken, _operations(kind, length, width))
    return found


def _learn(layer: nn.Module, x: Tensor) -> None:
    torch.autograd.grad(layer(x).sum(), [x, *layer.parameters()])


def _open(kind: Kind, width: int) -> nn.Module:
    """A layer whose operations can be followed: a fused kernel does the same inside of one."""
    return built(KEPT if kind == "self-attention" else kind, width)


def _operations(kind: Kind, length: int, width: int) -> int:
    """Floating-point operations of the products of a forward pass, counted one by one."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        _open(kind, width)(torch.zeros(1, length, width))
    return int(counter.get_total_flops())


def _chain(kind: Kind, length: int) -> int:
    return longest_chain(partial(_open(kind, 16), torch.zeros(1, length, 16)))


WAYS: dict[str, Callable[[int], int]] = {
    "self-attention": lambda length: layers_between(lambda _: Attention("self-attention"), length),
    "recurrent": steps_between,
    "convolutional": lambda length: layers_between(lambda _: Convolution(8), length),
    "convolutional, dilated": lambda length: layers_between(lambda number: Convolution(8, KERNEL**number), length),
    "restricted": lambda length: layers_between(lambda _: Attention("restricted", NEAR), length),
}
"""How long the path from the first position to the last is, by kind: layers, or the states of a recurrence."""
EXPECTED: dict[str, Callable[[float], float]] = {
    "self-attention": lambda _: 1.0,
    "recurrent": lambda length: length,
    "convolutional": lambda length: (length - 1) / (KERNEL // 2),
    "convolutional, dilated": lambda length: math.log(length, KERNEL),
    "restricted": lambda length: (length - 1) / (NEAR // 2),
}
"""What the table's O() is when counted out."""


def power(points: Sequence[tuple[float, float]], last: int = 3) -> float:
    """The power of x by which y grows: the slope of the last points on logarithmic axes."""
    logs = [(math.log(x), math.log(y)) for x, y in points[-last:]]
    return statistics.linear_regression(*zip(*logs, strict=True)).slope


def _told(what: str, found: Mapping[Kind, Cost]) -> str:
    return f"{what}: " + ", ".join(f"{kind} {1000 * cost.seconds:.3g} ms" for kind, cost in found.items())


def _lines(found: Mapping[int, Mapping[Kind, Cost]], value: Callable[[Cost], float]) -> dict[str, Points]:
    return {kind: [(float(size), float(value(each[kind]))) for size, each in found.items()] for kind in CLAIMS}


def _theory(lines: Mapping[str, Points], powers: Mapping[str, int]) -> dict[str, Points]:
    """Lines of the claimed slopes through the last points."""
    return {
        kind: [(x, points[-1][1] * (x / points[-1][0]) ** powers[kind]) for x, _ in points]
        for kind, points in lines.items()
    }


def _report(
    by_length: Mapping[int, Mapping[Kind, Cost]],
    by_width: Mapping[int, Mapping[Kind, Cost]],
    chains: Mapping[str, Points],
    paths: Mapping[str, Points],
    scale: Scale,
    seconds: float,
) -> Report:
    longest = max(by_length)
    last = by_length[longest]
    full, kept, near = (last[kind] for kind in ("self-attention", KEPT, "restricted"))
    counted = _lines(by_length, lambda cost: cost.operations), _lines(by_width, lambda cost: cost.operations)
    right = sum(
        abs(power(counted[0][kind]) - claim.by_length) + abs(power(counted[1][kind]) - claim.by_width) < 0.05
        for kind, claim in CLAIMS.items()
    )
    waits = {kind: f"{points[-1][1]:,.0f}" for kind, points in chains.items()}
    answer = (
        f"Counted operations grow by the table's powers of n and d in {right} of {len(CLAIMS)} layers. At {longest:,} "
        f"positions attention restricted to {WINDOW} of them takes {near.seconds / full.seconds:.3f} of the time of "
        f"fused self-attention and {near.bytes_taken / kept.bytes_taken:.4f} of the memory of attention whose scores "
        f"are kept. A recurrent layer waits for {waits['recurrent']} operations in a row at {CHAINS[-1]} positions, "
        f"self-attention for {waits['self-attention']} at any length."
    )
    where = torch.cuda.get_device_name(scale.device) if scale.device.type == "cuda" else "a CPU"
    where += "" if scale.device.type == "cuda" else ", one thread"
    note = (
        f"Learning once, forwards and backwards, on {where}; the median of {ROUNDS} rounds in which kinds take turns. "
        f"k = {KERNEL}, r = {WINDOW}; attention without its projections, as in the paper's table."
    )
    return Report(
        "layers",
        "Four kinds of layer: what they cost and how far apart they leave positions",
        "Table 1 of 'Attention is all you need' (Vaswani et al. 2017) states the cost of a layer, the operations that "
        "must follow one another, and the longest path between two positions. Do they hold when measured?",
        answer,
        [_growth(by_length, by_width), _order(chains, paths), *_measured(by_length, note)],
        _plots(by_length, by_width, chains, paths),
        "headway reproduce layers",
        seconds,
    )


def _growth(by_length: Mapping[int, Mapping[Kind, Cost]], by_width: Mapping[int, Mapping[Kind, Cost]]) -> Table:
    """The powers of n and d in every cost, beside those of the paper."""
    scans = [
        _lines(found, value)
        for found, value in (
            (by_length, lambda cost: cost.operations),
            (by_length, lambda cost: cost.seconds),
            (by_length, lambda cost: cost.bytes_taken),
            (by_width, lambda cost: cost.operations),
            (by_width, lambda cost: cost.seconds),
        )
    ]
    rows = []
    for kind, claim in CLAIMS.items():
        counted, timed, taken, wide, timed_wide = (f"{power(lines[kind]):.2f}" for lines in scans)
        rows.append((kind, claim.operations, claim.by_length, counted, timed, taken, claim.by_width, wide, timed_wide))
    columns = ("layer", "paper", "power of n", "operations", "seconds", "bytes", "power of d", "operations", "seconds")
    told = (
        "Powers by which costs grow with the length n and the width d, from the last three sizes. Seconds also hold "
        "what every operation costs however small it is, so that small sizes grow less than they should. Fused "
        "self-attention never holds its scores, and restricted attention only some at a time, the same few at any "
        "length."
    )
    return Table("How costs grow", columns, rows, told)


def _order(chains: Mapping[str, Points], paths: Mapping[str, Points]) -> Table:
    """Sequential operations and paths, beside those of the paper."""
    rows = []
    for kind in paths:
        known, stated = _stated(kind)
        chain = chains[known]
        row = kind, CLAIMS[known].sequential, int(chain[0][1]), int(chain[-1][1]), stated
        rows.append((*row, int(paths[kind][0][1]), int(paths[kind][-1][1])))
    columns = (
        "layer", "sequential, paper", f"n = {CHAINS[0]}", f"n = {CHAINS[-1]}", "path, paper", f"n = {PATHS[0]}",
        f"n = {PATHS[-1]}",
    )  # fmt: skip
    told = (
        "Sequential: the longest chain of operations of which each needs the one before, followed through a forward "
        f"pass. Path: layers, or states of the recurrence, until the gradient of the last position reaches the first "
        f"one; here r = {NEAR}, k = {KERNEL}, dilations of k to the power of the layer."
    )
    return Table("What must wait, and how far it is", columns, rows, told)


def _stated(name: str) -> tuple[Kind, str]:
    """The kind of a layer and its path by the paper, which has two for convolutions (section 4)."""
    if name == "convolutional":
        return "convolutional", "O(n/k)"
    kind: Kind = next(kind for kind in CLAIMS if name.partition(",")[0] == kind)
    return kind, CLAIMS[kind].path


def _measured(by_length: Mapping[int, Mapping[Kind, Cost]], note: str) -> list[Table]:
    columns = ("layer", *(f"n = {length:,}" for length in by_length))
    seconds = [(kind, *(each[kind].seconds for each in by_length.values())) for kind in CLAIMS]
    taken = [(kind, *(each[kind].bytes_taken for each in by_length.values())) for kind in CLAIMS]
    return [
        Table(f"Seconds, d = {DIM}", columns, seconds, note),
        Table(f"Bytes beyond the input, d = {DIM}", columns, taken, "The most that is held at once."),
    ]


def _plots(
    by_length: Mapping[int, Mapping[Kind, Cost]],
    by_width: Mapping[int, Mapping[Kind, Cost]],
    chains: Mapping[str, Points],
    paths: Mapping[str, Points],
) -> list[Plot]:
    length: dict[str, int] = {kind: claim.by_length for kind, claim in CLAIMS.items()}
    width: dict[str, int] = {kind: claim.by_width for kind, claim in CLAIMS.items()}
    memory: dict[str, int] = {kind: 2 if kind == KEPT else 1 for kind in CLAIMS}
    costly = (
        (f"Time by length, d = {DIM}", "positions n", "seconds", _lines(by_length, lambda cost: cost.seconds), length),
        (f"Time by width, n = {LENGTH}", "features d", "seconds", _lines(by_width, lambda cost: cost.seconds), width),
        (f"Memory by length, d = {DIM}", "positions n", "bytes", _lines(by_length, lambda c: c.bytes_taken), memory),
    )
    slopes = "Dashed: the slope of the paper's O(), through the last point."
    plots = [
        Plot(title, x, y, lines, _theory(lines, powers), log_x=True, log_y=True, note=slopes)
        for title, x, y, lines, powers in costly
    ]
    expected = {
        name: [(x, EXPECTED[name](x)) for x in (float(length) for length in range(PATHS[0], PATHS[-1] + 1))]
        for name in paths
    }
    return [
        *plots,
        Plot("Operations in a row", "positions n", "operations", chains, log_x=True, log_y=True),
        Plot("Path between the ends", "positions n", "layers or steps", paths, expected, log_x=True, log_y=True,
             note="Dashed: the paper's O(), counted out for this k and r."),
    ]  # fmt: skip

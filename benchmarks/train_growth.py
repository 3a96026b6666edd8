"""How the cost of training grows with the length of sentences, the size of the model and the vocabulary: JSON lines.

    python benchmarks/train_growth.py                       # all three on a GPU: about two minutes
    python benchmarks/train_growth.py --axes length --device cpu --tokens 256 --most 128 --seconds 0.1
    python benchmarks/train_growth.py --axes parameters --recompute

Headway's own training loop on batches of as many tokens on either side, all sentences equally long. One size grows, the
others stay: a Transformer base, 32,000 known tokens, sentences of 32. Beside each measurement stands what theory has:
the time in which a GPU that multiplied matrices all the time, at the speed measured first, would do the arithmetic of
the step, attention's included; and the bytes of weights, gradients, moments and of what every layer keeps for its
backward pass. `attention` names the kernels that served. Where a batch does not fit, it is tried once more with
`training.recompute`, told as `recompute`, and `without` says what became of it before: split by the trainer, or failed.
With --recompute all are measured so. A batch that fits neither way is `split` or `failed`.
"""

import argparse
import gc
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from headway.runtime.speed import matrix_peak
from headway.training.memory import out_of_memory
from peers.gpu_work import Clock, Size, named, show
from peers.training_gpu import Memory, headway_trainer, loop, packed_batch

USUAL = Size("base", 512, 8, 2048, 6, vocabulary=32_000, tokens=16_384)
LENGTH = 32
LENGTHS = [64, 128, 256, 512, 1024, 2048, 4096, 8192]
VOCABULARIES = [1000, 2000, 4000, 8000, 16_000, 32_000, 64_000, 128_000]
MODELS = [
    Size(f"{dim}x{layers}", dim, max(1, dim // 64), 4 * dim, layers, vocabulary=8000, tokens=16_384)
    for dim, layers in ((64, 3), (128, 3), (256, 3), (512, 3), (512, 6), (1024, 6), (1280, 12), (1536, 16))
]
KERNELS = {"_packed_flash": "flash", "_fused": "torch", "_dropping": "cpu", "_explicit": "explicit"}
"""The doors of `attend` behind which kernels stand."""
SLICES = 3


@dataclass(frozen=True)
class Point:
    """One measurement to be taken."""

    axis: str
    value: int
    size: Size
    length: int
    recompute: bool = False

    @property
    def parameters(self) -> int:
        """About, biases and norms left out."""
        size, inner = self.size, 2 * self.size.dim * self.size.hidden
        return size.layers * (12 * size.dim**2 + 2 * inner) + size.vocabulary * size.dim

    @property
    def pairs(self) -> int:
        return max(1, self.size.tokens // self.length)

    def flops(self) -> float:
        """Of a step: the weights' and attention's, a causal one's by half, and a third more where layers run twice."""
        tokens, size = self.pairs * self.length, self.size
        attention = 3 * size.layers * tokens * self.length * size.dim * (4 + 2 + 4)
        whole, output = size.flops(tokens, tokens) + attention, 6 * tokens * size.vocabulary * size.dim
        return whole + (whole - output) / 3 if self.recompute else whole

    def bytes(self) -> float:
        """Weights, gradients and two moments of four bytes, bf16 copies, and what is kept for the backward pass."""
        tokens, size = self.pairs * self.length, self.size
        kept = size.layers * (8 * size.dim + 2 * size.hidden + 14 * size.dim + 2 * size.hidden)
        if self.recompute:  # what layers are given, keys and values of the source among it, and one decoder layer whole
            kept = size.layers * 4 * size.dim + 14 * size.dim + 2 * size.hidden
        return 18 * self.parameters + 2 * tokens * kept


def points(axes: list[str], tokens: int | None, most: int | None) -> Iterator[Point]:
    """All measurements of the axes, up to the size `most` of each."""
    for axis in axes:
        found = {
            "length": [Point(axis, length, USUAL, length) for length in LENGTHS],
            "parameters": [Point(axis, 0, size, LENGTH) for size in MODELS],
            "vocabulary": [Point(axis, count, replace(USUAL, vocabulary=count), LENGTH) for count in VOCABULARIES],
        }[axis]
        for point in found:
            chosen = replace(point, size=replace(point.size, tokens=tokens or point.size.tokens))
            chosen = replace(chosen, value=chosen.value or chosen.parameters)
            if most is None or chosen.value <= most:
                yield chosen


@contextmanager
def watched(served: set[str]) -> Iterator[None]:
    """Note which kernels attention is given to meanwhile."""
    module = sys.modules["headway.nn.attention.attend"]  # whose name in the package is the function's
    doors = [(module, name, told) for name, told in KERNELS.items() if hasattr(module, name)]
    short = module._short_kernel()
    if short is not None:
        doors.append((short, "attend_short", "short"))
    before = [getattr(place, name) for place, name, _ in doors]
    try:
        for (place, name, told), kernel in zip(doors, before, strict=True):
            setattr(place, name, noting(served, told, kernel))
        yield
    finally:
        for (place, name, _), kernel in zip(doors, before, strict=True):
            setattr(place, name, kernel)


def noting(served: set[str], told: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    def noted(*given: Any, **more: Any) -> Any:
        served.add(told)
        return kernel(*given, **more)

    return noted


def measured(point: Point, seconds: float, device: torch.device) -> dict[str, Any]:
    """Milliseconds, memory and kernels of one point."""
    gpu, size = device.type == "cuda", point.size
    held = torch.cuda.memory_allocated(device) if gpu else 0
    if gpu:
        torch.cuda.reset_peak_memory_stats(device)
    model = size.model(longest=max(point.length, 2))
    training = {"layout": "packed", "recompute": point.recompute}
    trainer = headway_trainer(model, size.vocabulary, point.pairs * point.length, device, point.length, **training)
    lengths = np.full((2, point.pairs), point.length)
    trainer.feed = Memory([packed_batch(lengths, size.vocabulary) for _ in range(2)])
    served: set[str] = set()
    clock = Clock(device)
    with watched(served):
        loop(trainer, 0, 3)
    warm_up = clock()
    loop(trainer, 3, 2)
    count = max(1, round(seconds / SLICES / (clock() / 2)))
    times = []
    for _ in range(SLICES):
        loop(trainer, trainer.progress.step, count)
        times.append(1000 * clock() / count)
    return {
        "ms_per_step": round(statistics.median(times), 3),
        "spread": [round(min(times), 3), round(max(times), 3)],
        "tokens_per_second": round(1000 * point.pairs * point.length / statistics.median(times)),
        "peak_bytes": torch.cuda.max_memory_allocated(device) - held if gpu else None,
        "attention": sorted(served),
        "parameters": sum(weight.numel() for weight in trainer.model.parameters()),
        "captured": trainer.captured is not None and not trainer.captured.failed,
        "recompute": point.recompute,
        "split": trainer.progress.cells is not None,
        "warm_up_seconds": round(warm_up, 2),
    }


def tried(point: Point, seconds: float, device: torch.device) -> dict[str, Any]:
    """The same beside what theory has, or why it failed; again with layers run twice where a batch does not fit."""
    try:
        found = measured(point, seconds, device)
        short = found["split"]
    except Exception as error:  # noqa: BLE001  # where it stops is a finding
        found = {"failed": f"{type(error).__name__}: {error}"[:200]}
        short = isinstance(error, RuntimeError) and out_of_memory(error)
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    if short and not point.recompute:
        return tried(replace(point, recompute=True), seconds, device) | {"without": found.get("failed", "split")}
    return {"theory_flops": point.flops(), "theory_bytes": round(point.bytes())} | found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ["length", "parameters", "vocabulary"]
    parser.add_argument("--axes", nargs="+", choices=names, default=names)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=1.0, help="that each point is measured for")
    parser.add_argument("--tokens", type=int, help="of a batch on either side; 16,384 by default")
    parser.add_argument("--most", type=int, help="leave larger sizes out")
    parser.add_argument("--recompute", action="store_true", help="compute all layers again in the backward pass")
    options = parser.parse_args()
    device = torch.device(options.device)
    peak = matrix_peak(device, half=device.type == "cuda")
    for point in points(options.axes, options.tokens, options.most):
        size = point.size
        line = {"growth": point.axis, "value": point.value, "system": "headway", "device": named(device)}
        line |= {"dim": size.dim, "layers": size.layers, "vocabulary": size.vocabulary, "length": point.length}
        line |= {"tokens": point.pairs * point.length, "matmul_teraflops": round(peak / 1e12, 2)}
        line |= tried(replace(point, recompute=options.recompute), options.seconds, device)
        line["theory_ms"] = round(1000 * line.pop("theory_flops") / peak, 3)
        show(**line)


if __name__ == "__main__":
    main()

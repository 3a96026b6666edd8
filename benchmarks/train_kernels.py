"""Where an update spends its time on a GPU, how exact its gradients are, and attention beside torch's packed kernel.

    python benchmarks/train_kernels.py                         # all of it, base and tiny: about a minute
    python benchmarks/train_kernels.py --parts profile --sizes base

profile: microseconds an update and launches, by kernel. gradients: how far those of a fresh model without dropout are
from single precision, by our kernels and by torch's under autocast. attention: microseconds of one sub-layer forwards,
and forwards and backwards. One JSON line a finding. `--device cpu --sizes mini` tries what needs no GPU.
"""

import argparse
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity
from torch.profiler import profile as profiler

from headway.nn.attention import Visible
from headway.nn.attention.parts import side_by_side
from peers.gpu_work import SIZES, Size, named, show
from peers.training_gpu import Memory, headway_trainer, headway_work, loop

WARM, PROFILED, REPEATED = 24, 8, 10


def profiled(size: Size, device: torch.device, most: int = 40) -> None:
    trainer = headway_trainer(size.model(), size.vocabulary, size.tokens, device)
    trainer.feed = Memory(headway_work(size, WARM, device, trainer.config.layout).batches)
    loop(trainer, 0, WARM)
    gpu = device.type == "cuda"
    with profiler(activities=[ProfilerActivity.CUDA] if gpu else [ProfilerActivity.CPU]) as found:
        loop(trainer, WARM, PROFILED)
    sums: dict[str, list[float]] = defaultdict(list)
    for event in found.events():
        if (event.device_type == DeviceType.CUDA) == gpu:
            sums[event.name].append(event.device_time if gpu else event.self_cpu_time_total)
    common = {"part": "profile", "model": size.name, "device": named(device)}
    counts, times = (sum(map(how, sums.values())) / PROFILED for how in (len, sum))
    show(**common, kernel="all", microseconds=round(times, 1), launches=round(counts, 1))
    for name, each in sorted(sums.items(), key=lambda item: -sum(item[1]))[:most]:
        show(**common, kernel=name[:100], microseconds=round(sum(each) / PROFILED, 1), launches=len(each) / PROFILED)


@contextmanager
def plain() -> Iterator[None]:
    """Torch's kernels alone."""
    import headway.nn.attention.short as short
    from headway.nn import dropout, linear
    from headway.objectives import projection
    from headway.training import passes

    with (
        patch.object(dropout, "element_kernels", lambda: None),
        patch.object(linear, "element_kernels", lambda: None),
        patch.object(short, "serves", lambda *_: False),
        patch.object(projection, "_kernel_serves", lambda _: False),
        patch.object(passes, "lowered", lambda *_: nullcontext()),
    ):
        yield


def gradients(size: Size, device: torch.device) -> None:
    trainer = headway_trainer(size.model(dropout=0.0, activation_dropout=0.0), size.vocabulary, size.tokens, device)
    batch = headway_work(size, 1, device, trainer.config.layout).batches[0]
    model = trainer.model.train()

    def found(arithmetic: Callable[[], Any]) -> tuple[float, torch.Tensor]:
        trainer.optimiser.zero_grad()
        with arithmetic():
            loss = trainer.gradients.forward(batch.to(device), 1)
        (loss.total / batch.units).backward()
        slopes = [weight.grad.flatten().double() for weight in model.parameters()]
        return float(loss.surprise) / batch.units, torch.cat(slopes)

    with plain():
        exact, wanted = found(nullcontext)
        by_torch = found(trainer.arithmetic)
    for name, (loss, slope) in {"torch": by_torch, "headway": found(trainer.arithmetic)}.items():
        apart = float((slope - wanted).norm() / wanted.norm())
        common = {"part": "gradients", "model": size.name, "device": named(device), "kernels": name}
        show(**common, relative_error=round(apart, 5), loss=round(loss, 5), loss_in_single=round(exact, 5))


def attention(size: Size, device: torch.device) -> None:
    from headway.nn.attention.attend import _packed_flash
    from headway.nn.attention.short import attend_short

    source = headway_work(size, 1, device, "packed").batches[0].source.to(device)
    visible = Visible.between(source, source)
    kernels = {"headway": attend_short, "torch": _packed_flash}
    shape = len(source.tokens), 3 * size.dim
    x = torch.randn(shape, device=device, dtype=torch.bfloat16, requires_grad=True)
    for name, kernel in kernels.items():

        def forwards(kernel: Any = kernel) -> torch.Tensor:
            return kernel(*side_by_side(x, 3, size.heads), visible)

        def both(forwards: Any = forwards) -> None:
            torch.autograd.grad(forwards().sum(), x)

        common = {"part": "attention", "model": size.name, "device": named(device), "kernels": name}
        show(**common, forwards=microseconds(forwards), forwards_and_backwards=microseconds(both))


def microseconds(work: Callable[[], object]) -> float:
    """Of one call among several in a graph, the median of five replays."""
    aside = torch.cuda.Stream()
    with torch.cuda.stream(aside):
        work()
    torch.cuda.synchronize()
    graph, times = torch.cuda.CUDAGraph(), []
    with torch.cuda.graph(graph):
        for _ in range(REPEATED):
            work()
    for _ in range(5):
        begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begun.record()
        graph.replay()
        ended.record()
        ended.synchronize()
        times.append(begun.elapsed_time(ended))
    return round(1000 * statistics.median(times) / REPEATED, 1)


PARTS = {"profile": profiled, "gradients": gradients, "attention": attention}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["base", "tiny"])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    device = torch.device(options.device)
    for size in options.sizes:
        for part in options.parts:
            if part != "attention" or device.type == "cuda":
                PARTS[part](SIZES[size], device)


if __name__ == "__main__":
    main()

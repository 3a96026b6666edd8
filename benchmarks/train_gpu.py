"""Training speed on one GPU: Headway beside torch.nn.Transformer and Hugging Face's Marian, eager and compiled.

    python benchmarks/train_gpu.py                                     # base, small and tiny: about six minutes
    python benchmarks/train_gpu.py --sizes tiny --systems headway marian
    python benchmarks/train_gpu.py --memory --sizes base               # the largest batch that fits instead
    python benchmarks/train_gpu.py --utilisation 60 --data FOLDER      # how busy real files keep the GPU instead

The same work for all: the same shape of model, embeddings tied three ways, as many real target tokens a step, lengths
log-normal; bf16, fused Adam, label smoothing 0.1, clipping at 1; dropout 0.1 on embeddings, residuals and feed-forward
activations, none on attention weights unless the name says so. All batches are made ahead; the peers' lie on the GPU,
sorted by length. Compiling and capturing come before the measurement. Then round after round every system trains for a
short while. One JSON line a system: the median of its rounds in real target tokens a second, their spread, and the
share of the bf16 matrix product measured in the same run that its useful arithmetic comes to. A last line a size
compares. `--device cpu --sizes mini` tries it all without a GPU.
"""

import argparse
import gc
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from headway.runtime.speed import matrix_peak
from headway.training.memory import out_of_memory
from peers.gpu_work import SIZES, Clock, Size, Work, largest, named, show, sorted_work
from peers.training_gpu import (
    OURS,
    PEERS,
    Memory,
    System,
    compiled,
    headway,
    headway_trainer,
    headway_work,
    loop,
    marian_model,
    marian_objective,
    peer_update,
)
from peers.utilisation import utilisation

SMALL = ("small", "tiny", "mini")
"""Sizes at which launches cost more than arithmetic, so that peers are captured too."""


@dataclass
class Entry:
    """A system under measurement."""

    name: str
    system: System
    warm_up: float
    each: float
    """Seconds a step, about."""
    memory: int
    """Bytes at the most, of all it did so far."""
    place: int = 0
    speeds: list[float] = field(default_factory=list)

    def measure(self, seconds: float, device: torch.device) -> None:
        """One round."""
        count = max(1, round(seconds / self.each))
        tokens = sum(self.system.work.target[number % len(self.system.work)] for number in self.take(count))
        clock = Clock(device)
        self.system.run(self.place - count, count)
        self.speeds.append(tokens / clock())

    def take(self, count: int) -> range:
        self.place += count
        return range(self.place - count, self.place)


def prepared(name: str, size: Size, work: Work, device: torch.device) -> Entry:
    """Build a system and let it compile and capture what it will."""
    before = forget_peak(device)
    torch.manual_seed(1)
    clock = Clock(device)
    system = PEERS[name](size, work, device) if name in PEERS else headway(name, size, len(work), device)
    count = len(work)
    system.run(0, (system.passes - 1) * count)
    warm_up = clock()
    system.run((system.passes - 1) * count, count)
    each = clock() / count
    memory = torch.cuda.max_memory_allocated(device) - before if device.type == "cuda" else 0
    return Entry(name, system, warm_up, each, memory, system.passes * count)


def forget_peak(device: torch.device) -> int:
    gc.collect()
    if device.type != "cuda":
        return 0
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device)


def table(size: Size, options: argparse.Namespace, device: torch.device) -> None:
    """All systems on one size, in turns."""
    work = sorted_work(size, options.batches, device)
    wanted = options.systems or [*PEERS, *OURS]
    if not options.systems and size.name not in SMALL:
        wanted.remove("marian-captured")
    entries = []
    for name in wanted:
        try:
            entries.append(prepared(name, size, work, device))
        except Exception as error:  # noqa: BLE001  # the others go on
            show(system=name, model=size.name, failed=f"{type(error).__name__}: {error}"[:300])
    peak = matrix_peak(device, half=device.type == "cuda")
    for _ in range(options.rounds):
        for entry in entries:
            entry.measure(options.slice, device)
    peak = max(peak, matrix_peak(device, half=device.type == "cuda"))
    report(size, entries, peak, device)


def report(size: Size, entries: list[Entry], peak: float, device: torch.device) -> None:
    middle = {entry.name: statistics.median(entry.speeds) for entry in entries}
    peers = {name: middle[name] for name in middle if name in PEERS}
    best = max(peers, key=peers.__getitem__, default=None)
    for entry in entries:
        work = entry.system.work
        source, target = (statistics.mean(side) for side in (work.source, work.target))
        speed = middle[entry.name]
        line = {"system": entry.name, "model": size.name, "device": named(device)}
        line |= {"tokens_per_second": round(speed), "spread": [round(min(entry.speeds)), round(max(entry.speeds))]}
        line |= {
            "rounds": len(entry.speeds),
            "tokens_per_step": round(target),
            "steps_per_second": round(speed / target, 2),
        }
        line |= {"share_of_matmul_peak": round(speed / target * size.flops(source, target) / peak, 4)}
        line |= {"matmul_teraflops": round(peak / 1e12, 1), "peak_gib": round(entry.memory / 2**30, 2)}
        line |= {"warm_up_seconds": round(entry.warm_up, 1)}
        line |= {"ratio_to_best_peer": round(speed / peers[best], 3)} if best else {}
        show(**line, **entry.system.told)
    if best and "headway" in middle:
        ratios = {name: round(middle["headway"] / peers[name], 2) for name in peers}
        show(summary="training", model=size.name, best_peer=best, ratio=ratios[best], ratios=ratios)


def memory(size: Size, options: argparse.Namespace, device: torch.device) -> None:
    """The most target tokens of a batch with which each system can take a step."""
    if options.gib and device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, options.gib * 2**30 / total), device)
    makers = {
        "headway": lambda: partial(headway_fits, size, device),
        "marian": lambda: MarianFits(size, device),
        "marian-compiled": lambda: MarianFits(size, device, compiles=True),
    }
    found = {}
    for name in [name for name in makers if name in (options.systems or makers)]:
        clock, probe = Clock(device), Probe(makers[name](), device)
        found[name] = largest(probe, start=size.tokens, most=options.most)
        line = {"system": name, "model": size.name, "device": named(device), "gib": options.gib}
        line |= {"largest_batch_tokens": found[name], "probes": probe.tried, "seconds": round(clock(), 1)}
        show(**line, **({"failed": probe.other} if probe.other else {}))
        del probe
        forget_peak(device)
    if "headway" in found and len(found) > 1:
        ratios = {name: round(found["headway"] / max(most, 1), 2) for name, most in found.items() if name != "headway"}
        show(summary="memory", model=size.name, ratios=ratios)


@dataclass
class Probe:
    """Asks whether a batch fits, and frees all it took."""

    fits: Callable[[int], bool]
    device: torch.device
    tried: int = 0
    other: str | None = None
    """What went wrong, where that was not memory."""

    def __call__(self, tokens: int) -> bool:
        self.tried += 1
        try:
            return self.fits(tokens)
        except RuntimeError as error:
            if not out_of_memory(error):
                self.other = f"{tokens} tokens: {error}"[:200]
            return False
        finally:
            forget_peak(self.device)


class MarianFits:
    """Whether Marian can learn from a batch of so many tokens; one model for all tries, so that it compiles once."""

    def __init__(self, size: Size, device: torch.device, *, compiles: bool = False) -> None:
        self.size, self.device, self.compiles = size, device, compiles
        self.update: Any = None

    def __call__(self, tokens: int) -> bool:
        if self.update is None:
            model = marian_model(self.size).to(self.device).train()
            objective = marian_objective(model)
            self.update = peer_update(model, compiled(objective) if self.compiles else objective, self.device)
        (batch,) = sorted_work(replace(self.size, tokens=tokens), 1, self.device).batches
        try:
            for _ in range(2):
                self.update(batch)
        finally:
            self.update.optimiser.zero_grad(set_to_none=True)
        Clock(self.device)()
        return True


def headway_fits(size: Size, device: torch.device, tokens: int) -> bool:
    """Whether Headway's trainer takes such a batch whole; where memory runs out it goes on with halves."""
    trainer = headway_trainer(size.model(), size.vocabulary, tokens, device)
    trainer.feed = Memory(headway_work(replace(size, tokens=tokens), 1, device, trainer.config.layout).batches)
    loop(trainer, 0, 2)
    Clock(device)()
    return trainer.progress.cells is None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["base", "small", "tiny"])
    parser.add_argument("--systems", nargs="+", choices=[*PEERS, *OURS])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--slice", type=float, default=1.5, help="seconds a system trains in a round")
    parser.add_argument("--batches", type=int, default=24, help="batches made ahead, taken round and round")
    parser.add_argument("--memory", action="store_true", help="look for the largest batch instead")
    parser.add_argument("--gib", type=float, help="with --memory: as if the GPU had only so much")
    parser.add_argument("--most", type=int, default=1 << 23, help="with --memory: tokens not to go beyond")
    parser.add_argument("--utilisation", type=float, metavar="SECONDS", help="train from files and watch the GPU")
    parser.add_argument("--data", type=Path, help="with --utilisation: the folder of the corpus")
    parser.add_argument("--source", default="train.en")
    parser.add_argument("--target", default="train.de")
    parser.add_argument("--preset", default="small", choices=["tiny", "small", "base", "big"])
    options = parser.parse_args()
    device = torch.device(options.device)
    if options.utilisation:
        if options.data is None:
            parser.error("--utilisation needs --data")
        utilisation(options, device)
        return
    for name in options.sizes:
        (memory if options.memory else table)(SIZES[name], options, device)
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()

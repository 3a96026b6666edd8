"""Compiles our kernels for a Hopper GPU where there is none: one JSON line for each specialisation, or its error.

    python tests/unit/nn/kernels_for_hopper.py tiny base decoding

Nothing is launched. Whatever our own code would launch, for tensors that only say they are on a GPU, is bound and
specialised as Triton does it, and compiled down to machine code. Results are what memory held, and mean nothing.
"""

import ast
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

import headway
import headway.nn.compiling

SOURCE = Path(headway.__file__).parents[1]
LENGTHS = (70, 33, 20, 5)
"""Of sentences: some fit a tile, and the first is shared by several programs."""
_RUN = JITFunction.run


class Hopper:
    """What Triton asks a driver when it binds and compiles."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


class Compiler:
    """Stands in for launching: compiles, and tells of each specialisation once."""

    def __init__(self) -> None:
        self.case, self.told = "", set()

    def __call__(self, kernel: JITFunction, *arguments: Any, grid: Any, warmup: bool, **named: Any) -> None:
        try:
            made = _RUN(kernel, *arguments, grid=grid, warmup=True, **named)
        except Exception as error:  # noqa: BLE001  # whatever the compiler says is told of
            self.tell(kernel, error=f"{type(error).__name__}: {error}")
            return
        if made.hash not in self.told:
            self.told.add(made.hash)
            constants = {kernel.arg_names[path[0]]: value for path, value in made.src.constants.items()}
            self.tell(kernel, constants=constants, shared=made.metadata.shared, **resources(made.asm["cubin"]))

    def tell(self, kernel: JITFunction, **facts: Any) -> None:
        line = {"case": self.case, "kernel": named(kernel), "holds": sorted(held(kernel)), **facts}
        print(json.dumps(line, default=str), flush=True)


def named(kernel: JITFunction) -> str:
    return f"{kernel.fn.__module__}.{kernel.fn.__name__}"


def held(kernel: JITFunction) -> set[str]:
    """The kernels whose code becomes part of this one, itself among them."""
    names = {node.id for node in ast.walk(kernel.parse()) if isinstance(node, ast.Name)}
    others = (kernel.fn.__globals__.get(name) for name in names)
    return {named(kernel)}.union(*(held(each) for each in others if isinstance(each, JITFunction)))


def resources(cubin: bytes) -> dict[str, int]:
    """Registers of a thread, and the bytes it has on its stack: what did not fit into them."""
    tool, file = triton.knobs.nvidia.cuobjdump.path, Path(triton.knobs.cache.dir) / "looked-at.cubin"
    file.write_bytes(cubin)
    told = subprocess.run([tool, "--dump-resource-usage", file], capture_output=True, text=True, check=True).stdout
    registers, stack = re.search(r"REG:(\d+) STACK:(\d+)", told).groups()
    return {"registers": int(registers), "stack": int(stack)}


def wide_product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return torch.mm(left.float(), right.float())


def pretend() -> Compiler:
    """Make every tensor say that it is on a GPU, and every launch compile."""
    compiler = Compiler()
    driver.set_active(Hopper())
    JITFunction.run = lambda *given, **named: compiler(*given, **named)  # noqa: PLW0108  # which becomes a method
    torch.Tensor.is_cuda = property(lambda tensor: True)
    headway.nn.compiling.compiles = lambda: True
    # Before others import it: on a CPU torch has no product that is wider than its factors.
    importlib.import_module("headway.nn.linear").widely = wide_product
    importlib.import_module("headway.objectives.projection")._adds_to_single = lambda device: False
    return compiler


@contextmanager
def half_precision(enabled: bool) -> Iterator[None]:
    """As autocast on a GPU leaves it."""
    before = torch.is_autocast_enabled("cuda")
    torch.set_autocast_enabled("cuda", enabled)
    torch.set_autocast_dtype("cuda", torch.bfloat16)
    try:
        yield
    finally:
        torch.set_autocast_enabled("cuda", before)


def model_of(vocabulary: int = 10_000, **settings: Any) -> Any:
    from headway.models.transformer import Transformer, TransformerConfig

    config = TransformerConfig(**{"longest": 128, "encoder_layers": 1, "decoder_layers": 1, **settings})
    return Transformer(config, vocabulary, vocabulary)


def training(half: bool = True, lengths: tuple[int, ...] = LENGTHS, **settings: Any) -> None:
    """One pass of training over packed sentences, there and back; a layer of each kind stands for all."""
    from headway.data.batches import Batch
    from headway.objectives import LabelSmoothedLikelihood
    from headway.sequences import Sequences
    from headway.training.passes import Pass

    sentences = Sequences.pack([[7] * length for length in lengths])
    layers = {"encoder_layers": 1, "decoder_layers": 1}
    model = model_of(**{**settings, **layers}).train()
    batch = Batch(sentences, sentences, sentences.tokens, len(sentences.tokens))
    with half_precision(half):
        loss = Pass(model, LabelSmoothedLikelihood(0.1))(batch, 1)
    loss.total.backward()


def widest(dim: int = 8192) -> None:
    """The kernels that hold whole rows, of as many features as they take."""
    from headway.nn.dropout import Dropout
    from headway.nn.embedding import Embedding, embedded
    from headway.nn.positions import Positions
    from headway.nn.residual import Residual

    tokens, residual = torch.arange(7), Residual(dim, norm="post", dropout=0.1).train()
    with half_precision(True):
        x = embedded(Embedding(9, dim), Positions(), Dropout(0.1).train(), tokens, tokens, wide=False)
        one, other = residual.leave_twice(x, x)
        (residual.leave(one, other).sum() + residual.norm(other).sum()).backward()


def reading(precision: torch.dtype) -> None:
    """Packed sentences read without gradients, as a loss is measured."""
    from headway.sequences import Sequences

    sentences = Sequences.pack([[7] * length for length in LENGTHS])
    with torch.no_grad():
        model_of(preset="tiny").eval().to(precision)(sentences, sentences)


def decoding(precision: torch.dtype = torch.float16, beam: int = 4, **settings: Any) -> None:
    """The beginning and a step of a captured search, whose sums are in single precision whatever the model's."""
    from headway.engine.captured import Captured, Room
    from headway.search import Scoring, Symbols

    model = model_of(**{"preset": "base", "vocabulary": 37_000, **settings}).eval().to(precision)
    with torch.inference_mode():
        room = Room(sentences=8, source=48, target=64, beam=beam, nbest=1, scoring=Scoring(0.6))
        search = Captured(model, Symbols(1, 2, (0, 1)), room)
        search.penalties = torch.ones(room.target + 3, dtype=torch.float64)  # as where kernels choose
        search._begin()
        search._step(16)


@triton.jit
def wrong(x, COUNT: tl.constexpr):
    tl.store(x + tl.arange(0, COUNT), 1.0)


def refused() -> None:
    """What the interpreter accepts and the compiler does not: to see that it is told of."""
    wrong[(1,)](torch.zeros(3), COUNT=3)


def fitting(**settings: Any) -> Callable[[], None]:
    return lambda: training(**settings)


FAST = ("tiny", "base", "decoding", "refused")
"""Cases that hold every kernel between them, and one that must fail."""
CASES: dict[str, Callable[[], None]] = {
    "tiny": fitting(preset="tiny", lengths=LENGTHS[1:]),
    "base": fitting(preset="base", vocabulary=37_000, activation_dropout=0.1),
    "decoding": decoding,
    "refused": refused,
    "tiny, long sentences": fitting(preset="tiny"),
    "small": fitting(preset="small", attention_dropout=0.1, norm="pre", feedforward="gated", positions="rotary"),
    "big": fitting(preset="big", vocabulary=50_001, attention_dropout=0.1, activation_dropout=0.1),
    "wide heads": fitting(dim=256, heads=2, norm="pre", attention_dropout=0.6, dropout=0.6),
    "narrow heads": fitting(dim=66, heads=6, dropout=0.0),
    "sixteen": fitting(dim=64, heads=4, attention_dropout=0.1, feedforward="gelu", positions="learned"),
    "widest": widest,
    "single precision": fitting(half=False, preset="tiny", attention_dropout=0.1, activation_dropout=0.1),
    "single precision, base": fitting(half=False, preset="base", norm="pre"),
    "reading in float16": lambda: reading(torch.float16),
    "decoding in single precision": lambda: decoding(torch.float32, beam=5, preset="tiny"),
    "decoding in bfloat16": lambda: decoding(torch.bfloat16, beam=1, vocabulary=9),
}


def kernels() -> list[str]:
    """Every kernel of the package, found in its source."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "@triton.jit" in text:
            module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
            functions = (node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef))
            jitted = (
                each.name for each in functions if any("triton.jit" in ast.unparse(x) for x in each.decorator_list)
            )
            found += [f"{module}.{name}" for name in jitted]
    return found


if __name__ == "__main__":
    compiling = pretend()
    for name in sys.argv[1:] or CASES:
        compiling.case = name
        CASES[name]()

"""Checks of what the model computes: step by step as in one go, packed as padded, and nothing it must not see."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headway.proof.finding import Finding
from headway.proof.subject import SEED, Subject
from headway.sequences import Sequences

ROWS = 1, 3, 2, 4, 4, 1, 3, 4, 2, 3, 4, 4
"""How many rows each sentence has, step by step: a beam that widens and narrows."""
LEAVING = 5
"""The step after which a sentence leaves the batch."""


@torch.inference_mode()
def cache(subject: Subject) -> Finding:
    """Step by step with a memory, the next tokens have the probabilities of one pass over everything."""
    model, length = subject.writer, subject.config.longest
    short = subject.sentences[:4], subject.targets(len(subject.sentences[:4]), length)
    long = [subject.longest], subject.targets(1, len(subject.longest) + 1)
    worst = 0.0
    for sentences, outputs in (short, long):
        encoded = model.encode(subject.padded(subject.ended(sentences)))
        whole = model.decode(subject.padded(outputs), encoded).states
        state = model.start(encoded)
        for time in range(whole.shape[1]):
            newest = torch.tensor([[output[time]] for output in outputs])
            got, state = model.step(newest, None, state)
            worst = max(worst, apart(model.output(whole[:, time]).float().log_softmax(-1), got[:, 0]))
    told = f"every step and one pass over {length} and {len(subject.longest) + 1} tokens, log-probabilities"
    return Finding.difference(told, worst)


@torch.inference_mode()
def ancestry(subject: Subject) -> Finding:
    """Rows that descend from one another as in a beam see their own past, each read whole for comparison."""
    model, draw, worst = subject.writer, random.Random(SEED), 0.0
    sentences = list(subject.sentences[:4])
    state = model.start(model.encode(subject.padded(subject.ended(sentences))))
    tokens = iter(subject.targets(1, 1 + len(ROWS) * len(sentences) * max(ROWS))[0][1:])
    written: list[list[list[int]]] = [[[]] for _ in sentences]
    for time, rows in enumerate(ROWS[: subject.config.longest]):
        parents = [[draw.randrange(len(past)) for _ in range(rows)] for past in written]
        newest = [[subject.symbols.start if time == 0 else next(tokens) for _ in range(rows)] for _ in sentences]
        written = [
            [[*past[parent], token] for parent, token in zip(own, new, strict=True)]
            for past, own, new in zip(written, parents, newest, strict=True)
        ]
        got, state = model.step(torch.tensor(newest), None if time == 0 else torch.tensor(parents), state)
        sources = [source for source in subject.ended(sentences) for _ in range(rows)]
        outputs = subject.padded([output for each in written for output in each])
        whole = model.decode(outputs, model.encode(subject.padded(sources))).states[:, -1]
        worst = max(worst, apart(model.output(whole).float().log_softmax(-1), got.flatten(0, 1)))
        if time == LEAVING:
            stay = list(range(len(sentences)))[::-1][: max(1, len(sentences) - 1)]
            state = model.keep(state, torch.tensor(stay))
            sentences, written = [sentences[place] for place in stay], [written[place] for place in stay]
    told = f"{len(ROWS)} steps of up to {max(ROWS)} rows that part and die out, and each row read whole"
    return Finding.difference(told, worst)


@torch.inference_mode()
def layout(subject: Subject) -> Finding:
    """Sentences one after the other, with no padding, have the states of sentences side by side."""
    model = subject.writer
    if not model.config.packable:
        return Finding("states of sentences, packed and padded", "the model reads padded sentences only", None)
    sentences = [*subject.sentences[:7], subject.longest]
    outputs = [output[: 1 + place * 4] for place, output in enumerate(subject.targets(len(sentences), 32))]
    outputs = [output[: len(subject.longest)] for output in outputs]
    source, target = subject.padded(subject.ended(sentences)), subject.padded(outputs)
    packed = [Sequences.pack(rows).to(subject.engine.device) for rows in (subject.ended(sentences), outputs)]
    left, right = model.encode(source), model.encode(packed[0])
    worst = apart(left.states[source.present], right.states)
    worst = max(worst, apart(model.decode(target, left).states[target.present], model.decode(packed[1], right).states))
    return Finding.difference(f"states of {len(sentences)} sentences, packed and padded, relative above 1", worst)


def look_ahead(subject: Subject) -> Finding:
    """No state of an output hangs on later tokens, on padding or on another sentence; on all others it does."""
    model, length = subject.writer, min(6, subject.engine.longest)
    long, short = (subject.longest * 2)[:length], subject.longest[: max(1, length - 3)]
    source = subject.padded(subject.ended([long, short]))
    outputs = subject.targets(2, length)
    target = subject.padded([outputs[0], outputs[1][: max(1, length - 2)]])
    with torch.enable_grad():
        read, encoded = embedded(model, lambda: model.encode(source))
        written, decoded = embedded(model, lambda: model.decode(target, encoded))
    if read is None and not model.config.reads_source:
        read = torch.zeros(0, 0, 1, requires_grad=True)  # nothing to hang on
    if read is None or written is None:
        return Finding("gradients of states", "the model has no layer that takes tokens", None)
    hidden, shown = 0.0, float("inf")
    for sentence, size in enumerate(target.lengths.tolist()):
        for time in range(size):
            inner, outer = sensitivity(decoded.states[sentence, time], [written, read])
            seen = torch.zeros_like(inner, dtype=torch.bool)
            seen[sentence, : time + 1] = True
            known = torch.zeros_like(outer, dtype=torch.bool)
            if known.numel():
                known[sentence, : int(source.lengths[sentence])] = True
            hidden = max(hidden, _most(inner[~seen]), _most(outer[~known]))
            shown = min([shown, float(inner[seen].min()), *outer[known].tolist()])
    figure = f"forbidden {hidden:.1e}, allowed at least {shown:.1e}"
    told = "gradient of states by later tokens, padding and other sentences, and by the rest"
    return Finding(told, figure, hidden == 0.0 and (shown > 0.0 or not model.config.reads_all), hidden)


def embedded(model: nn.Module, call: Callable[[], Any]) -> tuple[Float[Tensor, "batch time dim"] | None, Any]:
    """What a call gives, and the vectors of its tokens, by which gradients can be taken."""
    caught: list[Tensor] = []

    def catch(_: nn.Module, given: tuple[Any, ...], vectors: Any) -> Any:
        if not (given and isinstance(given[0], Tensor) and isinstance(vectors, Tensor)) or given[0].is_floating_point():
            return None
        caught.append(vectors.detach().requires_grad_())
        return caught[-1]

    with hooked(model, catch):
        result = call()
    return (caught[0] if caught else None), result


@contextmanager
def hooked(model: nn.Module, catch: Callable[..., Any]) -> Iterator[None]:
    """Let `catch` see, and change, what every innermost part of the model gives."""
    inner = (module for module in model.modules() if not any(module.children()))
    handles = [module.register_forward_hook(catch) for module in inner]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def sensitivity(state: Float[Tensor, " dim"], vectors: Sequence[Tensor]) -> list[Float[Tensor, "batch time"]]:
    """How much a state hangs on each token; zero where it does not at all."""
    # A random direction: the sum of what a norm gives is constant, and its gradient nothing.
    direction = torch.randn(len(state), generator=torch.Generator().manual_seed(SEED)).to(state)
    gradients = torch.autograd.grad((state * direction).sum(), vectors, retain_graph=True, allow_unused=True)
    return [
        torch.zeros_like(given[..., 0]) if gradient is None else gradient.abs().amax(-1)
        for gradient, given in zip(gradients, vectors, strict=True)
    ]


def apart(wanted: Tensor, got: Tensor) -> float:
    """The largest difference, relative where values are above 1; infinite where one is not a number."""
    same = wanted == got  # infinities of one sign
    far = ((wanted - got).abs() / wanted.abs().clamp(min=1.0)).masked_fill(same, 0.0)
    return float(far.nan_to_num(nan=torch.inf).max())


def _most(gradients: Tensor) -> float:
    return float(gradients.nan_to_num(nan=torch.inf).max()) if gradients.numel() else 0.0

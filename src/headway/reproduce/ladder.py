"""The road to the Transformer in steps on one task, each adding one idea."""

import random
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from statistics import fmean
from typing import Any

import torch

from headway.data.batches import Batch
from headway.data.demos import phrases
from headway.data.tokenizer import Tokenizer, TokenizerConfig
from headway.evaluation import score
from headway.objectives import LabelSmoothedLikelihood
from headway.reproduce.experiment import Say, Scale, each, interval, repeated
from headway.reproduce.report import Plot, Report, Table
from headway.reproduce.rungs import Rung, RungConfig
from headway.search import DecodingConfig
from headway.sequences import Sequences
from headway.translator import Translator

DIM, HIDDEN, HEADS, LAYERS = 64, 256, 4, 2
STEPS, SENTENCES = 700, 64
"""Updates of the small setting, and sentences of an update."""
RATE = 3e-3
TRAINED, TESTED = 10_000, 200

CLIMB: dict[str, dict[str, Any]] = {
    "averaging": {"attention": False},
    "+ attention": {},
    "+ positions": {"positions": "added"},
    "+ self-attention": {"positions": "added", "self_attention": True},
    "+ several heads": {"positions": "added", "self_attention": True, "heads": HEADS},
    "+ feed-forward": {"positions": "added", "self_attention": True, "heads": HEADS, "hidden": HIDDEN},
    "+ depth": {"positions": "added", "self_attention": True, "heads": HEADS, "hidden": HIDDEN, "layers": LAYERS},
}
"""The rungs from the lowest to the highest; each has what those below it have."""
BESIDE = {"positions concatenated": {**CLIMB["+ depth"], "positions": "concatenated"}}
"""The highest rung with positions beside the tokens' features in place of added to them."""
WHAT = {
    "averaging": "the decoder sees its last token and the mean of the source",
    "+ attention": "a weighted mean, weighed by the last token",
    "+ positions": "source and target tokens know their places",
    "+ self-attention": "tokens look at their own sentence",
    "+ several heads": f"{HEADS} heads in place of one",
    "+ feed-forward": f"a network of {HIDDEN} hidden features for every token",
    "+ depth": f"{LAYERS} layers in place of one",
    "positions concatenated": "the highest rung, positions beside the features in place of added",
}


def run(scale: Scale, say: Say) -> Report:
    """See `ladder` in the documentation."""
    began = time.monotonic()
    tasks = [(name, seed) for name in (*CLIMB, *BESIDE) for seed in scale.seeds]
    found: dict[str, list[tuple[float, float]]] = {}
    sizes: dict[str, int] = {}
    for (name, seed), reached in zip(tasks, each(partial(_climbed, scale), tasks, scale), strict=True):
        sizes[name] = reached[2]
        found.setdefault(name, []).append(reached[:2])
        say(f"{name}, seed {seed}: BLEU {reached[0]:.1f}, exactly right {reached[1]:.1f} %")
    return _report(found, sizes, scale, time.monotonic() - began)


def _climbed(scale: Scale, task: tuple[str, int]) -> tuple[float, float, int]:
    """BLEU, the share that is exactly right, and the parameters of one rung."""
    name, seed = task
    demo = phrases(train=TRAINED, valid=1, test=TESTED)
    read, write = (
        Tokenizer.train([pair[side] for pair in demo.train], TokenizerConfig(kind="words")) for side in (0, 1)
    )
    torch.manual_seed(seed)
    config = RungConfig(dim=DIM, dropout=0.0, longest=64, **{**CLIMB, **BESIDE}[name])
    model = Rung(config, read.size, write.size)
    _learn(model.to(scale.device), demo.train, (read, write), scale, seed)
    translator = Translator(model, read, write, DecodingConfig(beam=1, limit_ratio=1.5, limit_extra=5))
    outputs = [str(text) for text in translator([pair.source for pair in demo.test])]
    reached = score(outputs, [pair.target for pair in demo.test])
    return reached["BLEU"].value, reached.exact, sum(weight.numel() for weight in model.parameters())


def _learn(model: Rung, pairs: Sequence[Any], tokenizers: Sequence[Tokenizer], scale: Scale, seed: int) -> None:
    model.train()
    steps, objective = scale.steps(STEPS), LabelSmoothedLikelihood(0.05)
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE, betas=(0.9, 0.98))
    warm = max(1, steps // 10)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min((step + 1) / warm, (steps - step) / (steps - warm))
    )
    for _, batch in zip(range(steps), _batches(pairs, tokenizers, seed), strict=False):
        loss = objective(model, batch.to(scale.device))
        optimiser.zero_grad()
        (loss.total / loss.units).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
    model.eval()


def _batches(pairs: Sequence[Any], tokenizers: Sequence[Tokenizer], seed: int) -> Iterator[Batch]:
    draw = random.Random(seed)
    sides = [tokenizer.encode([pair[side] for pair in pairs]) for side, tokenizer in enumerate(tokenizers)]
    read, write = tokenizers
    while True:
        chosen = draw.sample(range(len(pairs)), k=min(SENTENCES, len(pairs)))
        sources, targets = ([side[place] for place in chosen] for side in sides)
        yield Batch(
            Sequences.pad([[*ids, read.end] for ids in sources], read.padding),
            Sequences.pad([[write.start, *ids] for ids in targets], write.padding),
            Sequences.pad([[*ids, write.end] for ids in targets], write.padding).tokens,
            sum(len(ids) + 1 for ids in targets),
        )


def _report(found: dict[str, list[tuple[float, float]]], sizes: dict[str, int], scale: Scale, seconds: float) -> Report:
    means = {name: fmean(bleu for bleu, _ in runs) for name, runs in found.items()}
    names = list(CLIMB)
    gains = {name: means[name] - means[before] for before, name in pairwise(names)}
    rows = [
        (
            name,
            WHAT[name],
            sizes[name],
            interval([bleu for bleu, _ in runs]),
            f"{gains[name]:+.1f}" if name in gains else None,
            interval([exact for _, exact in runs]),
        )
        for name, runs in found.items()
    ]
    largest = max(gains, key=lambda name: gains[name])
    beside = means["positions concatenated"] - means["+ depth"]
    answer = (
        f"From {means['averaging']:.1f} BLEU by averaging to {means['+ depth']:.1f} with everything. The largest step "
        f"is {largest.removeprefix('+ ')} ({gains[largest]:+.1f}). Positions set beside the features in place of "
        f"added to them: {beside:+.1f}."
    )
    table = Table(
        "French to English phrases, unseen sentences",
        ("model", "what it has", "parameters", "BLEU", "gain", "exactly right, %"),
        rows,
        f"{repeated(scale)}, {scale.steps(STEPS)} updates each. A gain is over "
        "the row above. No paper has this table; each idea is of Bahdanau et al. 2015 or Vaswani et al. 2017.",
    )
    line = [(float(place), means[name]) for place, name in enumerate(names, start=1)]
    legend = {"the ladder": line, "positions concatenated": [(float(len(names)), means["positions concatenated"])]}
    note = ", ".join(f"{place} {name}" for place, name in enumerate(names, start=1))
    plot = Plot("What each idea buys", "rung", "BLEU", legend, note=note)
    question = "Each rung adds one idea to the one below it and is trained alike, on the same sentences."
    title = "From averaging to the Transformer, an idea at a time"
    return Report("ladder", title, question, answer, [table], [plot], "headway reproduce ladder", seconds)

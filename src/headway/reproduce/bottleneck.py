"""Quality by the length of the source: one fixed context, attention, and attention alone."""

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

from headway.data.demos import DEMOS, Pair
from headway.evaluation import score
from headway.reproduce.experiment import Corpus, Say, Scale, Texts, each, interval, repeated
from headway.reproduce.report import Plot, Report, Table
from headway.search import DecodingConfig
from headway.sentence import Sentence

LENGTHS = (5, 10, 15, 20, 25, 30)
"""Source words of the test sentences; those of training have any number up to the last."""
EACH = 60
"""Test sentences of each length."""
TRAINED, PHRASES = 20_000, 10_000
"""Training sentences, and the phrases they are made of."""
STEPS = 900
TRAINING: dict[str, Any] = {"batch_tokens": 1024, "learning_rate": 3e-3, "warmup": 100, "schedule": "linear",
                            "label_smoothing": 0.1}  # fmt: skip
RECURRENT: dict[str, Any] = {"architecture": "recurrent", "dim": 128, "encoder_layers": 1, "decoder_layers": 1,
                             "dropout": 0.1, "longest": 64, "tie": "two-way"}  # fmt: skip
MODELS: dict[str, dict[str, Any]] = {
    "fixed context": {**RECURRENT, "dim": 134, "attention": "none"},
    "attention": {**RECURRENT, "attention": "additive"},
    "Transformer": {"dim": 96, "heads": 4, "hidden": 144, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.1,
                    "longest": 64, "tie": "two-way"},
}  # fmt: skip
"""Of about the same number of parameters each; the first two are one GRU encoder-decoder with and without attention."""


@dataclass(frozen=True)
class Reached:
    """What one model reached on the test sentences of every length, and how large it is."""

    bleu: Mapping[int, float]
    exact: Mapping[int, float]
    parameters: int


def run(scale: Scale, say: Say) -> Report:
    """See `bottleneck` in the documentation."""
    began = time.monotonic()
    demo = DEMOS["phrases"](train=PHRASES, valid=200, test=500)
    draw = random.Random(1)
    train, valid = (
        [_joined(draw, part, draw.randint(LENGTHS[0] - 2, LENGTHS[-1])) for _ in range(count)]
        for part, count in ((demo.train, TRAINED), (demo.valid, 200))
    )
    tests = {length: [_joined(draw, demo.test, length) for _ in range(EACH)] for length in LENGTHS}
    corpus = Corpus.written(scale.folder / "corpus", train, valid)
    tasks = [(name, seed) for name in MODELS for seed in scale.seeds]
    found: dict[str, list[Reached]] = {}
    for (name, seed), reached in zip(tasks, each(partial(_reached, corpus, scale, tests), tasks, scale), strict=True):
        found.setdefault(name, []).append(reached)
        told = ", ".join(f"{length} words: {bleu:.0f}" for length, bleu in reached.bleu.items())
        say(f"{name}, seed {seed}: BLEU of {told}")
    return _report(found, scale, time.monotonic() - began)


def _joined(draw: random.Random, phrases: list[Pair], words: int) -> tuple[str, str]:
    """Phrases one after the other, a comma between them, that have exactly so many source words and commas."""
    while True:
        chosen: list[Pair] = []
        left = words
        while left > 0:
            chosen.append(draw.choice(phrases))
            left -= len(chosen[-1].source.split()) + (len(chosen) > 1)
        if left == 0:
            return " , ".join(each.source for each in chosen), " , ".join(each.target for each in chosen)


def _reached(corpus: Corpus, scale: Scale, tests: Mapping[int, Texts], task: tuple[str, int]) -> Reached:
    name, seed = task
    steps = scale.steps(STEPS)
    training = {**TRAINING, "steps": steps, "validate_every": steps}
    settings = {"tokenizer": {"kind": "words", "joint": False}, "model": MODELS[name], "training": training}
    model = corpus.fitted(scale, name.replace(" ", "-"), seed, settings)
    bleu, exact = {}, {}
    for length, pairs in tests.items():
        outputs = model.translate([Sentence(source) for source, _ in pairs], DecodingConfig(beam=1))
        judged = score([str(output) for output in outputs], [target for _, target in pairs])
        bleu[length], exact[length] = judged["BLEU"].value, judged.exact
    return Reached(bleu, exact, sum(weight.numel() for weight in model.model.parameters()))


def _report(found: dict[str, list[Reached]], scale: Scale, seconds: float) -> Report:
    columns = "model", "parameters", *(f"{length} words" for length in LENGTHS)
    tables = [
        Table(
            f"{what} by the length of the source",
            columns,
            [
                (
                    name,
                    runs[0].parameters,
                    *(interval([getattr(each, measure)[length] for each in runs]) for length in LENGTHS),
                )
                for name, runs in found.items()
            ],
            note,
        )
        for what, measure, note in (
            ("BLEU", "bleu", f"{repeated(scale)}. {NOTE}"),
            ("Sentences exactly right, percent,", "exact", ""),
        )
    ]
    means = {
        name: [(float(length), fmean(each.bleu[length] for each in runs)) for length in LENGTHS]
        for name, runs in found.items()
    }
    falls = [f"{name} from {points[0][1]:.0f} to {points[-1][1]:.0f}" for name, points in means.items()]
    return Report(
        "bottleneck",
        "What one fixed context holds of a long sentence",
        "Encoder-decoders of about the same size, trained on the same sentences: how does quality fall with length?",
        f"From sources of {LENGTHS[0]} words to sources of {LENGTHS[-1]}, BLEU goes {'; '.join(falls)}.",
        tables,
        [Plot("Quality by the length of the source", "source words", "BLEU", means)],
        "headway reproduce bottleneck",
        seconds,
    )


NOTE = (
    "French phrases joined by commas; all lengths are met in training. "
    "Bahdanau et al. 2015, figure 2: BLEU of the model of one fixed vector falls steeply with the length of the "
    "sentence, that of the model with attention and sentences of up to 50 words in training hardly at all."
)
"""How the table is to be read, and what the paper found."""

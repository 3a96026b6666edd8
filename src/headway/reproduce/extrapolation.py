"""Trained on sentences up to a length, tested on sentences four times as long: which positions carry over."""

import random
import time
from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import get_args

from headway.nn.positions import PositionKind
from headway.reproduce.experiment import Corpus, Say, Scale, Texts, each, interval, letters, repeated
from headway.reproduce.report import Plot, Report, Table
from headway.search import DecodingConfig
from headway.sentence import Sentence
from headway.translator import Translator

LONGEST = 10
"""Symbols of the longest training sentence."""
TESTED = (5, 10, 12, 15, 20, 30, 40)
"""Symbols of the test sentences."""
EACH = 60
"""Test sentences of each length."""
ALPHABET = [chr(letter) for letter in range(ord("a"), ord("z") + 1)]


def run(scale: Scale, say: Say) -> Report:
    """See `extrapolation` in the documentation."""
    began = time.monotonic()
    corpus = Corpus.written(scale.folder / "corpus", _pairs(4000, 1), _pairs(200, 2))
    tests = {length: [_copied(random.Random(f"{length}/{row}"), length) for row in range(EACH)] for length in TESTED}
    tasks = [(kind, seed) for kind in get_args(PositionKind) for seed in scale.seeds]
    found: dict[str, list[dict[int, float]]] = {}
    for (kind, seed), shares in zip(tasks, each(partial(_tested, corpus, scale, tests), tasks, scale), strict=True):
        found.setdefault(kind, []).append(shares)
        told = ", ".join(f"{length}: {share:.0f} %" for length, share in shares.items())
        say(f"{kind}, seed {seed}: symbols right at length {told}")
    return _report(found, scale, time.monotonic() - began)


def _tested(corpus: Corpus, scale: Scale, tests: Mapping[int, Texts], task: tuple[str, int]) -> dict[int, float]:
    kind, seed = task
    model = corpus.fitted(scale, kind, seed, _settings(scale, kind))
    return {length: _right(model, pairs) for length, pairs in tests.items()}


def _copied(draw: random.Random, length: int) -> tuple[str, str]:
    """Random symbols, and for each of them its successor in the alphabet: what counts is where a symbol stands."""
    source = letters(draw, length, ALPHABET)
    return source, " ".join(ALPHABET[(ALPHABET.index(letter) + 1) % len(ALPHABET)] for letter in source.split())


def _pairs(count: int, seed: int) -> Texts:
    draw = random.Random(seed)
    return [_copied(draw, draw.randint(1, LONGEST)) for _ in range(count)]


def _settings(scale: Scale, kind: str) -> dict[str, dict[str, object]]:
    return {
        "tokenizer": {"kind": "words"},
        "model": {"dim": 64, "heads": 4, "hidden": 128, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0,
                  "positions": kind, "longest": 4 * LONGEST + 16},
        "training": {"steps": scale.steps(800), "batch_tokens": 1024, "learning_rate": 2e-3, "warmup": 100,
                     "validate_every": scale.steps(400), "schedule": "cosine"},
    }  # fmt: skip


def _right(model: Translator, pairs: Texts) -> float:
    settings = DecodingConfig(beam=1, limit_ratio=1.5, limit_extra=8, longest=model.longest)
    return in_place(pairs, [str(text) for text in model.translate([Sentence(source) for source, _ in pairs], settings)])


def in_place(pairs: Texts, outputs: Sequence[str]) -> float:
    """The share of symbols that stand right in their place, in percent; missing and surplus ones are wrong."""
    right = total = 0
    for (_, target), output in zip(pairs, outputs, strict=True):
        wanted, written = target.split(), output.split()
        right += sum(left == other for left, other in zip(wanted, written, strict=False))
        total += max(len(wanted), len(written))
    return 100 * right / total


def _report(found: dict[str, list[dict[int, float]]], scale: Scale, seconds: float) -> Report:
    rows = [
        (kind, *(interval([shares[length] for shares in seeds]) for length in TESTED)) for kind, seeds in found.items()
    ]
    means = {
        kind: [(float(length), fmean(shares[length] for shares in seeds)) for length in TESTED]
        for kind, seeds in found.items()
    }
    long = {kind: points[-1][1] for kind, points in means.items()}
    best = max(long, key=lambda kind: long[kind])
    worst = min(long, key=lambda kind: long[kind])
    answer = (
        f"Trained on 1 to {LONGEST} symbols, models were tested on up to {TESTED[-1]}. At that length {best} positions "
        f"kept {long[best]:.0f} % of the symbols in place, {worst} ones {long[worst]:.0f} %."
    )
    table = Table(
        "Symbols right in their place, percent, by the length of the test sentence",
        ("positions", *map(str, TESTED)),
        rows,
        f"{repeated(scale)}; training had up to {LONGEST} symbols. Vaswani et "
        "al. 2017, section 3.5, hoped that sinusoids extrapolate and gave no figure; Press et al. 2022 found that "
        "in language models they do not and ALiBi does. Here rotary, relative and ALiBi ones act in self-attention "
        "alone, and nothing but its content tells attention to the source where a token stands.",
    )
    plot = Plot("Quality beyond the training length", "symbols of the test sentence", "symbols right, %", means)
    return Report(
        "extrapolation",
        "Which positions carry over to longer sentences",
        "Five kinds of positions, trained on short sentences and tested on sentences up to four times as long.",
        answer,
        [table],
        [plot],
        "headway reproduce extrapolation",
        seconds,
    )

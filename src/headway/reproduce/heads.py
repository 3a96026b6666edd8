"""The variations of table 3 (Vaswani et al. 2017), scaled down to a corpus that is learnt in minutes."""

import math
import time
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean
from typing import Any

from headway.data.demos import Demo, phrases
from headway.evaluation import score
from headway.reproduce.experiment import Corpus, Say, Scale, each, interval, repeated
from headway.reproduce.report import Plot, Report, Table
from headway.scoring import score as scored

TRAINED, TESTED = 4000, 200
BASE: dict[str, dict[str, Any]] = {
    "tokenizer": {"kind": "words"},
    "model": {"dim": 64, "heads": 4, "hidden": 256, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.1,
              "longest": 64},
    "training": {"batch_tokens": 1024, "learning_rate": 3e-3, "warmup": 60, "schedule": "linear",
                 "label_smoothing": 0.1},
}  # fmt: skip
"""What stands for the paper's base model."""
STEPS = 350
PAPER = 25.8
"""BLEU of the paper's base model on its development set."""


@dataclass(frozen=True)
class Row:
    """A variation: what the paper's row has, what ours has, and the paper's BLEU."""

    group: str
    theirs: str
    ours: str
    bleu: float
    model: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)


ROWS = (
    Row("base", "8 heads, 6 layers of 512", "4 heads, 2 layers of 64", PAPER),
    Row("A heads", "1 head", "1 head", 24.9, {"heads": 1}),
    Row("A heads", "16 heads", "8 heads", 25.8, {"heads": 8}),
    Row("A heads", "32 heads", "16 heads", 25.4, {"heads": 16}),
    Row("B key size", "16 of 64 features", "4 of 16 features", 25.1, {"head_dim": 4}),
    Row("B key size", "32 of 64 features", "8 of 16 features", 25.4, {"head_dim": 8}),
    Row("C depth", "2 layers", "1 layer", 23.7, {"encoder_layers": 1, "decoder_layers": 1}),
    Row("C depth", "8 layers", "3 layers", 25.5, {"encoder_layers": 3, "decoder_layers": 3}),
    Row("C width", "256 features", "32 features", 24.5, {"dim": 32}),
    Row("C width", "1,024 features", "128 features", 26.0, {"dim": 128}),
    Row("C width", "1,024 hidden", "128 hidden", 25.4, {"hidden": 128}),
    Row("C width", "4,096 hidden", "512 hidden", 26.2, {"hidden": 512}),
    Row("D dropout", "none", "none", 24.6, {"dropout": 0.0}),
    Row("D dropout", "0.2", "0.2", 25.5, {"dropout": 0.2}),
    Row("D smoothing", "none", "none", 25.3, {}, {"label_smoothing": 0.0}),
    Row("D smoothing", "0.2", "0.2", 25.7, {}, {"label_smoothing": 0.2}),
    Row("E positions", "learned", "learned", 25.7, {"positions": "learned"}),
)


@dataclass(frozen=True)
class Reached:
    """What one model reached on unseen sentences."""

    bleu: float
    perplexity: float
    parameters: int


def run(scale: Scale, say: Say) -> Report:
    """See `heads` in the documentation."""
    began = time.monotonic()
    demo = _demo()
    pairs = [[(pair.source, pair.target) for pair in part] for part in (demo.train, demo.valid)]
    corpus = Corpus.written(scale.folder / "corpus", *pairs)
    tasks = [(place, seed) for place in range(len(ROWS)) for seed in scale.seeds]
    found: dict[int, list[Reached]] = {}
    for (place, seed), reached in zip(tasks, each(partial(_reached, corpus, scale), tasks, scale), strict=True):
        found.setdefault(place, []).append(reached)
        row = ROWS[place]
        told = f"BLEU {reached.bleu:.1f}, perplexity {reached.perplexity:.2f}"
        say(f"{row.group}, {row.ours}, seed {seed}: {told}")
    return _report(found, scale, time.monotonic() - began)


def _demo() -> Demo:
    return phrases(train=TRAINED, valid=TESTED, test=TESTED)


def _reached(corpus: Corpus, scale: Scale, task: tuple[int, int]) -> Reached:
    place, seed = task
    row, steps = ROWS[place], scale.steps(STEPS)
    training = {**BASE["training"], "steps": steps, "validate_every": steps, **row.training}
    settings = {**BASE, "model": {**BASE["model"], **row.model}, "training": training}
    model = corpus.fitted(scale, f"row-{place}", seed, settings)
    tested = _demo().test
    outputs = [str(text) for text in model([pair.source for pair in tested], beam=1)]
    judged = scored(model, [(pair.source, pair.target) for pair in tested])
    surprise = -sum(each.log_probability for each in judged)
    perplexity = math.exp(surprise / sum(len(each.token_log_probabilities) for each in judged))
    return Reached(
        score(outputs, [pair.target for pair in tested])["BLEU"].value,
        perplexity,
        sum(weight.numel() for weight in model.model.parameters()),
    )


def _report(found: dict[int, list[Reached]], scale: Scale, seconds: float) -> Report:
    means = {place: fmean(each.bleu for each in runs) for place, runs in found.items()}
    rows = [
        (
            ROWS[place].group,
            ROWS[place].theirs,
            f"{ROWS[place].bleu - PAPER:+.1f}" if place else f"{PAPER}",
            ROWS[place].ours,
            runs[0].parameters,
            interval([each.perplexity for each in runs]),
            interval([each.bleu for each in runs]),
            f"{means[place] - means[0]:+.1f}" if place else None,
        )
        for place, runs in found.items()
    ]
    same = sum((means[place] - means[0]) * (row.bleu - PAPER) > 0 for place, row in enumerate(ROWS) if place)
    worst = min(means, key=lambda place: means[place])
    answer = (
        f"Our base model has {means[0]:.1f} BLEU on unseen phrases. Of {len(ROWS) - 1} variations {same} moved it the "
        f"way the paper's moved theirs; what cost most was {ROWS[worst].group[2:]}: {ROWS[worst].ours} "
        f"({means[worst] - means[0]:+.1f})."
    )
    table = Table(
        "Variations of the Transformer: the paper's on newstest2013, ours on unseen phrases",
        ("group", "paper", "BLEU or change", "here", "parameters", "perplexity", "BLEU", "change"),
        rows,
        f"{repeated(scale)}, {scale.steps(STEPS)} updates, greedy search, "
        "perplexity a word. The paper's: its table 3, English to German, 100,000 updates. Sizes are scaled down, so "
        "it is the direction that can be compared, not the amount; with our keys the values shrink too. After so few "
        "updates what learns fast stands first, and dropout and depth only cost: --effort 8 trains to the end.",
    )
    ours = [(float(place), means[place] - means[0]) for place in found]
    theirs = [(float(place), ROWS[place].bleu - PAPER) for place in found]
    named = ", ".join(f"{place} {row.group[2:]}: {row.ours}" for place, row in enumerate(ROWS) if place)
    plot = Plot(
        "Change of BLEU",
        "variation",
        "BLEU over the base",
        {"here": ours[1:]},
        {"paper": theirs[1:]},
        note=named,
        joined=False,
    )
    title = "What heads, depth, width, dropout and smoothing are worth"
    question = "The shape of table 3 of 'Attention is all you need', on a corpus that is learnt in minutes."
    return Report("heads", title, question, answer, [table], [plot], "headway reproduce heads", seconds)

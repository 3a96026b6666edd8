"""What the methods of docs/methods.md cost: the time of a training step, as a ratio to that of plain likelihood.

    python benchmarks/methods_cpu.py
    python benchmarks/methods_cpu.py --methods recompute       # training.recompute alone

A small model on batches of a made-up corpus. Every method takes one step on the same batch, in random order, batch
after batch; what is measured is processor time on one thread, which other work on the machine disturbs least. Making
the batch is part of it: that is where word and subword dropout do their work. One JSON line a method: the median over
the rounds of its time divided by that of the likelihood in the same round, and the lowest and highest.
"""

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from headway.data.alignment import build_alignment
from headway.data.batches import Batch, Resegment, collate
from headway.data.dropout import BpeDropout
from headway.data.pairs import Pair
from headway.data.store import build_store
from headway.data.tokenizer import Tokenizer, TokenizerConfig
from headway.data.word_dropout import WordDropout
from headway.models.transformer import Transformer, TransformerConfig
from headway.nn.recomputing import recomputing
from headway.objectives import (
    ConsistentLikelihood,
    GuidedLikelihood,
    LabelSmoothedLikelihood,
    Objective,
    ScheduledSampling,
)
from peers.origin import show

SMOOTHING = 0.1
OBJECTIVES: dict[str, Objective] = {
    "likelihood": LabelSmoothedLikelihood(SMOOTHING),
    "r_drop": ConsistentLikelihood(SMOOTHING, 5.0),
    "scheduled_sampling": ScheduledSampling(SMOOTHING, 0.25, 1),
    "guided_alignment": GuidedLikelihood(SMOOTHING, 0.05),
    "word_dropout": LabelSmoothedLikelihood(SMOOTHING),
    "subword_dropout": LabelSmoothedLikelihood(SMOOTHING),
    "recompute": LabelSmoothedLikelihood(SMOOTHING),
}


def made_up(count: int) -> list[Pair]:
    """Sentences of made-up words, translated word by word."""
    chance = random.Random(1)
    words = ["".join(chance.choice("aeioulnrst") for _ in range(chance.randint(2, 9))) for _ in range(2000)]
    pairs = []
    for _ in range(count):
        sentence = [words[int(len(words) * chance.random() ** 2)] for _ in range(chance.randint(5, 30))]
        links = " ".join(f"{place}-{place}" for place in range(len(sentence)))
        pairs.append(Pair(" ".join(sentence), " ".join(sentence).upper(), links=links))
    return pairs


def feeds(folder: Path, size: int) -> tuple[int, dict[str, Callable[[int], Batch]]]:
    """The size of the vocabulary, and what makes batch number n of every method."""
    pairs = made_up(40 * size)
    tokenizer = Tokenizer.train((text for pair in pairs for text in pair[:2]), TokenizerConfig(vocabulary=4000))
    both = tokenizer, tokenizer
    store = build_store(folder / "store", pairs, *both, key={}, longest=255)
    links = build_alignment(folder / "links", pairs, *both, key={}, longest=255, progress=lambda _: None)
    words, subwords = WordDropout(tokenizer, 0.1), BpeDropout(tokenizer, 0.1)
    anew = {
        "word_dropout": Resegment(None, None, 1, 0, words=words),
        "subword_dropout": Resegment(subwords, subwords, 1, 0),
    }

    def feed(method: str) -> Callable[[int], Batch]:
        alignment = links if method == "guided_alignment" else None

        def batch(number: int) -> Batch:
            chosen = np.arange(size) + number * size % (len(store) - size)
            return collate(store, chosen, *both, "padded", anew.get(method), alignment)

        return batch

    return tokenizer.size, {method: feed(method) for method in OBJECTIVES}


def seconds(model: Transformer, optimiser: torch.optim.Optimizer, method: str, feed, number: int) -> float:
    """The processor time one step takes, making the batch included."""
    began = time.process_time()
    batch = feed(number)
    with recomputing(method == "recompute"):
        loss = OBJECTIVES[method](model, batch, 10)
    (loss.total / loss.units).backward()
    optimiser.step()
    optimiser.zero_grad()
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--sentences", type=int, default=24, help="pairs of a batch")
    parser.add_argument("--methods", nargs="+", choices=list(OBJECTIVES), default=list(OBJECTIVES))
    options = parser.parse_args()
    methods = list(dict.fromkeys(["likelihood", *options.methods]))
    torch.set_num_threads(1)
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as folder:
        vocabulary, made = feeds(Path(folder), options.sentences)
        model = Transformer(TransformerConfig(preset="tiny"), vocabulary, vocabulary)
        optimiser = torch.optim.Adam(model.parameters(), lr=1e-4)
        ratios: dict[str, list[float]] = {method: [] for method in methods}
        plain, order = [], random.Random(0)
        for number in range(-2, options.rounds):
            taken = {
                method: seconds(model, optimiser, method, made[method], abs(number))
                for method in order.sample(methods, len(methods))
            }
            if number < 0:  # warming up
                continue
            plain.append(taken["likelihood"])
            for method, spent in taken.items():
                ratios[method].append(spent / taken["likelihood"])
    for method, found in ratios.items():
        line = {"method": method, "ratio": round(statistics.median(found), 2)}
        line |= {"lowest": round(min(found), 2), "highest": round(max(found), 2), "rounds": options.rounds}
        show(line | {"likelihood_seconds": round(statistics.median(plain), 3)})


if __name__ == "__main__":
    main()

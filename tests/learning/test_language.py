"""A small language model learns where its text comes from: its entropy, and its distribution."""

import math
import random
from collections import Counter

import pytest
import torch

from headway.data.batches import Batch
from headway.models.language import LanguageConfig, LanguageModel
from headway.objectives import LabelSmoothedLikelihood
from headway.search import DecodingConfig, Request, Symbols, decode
from headway.sequences import Sequences

PADDING, START, END, FIRST = 0, 1, 2, 3
NEXT = {
    START: {3: 0.5, 4: 0.5},
    3: {3: 0.1, 4: 0.6, END: 0.3},
    4: {5: 0.7, 3: 0.3},
    5: {6: 0.5, 3: 0.25, END: 0.25},
    6: {END: 1.0},
}
"""Which letter follows which, and how often."""


def bigrams(chance):
    text = [START]
    while text[-1] != END:
        following = NEXT[text[-1]]
        text.append(chance.choices(list(following), list(following.values()))[0])
    return text[1:-1]


def counted(chance):
    """As many of one letter as of another: after the turn nothing is left to chance."""
    return [3] * (count := chance.randint(1, 6)) + [4] * count


def surprise(text):
    """Nats of a text of bigrams where the probabilities are known."""
    return -sum(math.log(NEXT[left][right]) for left, right in zip([START, *text], [*text, END], strict=True))


def batch_of(texts, packed):
    def layout(rows):
        return Sequences.pack(rows) if packed else Sequences.pad(rows, PADDING)

    labels = layout([[*text, END] for text in texts])
    source, target = layout([[END]] * len(texts)), layout([[START, *text] for text in texts])
    return Batch(source, target, labels.tokens, sum(len(text) + 1 for text in texts))


def trained(language, seed, packed, steps):
    torch.manual_seed(seed)
    chance = random.Random(seed)
    config = LanguageConfig(dim=32, heads=4, hidden=64, layers=1, longest=64, dropout=0.0)
    model, objective = LanguageModel(config, 7, 7), LabelSmoothedLikelihood()
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 1e-2, total_steps=steps, pct_start=0.1)
    for _ in range(steps):
        loss = objective(model, batch_of([language(chance) for _ in range(64)], packed))
        (loss.total / loss.units).backward()
        optimiser.step()
        optimiser.zero_grad()
        schedule.step()
    return model.eval(), random.Random(seed + 100)


@torch.inference_mode()
def nats(model, texts):
    """Nats a token, ends among them."""
    loss = LabelSmoothedLikelihood()(model, batch_of(texts, packed=False))
    return float(loss.surprise) / loss.units


def drawn(model, count, seed):
    with torch.inference_mode():
        state = model.start(model.encode(Sequences.pad([[END]] * count, PADDING)))
    requests = [Request((), seed=seed * count + number) for number in range(count)]
    config = DecodingConfig(sample=True, limit_extra=40)
    found = decode(model, state, requests, config, Symbols(START, END, (PADDING, START)))
    return [best.tokens for (best,) in found if best.finished]


@pytest.mark.parametrize(("seed", "packed"), [(1, False), (2, True), (3, False)])
def test_the_loss_comes_near_the_entropy_of_the_source_and_samples_are_as_frequent_as_they_should_be(seed, packed):
    model, chance = trained(bigrams, seed, packed, 120)
    texts = [bigrams(chance) for _ in range(400)]
    least = sum(map(surprise, texts)) / sum(len(text) + 1 for text in texts)
    assert least - 0.01 < nats(model, texts) < least + 0.03
    texts = drawn(model, 1000, seed)
    pairs = Counter(pair for text in texts for pair in zip([START, *text], [*text, END], strict=True))
    for left, following in NEXT.items():
        total = sum(count for (first, _), count in pairs.items() if first == left)
        for right in range(FIRST - 1, 7):
            assert abs(pairs[left, right] / total - following.get(right, 0.0)) < 0.08, (left, right)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_text_whose_second_half_is_certain_is_learnt_to_its_entropy(seed):
    model, chance = trained(counted, seed, False, 180)
    texts = [counted(chance) for _ in range(300)]
    least = math.log(6) * len(texts) / sum(len(text) + 1 for text in texts)  # one of six counts, and nothing else
    assert nats(model, texts) < least + 0.03
    found = drawn(model, 200, seed)
    assert sum(text.count(3) == text.count(4) for text in found) > 180

"""Models that write all tokens at once learn which letters are left out, written once or written twice."""

import random

import pytest
import torch

from headway.data.aligner import Aligner
from headway.data.batches import Batch
from headway.engine import Engine
from headway.engine.readiness import ready
from headway.models.fertility import FertilityConfig, FertilityTransformer
from headway.models.maskpredict import MaskPredict, MaskPredictConfig
from headway.objectives import FertilityLikelihood, MaskedLikelihood
from headway.search import DecodingConfig, Request, Symbols
from headway.sequences import Sequences

PADDING, START, END, FIRST, LETTERS = 0, 1, 2, 3, 9
VOCABULARY = FIRST + 2 * LETTERS
SIZES = {"dim": 32, "heads": 4, "hidden": 64, "encoder_layers": 1, "decoder_layers": 1, "longest": 24,
         "norm": "pre", "dropout": 0.0}  # fmt: skip


def thinned(source):
    """Every letter in another alphabet, as often as its place in its own tells: not at all, once or twice."""
    return [letter + LETTERS for letter in source for _ in range((letter - FIRST) % 3)]


def drawn_out(source):
    """Every letter in another alphabet, and the last of them again as often as the first tells."""
    return [*(letter + LETTERS for letter in source), *[source[-1] + LETTERS] * ((source[0] - FIRST) % 3)]


def drawn(chance, task, count):
    found = []
    while len(found) < count:
        source = [FIRST + chance.randrange(LETTERS) for _ in range(chance.randint(1, 5))]
        found += [source] if task(source) else []
    return found


def batch_of(sources, task, aligner):
    targets = [task(source) for source in sources]
    ended, labels = [[*source, END] for source in sources], [[*target, END] for target in targets]
    given, read = Sequences.pad([[START, *target] for target in targets], PADDING), Sequences.pad(ended, PADDING)
    alignment = torch.zeros(len(sources), given.longest, read.longest, dtype=torch.bool)
    for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
        alignment[row, torch.arange(len(target)), torch.from_numpy(aligner(source, target))] = True
    return Batch(read, given, Sequences.pad(labels, PADDING).tokens, sum(map(len, labels)), alignment)


def trained(model, objective, task, seed, steps):
    chance = random.Random(seed)
    pairs = [(source, task(source)) for source in drawn(chance, task, 400)]
    aligner = Aligner.learn(lambda: pairs, source_size=VOCABULARY, target_size=VOCABULARY)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 1e-2, total_steps=steps, pct_start=0.1)
    for _ in range(steps):
        loss = objective(model, batch_of(drawn(chance, task, 64), task, aligner))
        (loss.total / loss.units).backward()
        optimiser.step()
        optimiser.zero_grad()
        schedule.step()
    return chance


def accuracy(model, task, sources, **settings):
    """The share of outputs that are right in every token."""
    engine = Engine(ready(model), Symbols(START, END, (PADDING, START)))
    requests = [Request(tuple(source), seed=place) for place, source in enumerate(sources)]
    found = engine.search(requests, DecodingConfig(longest=16, **settings))
    right = [list(best.tokens) == task(source) for source, (best, *_) in zip(sources, found, strict=True)]
    return sum(right) / len(right)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_model_with_fertilities_learns_how_often_each_letter_is_written(seed):
    torch.manual_seed(seed)
    model = FertilityTransformer(FertilityConfig(**SIZES), VOCABULARY, VOCABULARY)
    sources = drawn(trained(model, FertilityLikelihood(0.1), thinned, seed, 80), thinned, 200)
    for fertilities in ("argmax", "average", "noisy"):
        assert accuracy(model, thinned, sources, fertilities=fertilities) > 0.95, fertilities


@pytest.mark.parametrize("seed", [1, 2])
def test_mask_predict_learns_lengths_and_letters(seed):
    torch.manual_seed(seed)
    model = MaskPredict(MaskPredictConfig(**SIZES), VOCABULARY, VOCABULARY)
    sources = drawn(trained(model, MaskedLikelihood(0.1), drawn_out, seed, 220), drawn_out, 200)
    assert accuracy(model, drawn_out, sources, iterations=1, beam=1) > 0.9
    assert accuracy(model, drawn_out, sources, iterations=4) > 0.95

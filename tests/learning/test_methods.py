"""What the methods beside maximum likelihood are for, on a task a small model learns in seconds."""

import random

import pytest
import torch

from headway.data.batches import Batch
from headway.models.transformer import Transformer, TransformerConfig
from headway.objectives import (
    ConsistentLikelihood,
    GuidedLikelihood,
    LabelSmoothedLikelihood,
    ScheduledSampling,
)
from headway.objectives.guidance import decisive, guided_head
from headway.search import DecodingConfig, Request, Symbols, decode
from headway.sequences import Sequences

PADDING, START, END, FIRST = 0, 1, 2, 3
VOCABULARY = FIRST + 10


def drawn(chance, count):
    return [[FIRST + chance.randrange(10) for _ in range(chance.randint(1, 4))] for _ in range(count)]


def reversing(sources):
    """Sources to be reversed, every digit linked to where it came from."""
    targets = [source[::-1] for source in sources]
    labels = Sequences.pad([[*target, END] for target in targets], PADDING)
    alignment = torch.zeros(len(sources), labels.longest, labels.longest, dtype=torch.bool)
    for row, source in enumerate(sources):
        for place in range(len(source)):
            alignment[row, len(source) - 1 - place, place] = True
    return Batch(
        Sequences.pad([[*source, END] for source in sources], PADDING),
        Sequences.pad([[START, *target] for target in targets], PADDING),
        labels.tokens,
        int(labels.lengths.sum()),
        alignment,
    )


def trained(objective, steps, dropout=0.0):
    torch.manual_seed(1)
    chance = random.Random(1)
    sizes = {"dim": 32, "heads": 4, "hidden": 64, "encoder_layers": 1, "decoder_layers": 1, "longest": 16}
    model = Transformer(TransformerConfig(**sizes, norm="pre", dropout=dropout), VOCABULARY, VOCABULARY)
    optimiser = torch.optim.Adam(model.parameters(), lr=1.2e-2, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 1.2e-2, total_steps=steps, pct_start=0.1)
    for step in range(steps):
        loss = objective(model, reversing(drawn(chance, 48)), step)
        (loss.total / loss.units).backward()
        optimiser.step()
        optimiser.zero_grad()
        schedule.step()
    return model.eval()


def accuracy(model):
    """The share of new digits that are reversed without an error."""
    sources = drawn(random.Random(7), 100)
    batch = reversing(sources)
    with torch.inference_mode():
        state = model.start(model.encode(batch.source))
    config = DecodingConfig(beam=1, limit_extra=4, longest=12)
    requests = [Request(tuple(source)) for source in sources]
    found = decode(model, state, requests, config, Symbols(START, END, (PADDING, START)))
    return sum(list(best.tokens) == source[::-1] for source, (best,) in zip(sources, found, strict=True)) / 100


def aligned(model):
    """The share of target tokens at which the guided head looks most at a linked source token."""
    batch = reversing(drawn(random.Random(8), 100))
    with torch.inference_mode():
        decoded = model.decode(batch.target, model.encode(batch.source), need_weights=True)
    looked = decisive(decoded.cross_weights, guided_head(model.config)).argmax(-1, keepdim=True)
    linked = batch.alignment.any(-1)
    return float(batch.alignment.gather(-1, looked)[..., 0][linked].float().mean())


@pytest.fixture(scope="module")
def guided():
    return trained(GuidedLikelihood(0.1, 1.0), 180)


@pytest.fixture(scope="module")
def plain():
    return trained(LabelSmoothedLikelihood(0.1), 180)


def test_a_guided_head_finds_the_words_that_another_does_not(guided, plain):
    assert aligned(guided) > 0.97
    assert aligned(plain) < 0.9


def test_guidance_does_not_keep_the_model_from_its_task(guided):
    assert accuracy(guided) > 0.95


@pytest.mark.parametrize(
    ("objective", "dropout"),
    [(ConsistentLikelihood(0.1, 1.0), 0.05), (ScheduledSampling(0.1, 0.2, 75), 0.0)],
    ids=["r-drop", "scheduled-sampling"],
)
def test_a_model_learns_its_task_by_other_objectives_too(objective, dropout):
    assert accuracy(trained(objective, 150, dropout)) > 0.5

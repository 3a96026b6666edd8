"""A small model learns to copy and to reverse digits, from the real objective, and decodes them greedily."""

import random

import pytest
import torch

from headway.data.batches import Batch
from headway.models.transformer import Transformer, TransformerConfig
from headway.objectives import LabelSmoothedLikelihood
from headway.search import DecodingConfig, Request, Symbols, decode
from headway.sequences import Sequences

PADDING, START, END, FIRST = 0, 1, 2, 3
VOCABULARY = FIRST + 10


def drawn(chance, count):
    return [[FIRST + chance.randrange(10) for _ in range(chance.randint(1, 4))] for _ in range(count)]


def batch_of(sources, targets, packed):
    def layout(sentences):
        return Sequences.pack(sentences) if packed else Sequences.pad(sentences, PADDING)

    labels = [[*target, END] for target in targets]
    shifted = [[START, *target] for target in targets]
    ended = [[*source, END] for source in sources]
    return Batch(layout(ended), layout(shifted), layout(labels).tokens, sum(map(len, labels)))


def trained(task, seed, packed, steps):
    torch.manual_seed(seed)
    chance = random.Random(seed)
    config = TransformerConfig(
        dim=32, heads=4, hidden=64, encoder_layers=1, decoder_layers=1, longest=16, norm="pre", dropout=0.0
    )
    model = Transformer(config, VOCABULARY, VOCABULARY)
    objective = LabelSmoothedLikelihood(0.1)
    optimiser = torch.optim.Adam(model.parameters(), lr=1.2e-2, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 1.2e-2, total_steps=steps, pct_start=0.1)
    for _ in range(steps):
        sources = drawn(chance, 64)
        loss = objective(model, batch_of(sources, [task(source) for source in sources], packed))
        (loss.total / loss.units).backward()
        optimiser.step()
        optimiser.zero_grad()
        schedule.step()
    return model.eval(), chance


def accuracy(model, task, sources):
    """The share of outputs that are right in every token and end by themselves."""
    source = Sequences.pad([[*source, END] for source in sources], PADDING)
    with torch.inference_mode():
        state = model.start(model.encode(source))
    requests = [Request(tuple(source)) for source in sources]
    config = DecodingConfig(beam=1, limit_extra=4, longest=12)
    found = decode(model, state, requests, config, Symbols(START, END, (PADDING, START)))
    right = [
        best.finished and list(best.tokens) == task(source) for source, (best,) in zip(sources, found, strict=True)
    ]
    return sum(right) / len(right)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    ("task", "packed", "steps"),
    [(lambda digits: digits, False, 150), (lambda digits: digits[::-1], True, 250)],
    ids=["copy", "reverse"],
)
def test_a_tiny_transformer_learns_its_task_exactly(task, packed, steps, seed):
    model, chance = trained(task, seed, packed, steps)
    assert accuracy(model, task, drawn(chance, 200)) > 0.95

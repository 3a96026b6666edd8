"""A small model learns to copy and to reverse digits, from the real objective, and decodes them greedily."""

import random

import pytest
import torch

from headway.data.batches import Batch
from headway.models.transformer import Transformer, TransformerConfig
from headway.objectives import LabelSmoothedLikelihood
from headway.sequences import Sequences
from toys import END, PADDING, START, VOCABULARY, accuracy, digits


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
        sources = digits(chance, 64)
        loss = objective(model, batch_of(sources, [task(source) for source in sources], packed))
        (loss.total / loss.units).backward()
        optimiser.step()
        optimiser.zero_grad()
        schedule.step()
    return model.eval(), chance


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    ("task", "packed", "steps"),
    [(lambda digits: digits, False, 150), (lambda digits: digits[::-1], True, 250)],
    ids=["copy", "reverse"],
)
def test_a_tiny_transformer_learns_its_task_exactly(task, packed, steps, seed):
    model, chance = trained(task, seed, packed, steps)
    assert accuracy(model, task, digits(chance, 200)) > 0.95

"""Recurrent models learn to copy and reverse; long sequences pass through attention, hardly through one vector."""

import random

import pytest
import torch

from headway.data.batches import Batch
from headway.models.recurrent import Recurrent, RecurrentConfig
from headway.objectives import LabelSmoothedLikelihood
from headway.search import DecodingConfig, Request, Symbols, decode
from headway.sequences import Sequences

PADDING, START, END, FIRST = 0, 1, 2, 3
VOCABULARY = FIRST + 10
SHORT, LONG = (1, 4), (5, 9)


def drawn(chance, count, lengths):
    return [[FIRST + chance.randrange(10) for _ in range(chance.randint(*lengths))] for _ in range(count)]


def batch_of(sources, targets):
    labels = [[*target, END] for target in targets]
    rows = [[*source, END] for source in sources], [[START, *target] for target in targets], labels
    source, target, wanted = (Sequences.pad(each, PADDING) for each in rows)
    return Batch(source, target, wanted.tokens, sum(map(len, labels)))


def accuracy(task, lengths, seed, *, steps=120, **settings):
    """The share of unseen outputs that are right in every token after so many updates."""
    torch.manual_seed(seed)
    chance = random.Random(seed)
    size = {"dim": 32, "encoder_layers": 1, "decoder_layers": 1, "attention_hidden": 16, "longest": 32, "dropout": 0.0}
    model = Recurrent(RecurrentConfig(**{**size, **settings}), VOCABULARY, VOCABULARY)
    objective = LabelSmoothedLikelihood(0.1)
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-2, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-2, total_steps=steps, pct_start=0.1)
    for _ in range(steps):
        sources = drawn(chance, 160, lengths)
        loss = objective(model, batch_of(sources, [task(source) for source in sources]))
        (loss.total / loss.units).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        schedule.step()
    model.eval()
    sources = drawn(chance, 200, lengths)
    with torch.inference_mode():
        state = model.start(model.encode(Sequences.pad([[*source, END] for source in sources], PADDING)))
    config = DecodingConfig(beam=1, limit_extra=4, longest=24)
    found = decode(
        model, state, [Request(tuple(each)) for each in sources], config, Symbols(START, END, (PADDING, START))
    )
    right = [
        best.finished and list(best.tokens) == task(source) for source, (best,) in zip(sources, found, strict=True)
    ]
    return sum(right) / len(right)


def copied(digits):
    return digits


def reversed_(digits):
    return digits[::-1]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_one_fixed_context_learns_to_copy_short_sequences(cell, seed):
    assert accuracy(copied, SHORT, seed, cell=cell, attention="none") > 0.85


@pytest.mark.parametrize("seed", [1, 2])
def test_attention_learns_to_reverse_long_sequences_where_one_fixed_context_does_not(seed):
    with_attention = accuracy(reversed_, LONG, seed)
    without = accuracy(reversed_, LONG, seed, attention="none")
    assert with_attention > 0.8
    assert without < 0.4


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    ("task", "settings"),
    [
        (reversed_, {"attention": "function", "input_feeding": True, "steps": 80}),
        (reversed_, {"attention": "multiplicative", "window": "local-p", "window_size": 3}),
        (copied, {"attention": "multiplicative", "window": "local-m", "window_size": 2}),
    ],
    ids=["function, fed", "predicted window", "window that moves on"],
)
def test_other_scores_and_windows_learn_long_sequences(task, settings, seed):
    assert accuracy(task, LONG, seed, **settings) > 0.5

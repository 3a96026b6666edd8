"""Models of slots learn to pronounce a toy language: letters that sound once, twice, otherwise at the end, or never."""

import random

import pytest
import torch

from headway.data.batches import Batch
from headway.engine import Engine
from headway.models.ctc import Ctc, CtcConfig
from headway.objectives import AlignmentLikelihood
from headway.search import DecodingConfig, Request, Symbols
from headway.sequences import Sequences

PADDING, START, END, FIRST = 0, 1, 2, 3
LETTERS = 10
VOCABULARY = FIRST + LETTERS
SILENT, DOUBLE, SOFT = 0, (1, 2), 3


def sounds(word):
    """Two letters sound twice, one is silent, and one is another sound before the end of a word."""
    spoken = []
    for place, letter in enumerate(word):
        kind = letter - FIRST
        if kind in DOUBLE:
            spoken += [letter, letter + 4]
        elif kind == SOFT and place == len(word) - 1:
            spoken.append(FIRST + 9)
        elif kind != SILENT:
            spoken.append(letter)
    return spoken


def drawn(chance, count):
    return [[FIRST + chance.randrange(LETTERS) for _ in range(chance.randint(1, 6))] for _ in range(count)]


def batch_of(words):
    spoken = [sounds(word) for word in words]
    return Batch(
        Sequences.pad([[*word, END] for word in words], PADDING),
        Sequences.pad([[START, *each] for each in spoken], PADDING),
        Sequences.pad([[*each, END] for each in spoken], PADDING).tokens,
        sum(len(each) + 1 for each in spoken),
    )


def trained(encoder, seed, steps):
    torch.manual_seed(seed)
    chance = random.Random(seed)
    config = CtcConfig(
        encoder=encoder, dim=32, heads=4, hidden=64, encoder_layers=1, decoder_layers=1, upsample=2, longest=16,
        norm="pre", dropout=0.0,
    )  # fmt: skip
    model, objective = Ctc(config, VOCABULARY, VOCABULARY), AlignmentLikelihood()
    optimiser = torch.optim.Adam(model.parameters(), lr=1.2e-2, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 1.2e-2, total_steps=steps, pct_start=0.1)
    for _ in range(steps):
        loss = objective(model, batch_of(drawn(chance, 64)))
        (loss.total / loss.units).backward()
        optimiser.step()
        optimiser.zero_grad()
        schedule.step()
    return model.eval(), chance


def accuracy(model, words, beam):
    """The share of words that are spoken rightly from beginning to end."""
    engine = Engine(model, Symbols(START, END, (PADDING,)))
    found = engine.search([Request(tuple(word)) for word in words], DecodingConfig(beam=beam))
    right = [list(answer[0].tokens) == sounds(word) for word, answer in zip(words, found, strict=True)]
    return sum(right) / len(right)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("encoder", "steps"), [("transformer", 140), ("recurrent", 110), ("convolutional", 120)])
def test_slots_learn_to_pronounce(encoder, steps, seed):
    model, chance = trained(encoder, seed, steps)
    words = drawn(chance, 200)
    assert accuracy(model, words, beam=1) > 0.95
    assert accuracy(model, words, beam=4) > 0.95

"""Toy tasks over digits: a model learns one from the real objective and is asked by the real search."""

import random

import torch

from headway.data.batches import Batch
from headway.objectives import LabelSmoothedLikelihood
from headway.search import DecodingConfig, Request, Symbols, decode
from headway.sequences import Sequences

PADDING, START, END, FIRST = 0, 1, 2, 3
VOCABULARY = FIRST + 10


def digits(chance, count, longest=4):
    return [[FIRST + chance.randrange(10) for _ in range(chance.randint(1, longest))] for _ in range(count)]


def batch_of(sources, targets):
    labels = [[*target, END] for target in targets]
    given = [[*source, END] for source in sources], [[START, *target] for target in targets], labels
    source, target, wanted = (Sequences.pad(rows, PADDING) for rows in given)
    return Batch(source, target, wanted.tokens, sum(map(len, labels)))


def taught(model, draw, task, *, seed, steps, rate):
    """The model after some steps of training on what `draw` draws; and the chance to draw more."""
    chance = random.Random(seed)
    objective = LabelSmoothedLikelihood(0.1)
    optimiser = torch.optim.Adam([each for each in model.parameters() if each.requires_grad], betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=steps, pct_start=0.1)
    for _ in range(steps):
        sources = draw(chance, 64)
        loss = objective(model, batch_of(sources, [task(source) for source in sources]))
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

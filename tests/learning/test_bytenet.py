"""A small ByteNet learns to copy digits, and to write of every digit and the one after it the larger."""

import pytest
import torch

import toys
from headway.models.bytenet import ByteNet, ByteNetConfig


def copied(tokens):
    return tokens


def larger_of_neighbours(tokens):
    return [max(tokens[place : place + 2]) for place in range(len(tokens))]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("task", "steps"), [(copied, 60), (larger_of_neighbours, 120)])
def test_a_tiny_bytenet_learns_its_task(task, steps, seed):
    torch.manual_seed(seed)
    config = ByteNetConfig(dim=48, encoder_layers=2, decoder_layers=2, dilations=2, longest=16, dropout=0.0)
    model = ByteNet(config, toys.VOCABULARY, toys.VOCABULARY)
    model, chance = toys.taught(model, toys.digits, task, seed=seed, steps=steps, rate=8e-3)
    assert toys.accuracy(model, task, toys.digits(chance, 200)) > 0.95

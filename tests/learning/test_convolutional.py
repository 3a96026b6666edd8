"""A small convolutional model learns to copy and to reverse digits."""

import pytest
import torch

import toys
from headway.models.convolutional import Convolutional, ConvolutionalConfig


def copied(tokens):
    return tokens


def reversed_(tokens):
    return tokens[::-1]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("task", "steps"), [(copied, 60), (reversed_, 120)])
def test_a_tiny_convolutional_model_learns_its_task(task, steps, seed):
    torch.manual_seed(seed)
    config = ConvolutionalConfig(dim=32, encoder_layers=2, decoder_layers=2, longest=16, dropout=0.0)
    model = Convolutional(config, toys.VOCABULARY, toys.VOCABULARY)
    model, chance = toys.taught(model, toys.digits, task, seed=seed, steps=steps, rate=1.2e-2)
    assert toys.accuracy(model, task, toys.digits(chance, 200)) > 0.95

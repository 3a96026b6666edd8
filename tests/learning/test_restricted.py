"""A Transformer whose positions see a window of three learns to copy."""

import pytest
import torch

import toys
from headway.models.transformer import Transformer, TransformerConfig


@pytest.mark.parametrize("seed", [1, 2])
def test_a_window_of_three_is_enough_to_copy(seed):
    torch.manual_seed(seed)
    sizes = {"dim": 32, "heads": 4, "hidden": 64, "encoder_layers": 1, "decoder_layers": 1, "longest": 16}
    model = Transformer(TransformerConfig(**sizes, norm="pre", dropout=0.0, window=3), toys.VOCABULARY, toys.VOCABULARY)
    taught, chance = toys.taught(model, toys.digits, lambda source: source, seed=seed, steps=150, rate=1.2e-2)
    assert toys.accuracy(taught, lambda source: source, toys.digits(chance, 100)) >= 0.98

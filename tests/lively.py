"""A tiny model that was never trained but writes something else for every source."""

from pathlib import Path

import torch

from headway.data.tokenizer import Tokenizer, TokenizerConfig
from headway.models.transformer import Transformer, TransformerConfig
from headway.search import DecodingConfig
from headway.translator import Translator
from sentences import SENTENCES


def save_lively(folder: Path, *, seed: int = 1, strength: float = 3.0) -> Path:
    """Write its folder; the vocabulary is always the same."""
    tokenizer = Tokenizer.train(SENTENCES, TokenizerConfig(vocabulary=300))
    config = TransformerConfig(dim=16, heads=2, hidden=16, encoder_layers=1, decoder_layers=1, longest=32)
    torch.manual_seed(seed)
    model = Transformer(config, tokenizer.size, tokenizer.size).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim > 1 and "embedding" not in name and "output" not in name:
                weight.mul_(strength)
    Translator(model, tokenizer, tokenizer, DecodingConfig(beam=2, longest=12)).save(folder)
    return folder

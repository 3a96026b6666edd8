from collections.abc import Callable

import numpy as np
import pytest

from headway.inspection import Attention

SOURCE = ("▁the", "▁black", "▁cat", "▁sleep", "s", "⏎")
WRITTEN = ("▁le", "▁chat", "▁noir", "▁dort", "⏎")


def random_weights(generator: np.random.Generator, *shape: int) -> np.ndarray:
    logits = 3.0 * generator.standard_normal(shape)
    powers = np.exp(logits)
    return (powers / powers.sum(axis=-1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="session")
def make_attention() -> Callable[..., Attention]:
    def make(source=SOURCE, written=WRITTEN, *, layers=2, heads=3, seed=0, **texts) -> Attention:
        generator = np.random.default_rng(seed)
        target = len(written)
        causal = np.tril(random_weights(generator, layers, heads, target, target))
        return Attention(
            source=tuple(source),
            target_in=("⇤", *written[:-1]),
            target_out=tuple(written),
            encoder=random_weights(generator, layers, heads, len(source), len(source)),
            decoder=causal / causal.sum(axis=-1, keepdims=True),
            cross=random_weights(generator, layers, heads, target, len(source)),
            **texts,
        )

    return make

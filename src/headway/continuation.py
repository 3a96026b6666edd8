"""Texts drawn from a language model: each goes on from a beginning, or from nothing."""

from collections.abc import Callable, Sequence
from typing import Any

from headway.errors import ConfigError
from headway.models.model import autoregressive
from headway.search import Request
from headway.sentence import prefix_tokens, seed_of
from headway.translation import Translation
from headway.translator import Translator


def continuations(
    translator: Translator,
    beginnings: Sequence[str],
    *,
    first: int = 0,
    check: Callable[[], None] = lambda: None,
    **options: Any,
) -> list[Translation]:
    """A text for each beginning; `options` are those of `DecodingConfig`, such as `temperature=0.8`.

    Text number i hangs on the seed, on i, counted from `first`, and on its beginning, never on the others.
    """
    model = autoregressive(translator.model, "sample")
    if model.config.reads_source:
        told = f"sample: a {model.config.architecture} model writes what a source calls for"
        raise ConfigError(f"{told}; use a language model, or 'headway translate' with --sample")
    decoding = translator.settings({"sample": True, **options, "nbest": 1, "mbr": 0})
    requests = [
        Request((), _read(translator, text), seed=seed_of(decoding.seed, [number]))
        for number, text in enumerate(beginnings, start=first)
    ]
    found = translator.search(requests, decoding, check=check)
    return [Translation(translator, "", each) for each in found]


def _read(translator: Translator, beginning: str) -> tuple[int, ...]:
    tokens = prefix_tokens(translator.target, beginning)
    if len(tokens) >= translator.longest:
        told = f"{len(tokens)} tokens, the model writes {translator.longest} in all"
        raise ConfigError(f"prefix: {told}; give a shorter beginning")
    return tokens

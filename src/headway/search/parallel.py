"""Outputs that are written all at once: how each kind of non-autoregressive model does it, a plain dict."""

from collections.abc import Callable, Sequence
from typing import Any

from headway.errors import ConfigError
from headway.models.model import NonAutoregressive
from headway.search.config import DecodingConfig
from headway.search.ctc import write_slots
from headway.search.fertility import write_by_fertilities
from headway.search.hypothesis import Hypothesis
from headway.search.masked import write_by_masks
from headway.search.request import Request, Symbols
from headway.sequences import Sequences

Writer = Callable[
    [Any, Sequences, Sequence[Request], DecodingConfig, Symbols],
    list[list[Hypothesis]],
]
"""From a model, padded sources with their end symbols, their requests and the settings to outputs, best first."""

WRITERS: dict[str, Writer] = {
    "ctc": write_slots,
    "fertility": write_by_fertilities,
    "mask-predict": write_by_masks,
}
"""By architecture."""


def write(
    model: NonAutoregressive,
    source: Sequences,
    requests: Sequence[Request],
    config: DecodingConfig,
    symbols: Symbols,
) -> list[list[Hypothesis]]:
    """The outputs for every source, best first."""
    if config.sample or config.coverage_penalty or config.no_repeat or config.repetition > 1.0 or config.groups > 1:
        told = f"a {model.config.architecture} model writes all tokens at once"
        raise ConfigError(f"{told}: sample, groups, coverage_penalty, no_repeat and repetition do not apply")
    return WRITERS[model.config.architecture](model, source, requests, config, symbols)

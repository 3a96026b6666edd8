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


UNKNOWN = ("sample", "groups", "coverage_penalty", "no_repeat", "repetition")
"""Settings that need one token after the other."""

LENGTHS = ("shortest_ratio", "shortest_extra")
"""Settings that need a length to choose: of these models only mask-predict chooses one."""


def check(architecture: str, config: DecodingConfig) -> None:
    """Refuse settings that a model that writes all tokens at once cannot follow."""
    unknown = UNKNOWN if architecture == "mask-predict" else (*UNKNOWN, *LENGTHS)
    usual = DecodingConfig()
    set_ = [name for name in unknown if getattr(config, name) != getattr(usual, name)]
    if set_:
        told = f"decoding.{set_[0]}: a {architecture} model writes all tokens at once"
        raise ConfigError(f"{told}; leave out {', '.join(set_)}")


def write(
    model: NonAutoregressive,
    source: Sequences,
    requests: Sequence[Request],
    config: DecodingConfig,
    symbols: Symbols,
) -> list[list[Hypothesis]]:
    """The outputs for every source, best first."""
    check(model.config.architecture, config)
    return WRITERS[model.config.architecture](model, source, requests, config, symbols)

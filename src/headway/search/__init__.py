"""Decoding over any model that can take one step."""

from headway.search.config import DecodingConfig
from headway.search.decode import Search, decode
from headway.search.hypothesis import Hypothesis, Scoring
from headway.search.request import Request, Symbols
from headway.search.stepper import Reader, State, Stepper

__all__ = [
    "DecodingConfig",
    "Hypothesis",
    "Reader",
    "Request",
    "Scoring",
    "Search",
    "State",
    "Stepper",
    "Symbols",
    "decode",
]

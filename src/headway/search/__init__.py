"""Decoding over any model that can take one step."""

from headway.search.beam import beam_search
from headway.search.config import DecodingConfig
from headway.search.decode import decode
from headway.search.greedy import greedy
from headway.search.hypothesis import Hypothesis
from headway.search.stepper import State, Stepper

__all__ = ["DecodingConfig", "Hypothesis", "State", "Stepper", "beam_search", "decode", "greedy"]

"""Experiments of the papers, made small: each measures one claim and leaves a page."""

from headway.reproduce import bottleneck, extrapolation, heads, ladder, layers
from headway.reproduce.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    "bottleneck": bottleneck.run,
    "extrapolation": extrapolation.run,
    "heads": heads.run,
    "ladder": ladder.run,
    "layers": layers.run,
}
"""By name, a plain dict."""

SEEDS = {"heads": 2}
"""How often models are trained where it is not said, so that two cores are done within ten minutes; else thrice."""

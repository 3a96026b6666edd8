"""The search the settings ask for."""

from collections.abc import Sequence

from headway.search.beam import beam_search
from headway.search.config import DecodingConfig
from headway.search.greedy import greedy
from headway.search.hypothesis import Hypothesis
from headway.search.stepper import State, Stepper


def decode(
    stepper: Stepper[State],
    state: State,
    config: DecodingConfig,
    *,
    start: int,
    end: int,
    source_lengths: Sequence[int],
    forbidden: Sequence[int] = (),
) -> list[list[Hypothesis]]:
    """The `config.nbest` outputs for every source, best first; `state` has one row for each source."""
    limits = [config.limit(length) for length in source_lengths]
    if config.beam == 1:
        best = greedy(
            stepper,
            state,
            length_penalty=config.length_penalty,
            limits=limits,
            start=start,
            end=end,
            forbidden=forbidden,
        )
        return [[hypothesis] for hypothesis in best]
    return beam_search(
        stepper,
        state,
        beam=config.beam,
        nbest=config.nbest,
        length_penalty=config.length_penalty,
        limits=limits,
        start=start,
        end=end,
        forbidden=forbidden,
    )

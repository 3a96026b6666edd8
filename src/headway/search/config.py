"""The settings of decoding."""

from typing import Annotated

from pydantic import Field, model_validator

from headway.config import Settings


class DecodingConfig(Settings):
    """How outputs are searched for; beam and length penalty start as in Vaswani et al. 2017, section 6.1."""

    beam: Annotated[int, Field(ge=1, le=64)] = 4
    """Hypotheses kept for every sentence; 1 is greedy decoding."""
    length_penalty: Annotated[float, Field(ge=0.0, le=10.0)] = 0.6
    """How much longer outputs are favoured: 0 ranks by log-probability, 1 nearly by its mean per token."""
    nbest: Annotated[int, Field(ge=1, le=64)] = 1
    """Outputs returned for every sentence, best first; at most `beam`."""
    limit_ratio: Annotated[float, Field(ge=0.0, le=1000.0)] = 2.0
    """An output is at most this many times as long as its source, plus `limit_extra`."""
    limit_extra: Annotated[int, Field(ge=0)] = 20
    """Tokens an output may have on top of `limit_ratio` times its source."""
    longest: Annotated[int, Field(ge=1)] = 256
    """No output has more tokens than this."""

    @model_validator(mode="after")
    def _nbest_fits_the_beam(self) -> "DecodingConfig":
        if self.nbest > self.beam:
            raise ValueError(f"nbest is {self.nbest} but the beam keeps only {self.beam}; raise beam or lower nbest")
        return self

    def limit(self, source_length: int) -> int:
        """The greatest number of tokens the output for a source of this length may have."""
        return min(self.longest, int(self.limit_ratio * source_length) + self.limit_extra)

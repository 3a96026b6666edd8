"""The settings of decoding."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from headway.config import Settings

Long = Literal["split", "truncate", "refuse"]
"""What is done with a source longer than the model knows."""


Fertilities = Literal["argmax", "average", "noisy"]
"""Which fertilities are decoded from."""


class DecodingConfig(Settings):
    """How outputs are searched for; beam and length penalty start as in Vaswani et al. 2017, section 6.1."""

    beam: Annotated[int, Field(ge=1, le=64)] = 4
    """Hypotheses kept for every sentence; 1 is greedy decoding. Of a model that writes all tokens at once: outputs
    tried, by noisy fertilities or by mask-predict of several lengths."""
    nbest: Annotated[int, Field(ge=1, le=1024)] = 1
    """Outputs returned for every sentence, best first; at most `beam`, unless they are sampled."""
    length_penalty: Annotated[float, Field(ge=0.0, le=10.0)] = 0.6
    """How much longer outputs are favoured: 0 ranks by log-probability, 1 nearly by its mean per token."""
    coverage_penalty: Annotated[float, Field(ge=0.0, le=10.0)] = 0.0
    """How much outputs are marked down that leave source tokens unread (Wu et al. 2016, equation 14)."""
    limit_ratio: Annotated[float, Field(ge=0.0, le=1000.0)] = 2.0
    """An output is at most this many times as long as its source, plus `limit_extra`."""
    limit_extra: Annotated[int, Field(ge=0)] = 20
    """Tokens an output may have on top of `limit_ratio` times its source."""
    longest: Annotated[int, Field(ge=1)] = 256
    """No output has more tokens than this."""
    shortest_ratio: Annotated[float, Field(ge=0.0, le=1000.0)] = 0.0
    """An output is at least this many times as long as its source, plus `shortest_extra`, where its limit allows."""
    shortest_extra: Annotated[int, Field(ge=0)] = 0
    """Tokens an output must have on top of `shortest_ratio` times its source."""
    no_repeat: Annotated[int, Field(ge=0, le=64)] = 0
    """No output holds the same sequence of this many tokens twice; 0 allows it."""
    repetition: Annotated[float, Field(ge=1.0, le=100.0)] = 1.0
    """Log-probabilities of tokens already written are multiplied by this when the next one is chosen."""
    groups: Annotated[int, Field(ge=1, le=64)] = 1
    """Parts of the beam that are kept unlike each other (Vijayakumar et al. 2018); a divisor of `beam`."""
    diversity: Annotated[float, Field(ge=0.0, le=100.0)] = 0.5
    """How strongly a group avoids the tokens that groups before it took in the same step."""
    sample: bool = False
    """Draw `nbest` outputs at random instead of searching for the likeliest."""
    temperature: Annotated[float, Field(gt=0.0, le=100.0)] = 1.0
    """Below 1 samples keep to likely tokens, above 1 they dare more."""
    top_k: Annotated[int, Field(ge=0)] = 0
    """Samples are drawn from this many likeliest tokens; 0 for all."""
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """Samples are drawn from the likeliest tokens that together have this probability (Holtzman et al. 2020)."""
    typical: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """Samples are drawn from the tokens nearest the expected surprise that together have this probability (Meister et
    al. 2023)."""
    seed: Annotated[int, Field(ge=0, lt=1 << 32)] = 0
    """Chooses the samples; those of a sentence never depend on other sentences."""
    mbr: Annotated[int, Field(ge=0, le=1024)] = 0
    """Outputs compared with each other to return the one most like the others by chrF, those of a beam weighed by their
    probability (minimum Bayes risk); 0 for none."""
    fertilities: Fertilities = "argmax"
    """How a fertility model says how often each source token is copied: the likeliest number, the average one, or
    noisy: the likeliest and draws of `temperature`, the best of `beam` outputs in all (Gu et al. 2018)."""
    iterations: Annotated[int, Field(ge=1, le=1000)] = 10
    """Rounds in which mask-predict writes and hides again what it is least sure of; 1 writes once."""
    long: Long = "split"
    """A source longer than the model knows is translated piece by piece, cut short, or refused."""

    @model_validator(mode="after")
    def _settings_fit_together(self) -> "DecodingConfig":
        if self.nbest > self.beam and not self.sample and not self.mbr:
            raise ValueError(f"nbest is {self.nbest} but the beam keeps only {self.beam}; raise beam or lower nbest")
        if self.mbr and self.nbest > self.mbr:
            raise ValueError(f"nbest is {self.nbest} but mbr compares only {self.mbr}; raise mbr or lower nbest")
        if self.mbr > self.beam and not self.sample:
            raise ValueError(f"mbr is {self.mbr} but the beam keeps only {self.beam}; raise beam or set sample")
        if self.beam % self.groups:
            raise ValueError(f"beam {self.beam} cannot be divided into {self.groups} groups; choose a divisor")
        if self.sample and (self.groups > 1 or self.coverage_penalty):
            raise ValueError("samples are drawn one by one; groups and coverage_penalty are for a beam")
        return self

    def limit(self, source_length: int) -> int:
        """The greatest number of tokens the output for a source of this length may have."""
        return min(self.longest, int(self.limit_ratio * source_length) + self.limit_extra)

    def shortest(self, source_length: int) -> int:
        """The least number of tokens the output for a source of this length must have."""
        return min(self.limit(source_length), int(self.shortest_ratio * source_length) + self.shortest_extra)

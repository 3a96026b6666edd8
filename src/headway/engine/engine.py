"""Our own decoding engine: it does all that can be asked, and gives a sentence the same answer in every batch."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from headway.data.lexicon import Lexicon
from headway.engine.backend import nothing
from headway.engine.captured import captured
from headway.errors import ConfigError
from headway.models.model import Autoregressive, Model, NonAutoregressive, autoregressive
from headway.models.transformer import Transformer
from headway.search import DecodingConfig, Hypothesis, Request, Search, Stepper, Symbols, decode
from headway.search.decode import wanted
from headway.search.ensemble import Ensemble
from headway.search.graphs import ONE_AT_A_TIME, placed
from headway.search.parallel import write
from headway.search.shortlist import Shortlisted
from headway.sequences import Sequences

TOGETHER = {"cpu": 4096, "cuda": 1 << 16}
"""Source cells decoded in one batch, by kind of device."""

LOGITS = {"cpu": 1 << 25, "cuda": 1 << 29}
"""Log-probabilities computed at once at most, where a batch has more than one sentence."""


@dataclass(frozen=True)
class Engine:
    """One model, or several with one vocabulary, ready to decode; it holds no state between calls."""

    model: Model
    symbols: Symbols
    others: tuple[Model, ...] = ()
    """Further models; all decode as one."""
    lexicon: Lexicon | None = None
    """Restricts the output layer to what a source may call for."""

    @property
    def device(self) -> torch.device:
        """Where the models compute."""
        return self.model.output.weight.device

    @property
    def stepwise(self) -> bool:
        """Whether a search can be followed token by token."""
        return self.lexicon is None and isinstance(self.model, Autoregressive)

    @property
    def longest(self) -> int:
        """The most tokens of a source or an output, without the end symbol."""
        return min(each.config.longest for each in (self.model, *self.others)) - 1

    def search(
        self, requests: Sequence[Request], config: DecodingConfig, *, check: Callable[[], None] = nothing
    ) -> list[list[Hypothesis]]:
        """The best hypotheses for every request, in order; an empty source gets none, unless the model reads no source.

        `check` is called before every batch and may raise to stop.
        """
        if any(len(each.prefix) + sum(map(len, each.required)) > self.longest for each in requests):
            raise ConfigError(f"required: more than the {self.longest} tokens the model can write; shorten the phrases")
        config = self._bounded(config)
        answers: list[list[Hypothesis]] = [[] for _ in requests]
        kind = self.device.type if self.device.type in TOGETHER else "cpu"
        rows = wanted(config) if config.sample else config.beam
        most = max(1, LOGITS[kind] // (rows * len(self.model.output.weight)))
        blank = not self.model.config.reads_source
        if blank:  # then outputs, not sources, decide what a batch takes
            most = min(most, max(1, TOGETHER[kind] // max(1, config.limit(0))))
        for batch in batches(requests, TOGETHER[kind], most, blank=blank):
            check()
            with torch.autocast(self.device.type, enabled=False):  # the weights say how exactly is computed
                found = self.decode([requests[index] for index in batch], config)
            for index, each in zip(batch, found, strict=True):
                answers[index] = each
        return answers

    def begin(self, requests: Sequence[Request], config: DecodingConfig) -> Search[Any]:
        """A search to be advanced step by step; sources are not empty."""
        config = self._bounded(config)
        stepper, state = self._stepper(requests, config)
        return Search(stepper, state, requests, config, self.symbols, self.device)

    @torch.inference_mode()
    def decode(self, requests: Sequence[Request], config: DecodingConfig) -> list[list[Hypothesis]]:
        """The best hypotheses for every request, all of them as one batch; sources are not empty."""
        with torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext():
            return self._decode(requests, self._bounded(config))

    def _decode(self, requests: Sequence[Request], config: DecodingConfig) -> list[list[Hypothesis]]:
        if isinstance(self.model, NonAutoregressive):
            return self._at_once(self.model, requests, config)
        if isinstance(self.model, Transformer) and self._plain(requests, config):
            return captured(self.model, self.symbols, requests, config)
        if self.lexicon is None:
            stepper, state = self._stepper(requests, config)
            return decode(stepper, state, requests, config, self.symbols, self.device)
        return self._shortlisted(requests, config, self.lexicon)

    def _bounded(self, config: DecodingConfig) -> DecodingConfig:
        """The settings with no output longer than the models can write."""
        if config.longest <= self.longest:
            return config
        return config.model_copy(update={"longest": self.longest})

    def _at_once(
        self, model: NonAutoregressive, requests: Sequence[Request], config: DecodingConfig
    ) -> list[list[Hypothesis]]:
        """The outputs of a model that has no next token, of which nothing can be asked but to write."""
        if self.others or self.lexicon is not None:
            raise ConfigError(f"a {model.config.architecture} model decodes alone, without ensemble and shortlist")
        if any(each.prefix or each.required or each.banned for each in requests):
            told = f"a {model.config.architecture} model writes all tokens at once"
            raise ConfigError(f"{told}: prefix, required and banned phrases need one that writes them one by one")
        with ONE_AT_A_TIME if self.device.type == "cuda" else nullcontext():
            source = placed(self._rows(requests), self._end, self.device, model.config.longest)
            return write(model, source, requests, config, self.symbols)

    def _plain(self, requests: Sequence[Request], config: DecodingConfig) -> bool:
        """Whether a captured search can do what is asked: one model on a GPU, a beam, and no rule."""
        if self.device.type != "cuda" or self.others or self.lexicon is not None or not self.model.capturable:
            return False
        special = config.sample or config.groups > 1 or config.coverage_penalty > 0
        ruled = config.no_repeat > 0 or config.repetition > 1.0
        return not (special or ruled or any(each.prefix or each.required or each.banned for each in requests))

    @torch.inference_mode()
    def _stepper(self, requests: Sequence[Request], config: DecodingConfig) -> tuple[Stepper[Any], Any]:
        """The models as one stepper, and its state before the first token."""
        models = [autoregressive(model, "search") for model in (self.model, *self.others)]
        states = [self._start(model, requests, config) for model in models]
        return (Ensemble(models), tuple(states)) if self.others else (models[0], states[0])

    def _start(self, model: Autoregressive[Any, Any], requests: Sequence[Request], config: DecodingConfig) -> Any:
        source = self._source(requests)
        return model.start(model.encode(source), coverage=config.coverage_penalty > 0)

    def _source(self, requests: Sequence[Request]) -> Sequences:
        return Sequences.pad(self._rows(requests), self._end).to(self.device)

    @property
    def _end(self) -> int:
        return self.symbols.end if self.symbols.source_end is None else self.symbols.source_end

    def _rows(self, requests: Sequence[Request]) -> list[list[int]]:
        return [[*request.source, self._end] for request in requests]

    def _shortlisted(
        self, requests: Sequence[Request], config: DecodingConfig, lexicon: Lexicon
    ) -> list[list[Hypothesis]]:
        """Decode in the vocabulary of the batch, and say the answers in the model's."""
        allowed = [np.union1d(lexicon.allowed(request.source), self._needed(request)) for request in requests]
        vocabulary = np.unique(np.concatenate(allowed))
        if 2 * len(vocabulary) > lexicon.target_size:  # too little to gain; each sentence still keeps to its own tokens
            vocabulary = np.arange(lexicon.target_size)
        names = {int(token): place for place, token in enumerate(vocabulary)}
        symbols = self._renamed(names)
        models = [autoregressive(model, "shortlist") for model in (self.model, *self.others)]
        members = [Shortlisted.over(model, vocabulary) for model in models]
        begun = [self._start(model, requests, config) for model in models]
        states = [each.start(state, allowed) for each, state in zip(members, begun, strict=True)]
        stepper: Stepper[Any] = Ensemble(members) if self.others else members[0]
        state = tuple(states) if self.others else states[0]
        renamed = [request.renamed(names) for request in requests]
        found = decode(stepper, state, renamed, config, symbols, self.device)
        return [
            [replace(each, tokens=tuple(int(vocabulary[token]) for token in each.tokens)) for each in answers]
            for answers in found
        ]

    def _needed(self, request: Request) -> list[int]:
        """Tokens a request needs whatever the lexicon says."""
        phrases = (token for phrase in request.required for token in phrase)
        return sorted({self.symbols.start, self.symbols.end, *request.prefix, *phrases})

    def _renamed(self, names: dict[int, int]) -> Symbols:
        """The symbols in another vocabulary, named by token."""
        return Symbols(
            names[self.symbols.start],
            names[self.symbols.end],
            tuple(names[token] for token in self.symbols.forbidden if token in names),
            surfaces=tuple(self.symbols.surfaces[token] for token in names) if self.symbols.surfaces else (),
        )


def batches(requests: Sequence[Request], cells: int, most: int, *, blank: bool = False) -> Iterator[list[int]]:
    """Indices of requests, of like length together: at most `most`, and of bounded size.

    Those whose sources are empty are left out, but with `blank`.
    """
    lengths = [len(request.source) for request in requests]
    chosen = (index for index, length in enumerate(lengths) if length or blank)
    order = sorted(chosen, key=lambda index: lengths[index])
    batch: list[int] = []
    for index in order:
        if batch and ((len(batch) + 1) * (lengths[index] + 1) > cells or len(batch) == most):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch

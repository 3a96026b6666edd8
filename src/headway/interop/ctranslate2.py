"""CTranslate2 as the engine: our model in its hands, our settings in its words, our scores for what it finds."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from headway.engine import Backend, Engine
from headway.engine.backend import nothing
from headway.engine.engine import batches
from headway.errors import ConfigError
from headway.interop.specification import installed, refusal, write
from headway.runtime.cores import read_cores
from headway.search import DecodingConfig, Hypothesis, Request, Scoring, Symbols
from headway.search.decode import ranked, wanted
from headway.translator import Translator

EngineName = Literal["headway", "ctranslate2"]

LEAST, MOST, SHARES = 256, 2048, 4
"""Source cells decoded in one batch: few enough that every worker gets some batches, within these bounds."""
IMPOSSIBLE = -1e9
"""CTranslate2 marks rows of a beam that do not exist by log-probabilities below this."""


def silent(line: str) -> None:
    """Tell nobody."""
    del line


def backend_for(
    translator: Translator, name: EngineName, *, int8: bool = False, tell: Callable[[str], None] = silent
) -> Backend | None:
    """What a translator's `backend` should be; None for our own engine, after telling why where another was asked."""
    if name == "headway":
        if int8:
            raise ConfigError("--int8: is for --engine ctranslate2; give both or none")
        return None
    installed()
    reason = refusal(translator.model.config)
    engine = translator.engine
    if isinstance(engine, Engine) and (engine.others or engine.lexicon is not None):
        reason = "several models or a shortlist are for Headway's own engine"
    if reason is not None:
        tell(f"{reason}; decoding by Headway's own engine")
        return None
    return CTranslate2Backend.of(translator, int8=int8, tell=tell)


def unsupported(request: Request, config: DecodingConfig) -> str | None:
    """Why CTranslate2 cannot do exactly what is asked; None where it can.

    What forbids tokens step by step is among it: CTranslate2 spreads their probability over all others, so that
    searches and scores come out differently.
    """
    asked = {
        "sampling": config.sample,
        "coverage_penalty": config.coverage_penalty > 0,
        "repetition": config.repetition > 1,
        "no_repeat": config.no_repeat > 0,
        "groups": config.groups > 1,
        "an output's shortest length": config.shortest(len(request.source)) > 0,
        "required phrases": bool(request.required),
        "banned phrases": bool(request.banned),
    }
    named = [name for name, present in asked.items() if present]
    return f"{', '.join(named)}: not the same in CTranslate2" if named else None


class FoundElsewhere(Hypothesis):
    """An output of CTranslate2; its log-probabilities token by token are computed when they are first looked at."""

    def __init__(
        self,
        tokens: tuple[int, ...],
        log_probability: float,
        score: float,
        finished: bool,
        token_log_probabilities: Callable[[], tuple[float, ...]] | tuple[float, ...],
    ) -> None:
        parts = {"tokens": tokens, "log_probability": log_probability, "score": score, "finished": finished}
        self.__dict__.update(parts, _parts=token_log_probabilities)

    @cached_property
    def token_log_probabilities(self) -> tuple[float, ...]:
        """One for each token and, where finished, a last one for the end symbol."""
        parts = self.__dict__["_parts"]
        return parts() if callable(parts) else parts


@dataclass(frozen=True)
class CTranslate2Backend:
    """A model in CTranslate2 on the CPU; whatever it cannot do exactly, our own engine does."""

    inner: Any
    """The `ctranslate2.Translator`."""
    own: Translator
    """The same model in our own engine."""
    workers: int = 1
    tell: Callable[[str], None] = silent
    """Is told once, for each reason, that our own engine takes over."""
    _told: set[str] = field(default_factory=set)

    @classmethod
    def of(
        cls,
        translator: Translator,
        *,
        int8: bool = False,
        workers: int | None = None,
        tell: Callable[[str], None] = silent,
    ) -> "CTranslate2Backend":
        """Hand a translator's model over; `workers` sentences are decoded at once, by default one for each core."""
        ctranslate2, workers = installed(), workers or read_cores().available
        with TemporaryDirectory(prefix="headway-") as folder:
            write(translator, Path(folder), int8=int8)
            inner = ctranslate2.Translator(
                folder,
                device="cpu",
                compute_type="int8_float32" if int8 else "float32",
                inter_threads=workers,
                intra_threads=1,
            )
        return cls(inner, translator, workers, tell)

    @property
    def longest(self) -> int:
        """The most tokens of a source, without its end symbol."""
        return self.own.longest

    @cached_property
    def symbols(self) -> Symbols:
        """What a search must know of the vocabulary."""
        return self.own.symbols

    @cached_property
    def names(self) -> list[str]:
        """The tokens of both sides as CTranslate2 knows them."""
        return [str(token) for token in range(max(self.own.source.size, self.own.target.size))]

    @cached_property
    def tokens(self) -> dict[str, int]:
        """The way back."""
        return {name: token for token, name in enumerate(self.names)}

    def search(
        self, requests: Sequence[Request], config: DecodingConfig, *, check: Callable[[], None] = nothing
    ) -> list[list[Hypothesis]]:
        """The best hypotheses for every request, in order; an empty source gets none.

        `check` is called before every batch and may raise to stop.
        """
        config = config.model_copy(update={"longest": min(config.longest, self.longest)})
        answers: list[list[Hypothesis]] = [[] for _ in requests]
        plain: list[int] = []
        begun: list[int] = []
        own: list[int] = []
        for place, request in enumerate(requests):
            reason = unsupported(request, config)
            if reason is not None:
                own.append(place)
                self._explain(reason)
            else:
                (begun if request.prefix else plain).append(place)
        for chosen in plain, begun:  # apart: a prefix changes how CTranslate2 searches for all sentences of its batch
            own += self._decode(requests, chosen, config, answers, check)
        if own:
            many = config.model_copy(update={"nbest": wanted(config), "mbr": 0})  # whoever asked compares them
            again = self.own.search([requests[place] for place in own], many, check=check)
            for place, found in zip(own, again, strict=True):
                answers[place] = found
        return answers

    def _explain(self, reason: str) -> None:
        """Tell, the first time, why our own engine takes over."""
        if reason not in self._told:
            self._told.add(reason)
            self.tell(f"{reason}; Headway's own engine decodes in its place")

    def _decode(
        self,
        requests: Sequence[Request],
        chosen: Sequence[int],
        config: DecodingConfig,
        answers: list[list[Hypothesis]],
        check: Callable[[], None],
    ) -> list[int]:
        """Fill in the answers of the chosen requests; returns those that must be decoded otherwise."""
        asked = [requests[place] for place in chosen]
        cells = sum(len(request.source) + 1 for request in asked)
        together = list(batches(asked, max(LEAST, min(MOST, cells // (SHARES * self.workers))), len(asked)))
        running = []
        for batch in reversed(together):  # the longest first: what comes last should be short
            check()
            running.append((batch, self._begin([asked[each] for each in batch], config)))
        otherwise = []
        for batch, handles in running:
            for each, handle in zip(batch, handles, strict=True):
                found = self._answer(asked[each], handle.result(), config)
                if found is None:
                    otherwise.append(chosen[each])
                else:
                    answers[chosen[each]] = found
        return otherwise

    def _begin(self, requests: Sequence[Request], config: DecodingConfig) -> list[Any]:
        """Let CTranslate2 begin with a batch.

        With a length penalty all of the beam is asked for, since ours may rank it otherwise. The limit is the longest
        in the batch and one more, for the end symbol.
        """
        begun = any(request.prefix for request in requests)
        return self.inner.translate_batch(
            [self._source(request) for request in requests],
            [self._named(request.prefix) for request in requests] if begun else None,
            asynchronous=True,
            beam_size=config.beam,
            num_hypotheses=config.beam if config.length_penalty else wanted(config),
            length_penalty=config.length_penalty if config.beam > 1 else 0.0,
            max_decoding_length=1 + max(request.limit(config) for request in requests),
            min_decoding_length=0,
            max_input_length=0,
            return_end_token=True,
            return_scores=True,
        )

    def _answer(self, request: Request, result: Any, config: DecodingConfig) -> list[Hypothesis] | None:
        """What CTranslate2 found, scored and ranked by our formula; None where our own engine must decide.

        That is where an output holds a forbidden token, or where a beam went past the limit of its sentence: a batch
        has one limit there, and what lives longer takes the place of what could have ended.
        """
        scoring, most = Scoring(config.length_penalty), request.limit(config)
        before = sum(self._forced(request, request.prefix)[:-1]) if request.prefix else 0.0
        normalised = config.length_penalty if config.beam > 1 else 0.0
        found: list[Hypothesis] = []
        cut: dict[tuple[int, ...], None] = {}
        for named, score in zip(result.hypotheses, result.scores, strict=True):
            if score < IMPOSSIBLE:
                continue
            tokens = tuple([self.tokens[name] for name in named])
            if not self._forbidden.isdisjoint(tokens[len(request.prefix) :]):
                return None
            length = len(tokens)
            if tokens[-1] != self.symbols.end or length > most + 1:
                if config.beam > 1:
                    return None
                cut[tokens[:most]] = None
                continue
            total = score * length**normalised + before
            parts = partial(self._forced, request, tokens[:-1])
            found.append(FoundElsewhere(tokens[:-1], total, total / scoring.penalty(length), True, parts))
        return ranked(found or self._cut(request, cut, scoring), wanted(config), unique=True)

    def _cut(self, request: Request, outputs: Iterable[tuple[int, ...]], scoring: Scoring) -> list[Hypothesis]:
        """Outputs that were cut at their limit, as hypotheses."""
        found: list[Hypothesis] = []
        for tokens in outputs:
            parts = self._forced(request, tokens)[:-1]
            total = sum(parts, 0.0)
            found.append(Hypothesis(tokens, total, total / scoring.penalty(len(tokens)), False, parts))
        return found

    def _forced(self, request: Request, tokens: Sequence[int]) -> tuple[float, ...]:
        """The log-probabilities of tokens and the end symbol after them."""
        (scored,) = self.inner.score_batch([self._source(request)], [self._named(tokens)], max_input_length=0)
        return tuple(scored.log_probs)

    @cached_property
    def _forbidden(self) -> frozenset[int]:
        return frozenset(self.symbols.forbidden)

    def _source(self, request: Request) -> list[str]:
        return self._named((*request.source, self.own.source.end))

    def _named(self, tokens: Collection[int]) -> list[str]:
        names = self.names
        return [names[token] for token in tokens]

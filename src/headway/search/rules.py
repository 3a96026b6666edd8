"""What a search may not choose, or is to choose less readily; rules shape the choice of a step, never a score."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headway.errors import ConfigError
from headway.search.config import DecodingConfig
from headway.search.phrases import FRESH, State, Watch, watch
from headway.search.request import Request, Symbols


@dataclass(frozen=True)
class Rows:
    """The rows a rule looks at, on the host."""

    sentences: list[int]
    """Which of the requests each line belongs to."""
    written: Int[Tensor, "batch beam time"]
    """The tokens of every row so far."""

    @property
    def length(self) -> int:
        """Tokens of every row."""
        return self.written.shape[2]


@runtime_checkable
class Rule(Protocol):
    """Changes what the next tokens of the rows are worth, in place."""

    def __call__(self, merits: Float[Tensor, "batch beam vocabulary"], rows: Rows) -> None:
        """Lower the merits of tokens; minus infinity makes one impossible."""
        ...


@dataclass(frozen=True)
class NoRepeat:
    """No output holds the same `size` tokens in a row twice (Paulus et al. 2018)."""

    size: int
    requests: Sequence[Request]
    """The phrases they require may repeat tokens."""

    def __call__(self, merits: Float[Tensor, "batch beam vocabulary"], rows: Rows) -> None:
        """Forbid the tokens that followed the last `size` - 1 tokens before."""
        for line, sentence in enumerate(rows.written.tolist()):
            required = {token for phrase in self.requests[rows.sentences[line]].required for token in phrase}
            for row, tokens in enumerate(sentence):
                following = sorted(set(self._following(tokens)) - required)
                if following:
                    merits[line, row, torch.tensor(following, device=merits.device)] = -torch.inf

    def _following(self, tokens: list[int]) -> list[int]:
        context = self.size - 1
        if len(tokens) < context:
            return []
        last = tokens[len(tokens) - context :]
        return [
            tokens[start + context] for start in range(len(tokens) - context) if tokens[start : start + context] == last
        ]


@dataclass(frozen=True)
class Repetition:
    """Tokens already written are less welcome (Keskar et al. 2019, on log-probabilities)."""

    strength: float

    def __call__(self, merits: Float[Tensor, "batch beam vocabulary"], rows: Rows) -> None:
        """Multiply their log-probabilities."""
        written = rows.written.to(merits.device)
        merits.scatter_(-1, written, merits.gather(-1, written) * self.strength)


@dataclass(frozen=True)
class Prefix:
    """Outputs begin as their requests say."""

    requests: Sequence[Request]

    def __call__(self, merits: Float[Tensor, "batch beam vocabulary"], rows: Rows) -> None:
        """Forbid all tokens but the next one of the prefix; it stays possible whatever other rules say of it."""
        for line, sentence in enumerate(rows.sentences):
            prefix = self.requests[sentence].prefix
            if rows.length < len(prefix):
                token = prefix[rows.length]
                kept = merits[line, :, token].clamp(min=-1e9)
                merits[line] = -torch.inf
                merits[line, :, token] = kept


@dataclass(frozen=True)
class Banned:
    """No text of an output holds a phrase that its request bans, as whole words, however it is cut into tokens."""

    watches: Sequence[Watch | None]
    """For every request."""
    limits: Sequence[int]
    """The most tokens of every output."""
    end: int
    states: dict[tuple[int, tuple[int, ...]], State] = field(default_factory=dict)
    """Where the reading of each row of the last step stood, by sentence and tokens."""

    def __call__(self, merits: Float[Tensor, "batch beam vocabulary"], rows: Rows) -> None:
        """Forbid the tokens that would put a phrase into the text, and the end right after one."""
        states = {}
        for line, sentence in enumerate(rows.sentences):
            watch, left = self.watches[sentence], self.limits[sentence] - rows.length
            if watch is None:
                continue
            for row, tokens in enumerate(map(tuple, rows.written[line].tolist())):
                state = states[sentence, tokens] = self._state(watch, sentence, tokens)
                if left > 0:  # at the limit the end is all there is to decide
                    forbidden = torch.from_numpy(watch.impossible(state, left))
                    merits[line, row, forbidden.to(merits.device)] = -torch.inf
                if watch.open(state):
                    merits[line, row, self.end] = -torch.inf
        self.states.clear()
        self.states.update(states)

    def _state(self, watch: Watch, sentence: int, tokens: tuple[int, ...]) -> State:
        if not tokens:
            return FRESH
        before = self.states.get((sentence, tokens[:-1]))
        if before is None:  # not a row of the last step
            return reduce(watch.after, tokens, FRESH)
        return watch.after(before, tokens[-1])


def rules(requests: Sequence[Request], config: DecodingConfig, symbols: Symbols) -> list[Rule]:
    """The rules that settings and requests ask for; how an output must begin comes last and wins."""
    asked: list[Rule] = []
    if config.repetition > 1.0:
        asked.append(Repetition(config.repetition))
    if config.no_repeat:
        asked.append(NoRepeat(config.no_repeat, requests))
    if any(request.banned for request in requests):
        limits = [request.limit(config) for request in requests]
        asked.append(Banned(_watches(requests, symbols), limits, symbols.end))
    if any(request.prefix for request in requests):
        asked.append(Prefix(requests))
    return asked


def _watches(requests: Sequence[Request], symbols: Symbols) -> list[Watch | None]:
    """What watches for the phrases each request bans, if any."""
    if not symbols.surfaces:
        raise ConfigError("banned: the vocabulary does not say what its tokens spell; use one that does")
    silent = {symbols.end, *symbols.forbidden}
    surfaces = tuple(b"" if token in silent else surface for token, surface in enumerate(symbols.surfaces))
    banned = [tuple(phrase.strip() for phrase in request.banned) for request in requests]
    if not all(phrase for phrases in banned for phrase in phrases):
        raise ConfigError("banned: an empty phrase would ban every output; leave it out")
    watches = {phrases: watch(surfaces, phrases) for phrases in set(banned) if phrases}
    return [watches.get(phrases) for phrases in banned]

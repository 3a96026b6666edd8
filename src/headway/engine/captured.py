"""Beam search in fixed room, each step captured as one CUDA graph: the GPU never waits for the host.

Uncaptured, the same code runs on any device, step by step as it stands.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from weakref import WeakKeyDictionary, ref

import torch
from jaxtyping import Float
from torch import Tensor

from headway.errors import HeadwayError
from headway.models.transformer import DecoderState, Transformer
from headway.nn.attention import FixedLineage, FixedPast, Visible
from headway.nn.compiling import compiles
from headway.nn.embedding import unbiased
from headway.search import DecodingConfig, Hypothesis, Request, Scoring, Symbols
from headway.search.beam import Beam
from headway.search.decode import hypotheses, wanted
from headway.search.found import Found
from headway.search.graphs import ONE_AT_A_TIME, as_graph, rounded, weights_of
from headway.search.records import Records, Taken
from headway.sequences import Sequences

STAGES = tuple(1 << power for power in range(4, 17))
"""Room for tokens that a step looks at; one graph each, captured when outputs first grow so long."""

KEPT, BYTES_KEPT = 64, 4 << 30
"""Searches kept for each model, and the bytes of what they remember; the one used longest ago goes first."""

LOOK = 8
"""Steps between two looks at whether all sentences are done."""


@dataclass(frozen=True)
class Room:
    """The sizes for which a search is captured."""

    sentences: int
    source: int
    """Tokens of the longest source, end symbol included."""
    target: int
    """Tokens of the longest output."""
    beam: int
    nbest: int
    scoring: Scoring

    @classmethod
    def fitting(cls, requests: Sequence[Request], config: DecodingConfig, longest: int) -> "Room":
        """Room for these requests, none over `longest`; sizes are rounded up, so that few differ."""
        source = max(len(request.source) for request in requests) + 1
        target = max(request.limit(config) for request in requests)
        return cls(
            sentences=1 << (len(requests) - 1).bit_length(),
            source=rounded(source, longest),
            target=rounded(target, longest),
            beam=config.beam,
            nbest=min(config.beam, wanted(config)),
            scoring=Scoring(config.length_penalty),
        )


class Captured:
    """A search whose every tensor has a place of its own; only `run` changes them."""

    def __init__(self, model: Transformer, symbols: Symbols, room: Room) -> None:
        self._model, self.symbols, self.room = ref(model), symbols, room
        device = model.output.weight.device
        whole = torch.zeros((), dtype=torch.int64, device=device)
        self.source = whole.new_zeros(room.sentences, room.source)
        self.lengths = whole.new_ones(room.sentences)
        self.limits, self.shortest = whole.new_zeros(2, room.sentences)
        self.forbidden = whole.new_tensor(symbols.forbidden)
        self.state = model.fixed(model.encode(self._sources()), rows=room.beam, longest=room.target + 1)
        self.beam = self._fresh()
        rows = room.sentences, room.beam
        self.newest, self.parents = whole.new_zeros(2, *rows)
        self.tokens, self.ancestors = whole.new_zeros(2, room.target + 1, *rows)
        self.values = torch.zeros(room.target + 1, *rows, device=device, dtype=torch.float64)
        self.captures = device.type == "cuda"
        self.barred = torch.zeros(len(model.output.weight), device=device).index_fill_(0, self.forbidden, -torch.inf)
        self.penalties: Tensor | None = None
        """The divisors of scores by length, where kernels of our own choose the tokens."""
        if self.captures and compiles() and room.beam <= 16:
            lengths = torch.arange(room.target + 3, dtype=torch.float64, device=device)
            self.penalties = ((5.0 + lengths) / 6.0) ** room.scoring.length_penalty
        self.seen = torch.zeros(*rows, min(room.beam + 1, len(model.output.weight)), device=device)
        """Some log-probabilities of the newest step: all are NaN if one is."""
        self.graphs: dict[int, Callable[[], None]] = {}

    @property
    def model(self) -> Transformer:
        """The model, which the search does not keep alive."""
        model = self._model()
        assert model is not None  # whoever runs the search has it
        return model

    @property
    def bytes(self) -> int:
        """What it remembers of sources and outputs, which is nearly all that it takes."""
        sources = sum(each.key.nbytes + each.value.nbytes for each in self.state.memory)
        return sources + sum(
            each.key.nbytes + each.value.nbytes for each in self.state.past if isinstance(each, FixedPast)
        )

    def run(self, requests: Sequence[Request], config: DecodingConfig) -> list[list[Hypothesis]]:
        """The outputs for every request, best first."""
        self._fill(requests, config)
        self._work(0)()
        last = max(request.limit(config) for request in requests)
        for time in range(last + 1):
            self._work(min(next(each for each in STAGES if time < each), self.room.target + 1))()
            if time % LOOK == LOOK - 1 and bool(self.beam.done.all()):
                break
        return self._answers(len(requests), time + 1)

    def _sources(self) -> Sequences:
        return Sequences(self.source, self.lengths, self.room.source, False)

    def _fill(self, requests: Sequence[Request], config: DecodingConfig) -> None:
        """Bring the requests to their places; what is left over is done before it begins."""
        end = self.symbols.end if self.symbols.source_end is None else self.symbols.source_end
        left = self.room.sentences - len(requests)
        rows = [[*request.source, end] for request in requests] + [[end]] * left
        padded = Sequences.pad(rows, end)
        self.source.fill_(end)
        self.source[:, : padded.longest].copy_(padded.tokens, non_blocking=True)
        self.lengths.copy_(padded.lengths, non_blocking=True)
        limits = [request.limit(config) for request in requests] + [-1] * left
        shortest = [config.shortest(len(request.source)) for request in requests] + [0] * left
        self.limits.copy_(torch.tensor(limits), non_blocking=True)
        self.shortest.copy_(torch.tensor(shortest), non_blocking=True)

    def _fresh(self) -> Beam:
        """The books before the first step: one row is alive."""
        beam = Beam.begin(self.limits, self.room.beam, self.room.nbest)
        alive = torch.arange(self.room.beam, device=self.limits.device) == 0
        totals = torch.zeros_like(beam.totals).expand(-1, self.room.beam).masked_fill(~alive, -torch.inf)
        done = self.limits < 0
        return replace(beam, totals=totals.masked_fill(done[:, None], -torch.inf), done=done, length=self.state.length)

    def _begin(self) -> None:
        """Read the sources, and clear the books."""
        encoded = self.model.encode(self._sources())
        for held, read in zip(self.state.memory, self.model.decoder.remember(encoded.states), strict=True):
            held.key.copy_(read.key)
            held.value.copy_(read.value)
        visible, read_visible = self.state.visible, Visible(encoded.source.present).ready()
        assert visible.added is not None and read_visible.added is not None  # both were made with padding in mind
        visible.added.copy_(read_visible.added)
        lineage, length = self.state.lineage, self.state.length
        assert isinstance(lineage, FixedLineage) and isinstance(length, Tensor) and lineage.added is not None
        lineage.added.fill_(-torch.inf)
        lineage.slots.copy_(torch.arange(self.room.beam, device=lineage.slots.device))
        length.zero_()
        self.newest.fill_(self.symbols.start)
        self.parents.zero_()
        self._write(self._fresh())

    def _step(self, stage: int) -> None:
        """One more token for every row, looking at room for `stage` of them."""
        state = narrowed(self.state, stage * self.room.beam)
        if self.penalties is None:
            self._chosen(*self.model.step(self.newest, self.parents, state)[:1])
        else:
            self._chosen_by_kernels(*self.model.advance(self.newest, self.parents, state)[:1])
        length, lineage = self.state.length, self.state.lineage
        assert isinstance(length, Tensor) and isinstance(lineage, FixedLineage)
        length.add_(1)
        lineage.slots.add_(self.room.beam)

    def _chosen(self, log_probabilities: Float[Tensor, "batch beam vocabulary"]) -> None:
        """Choose the next tokens and keep the books."""
        self.seen.copy_(log_probabilities[..., : self.seen.shape[2]])
        log_probabilities.index_fill_(-1, self.forbidden, -torch.inf)
        short = self.shortest > self.beam.length
        log_probabilities[..., self.symbols.end].masked_fill_(short[:, None], -torch.inf)
        after, taken = self.beam.extend(
            log_probabilities, log_probabilities, scoring=self.room.scoring, end=self.symbols.end, blind=True
        )
        assert isinstance(self.beam.length, Tensor)
        self.tokens.index_copy_(0, self.beam.length[None], taken.tokens[None])
        self.ancestors.index_copy_(0, self.beam.length[None], taken.parents[None])
        self.values.index_copy_(0, self.beam.length[None], taken.values[None])
        self.newest.copy_(taken.tokens)
        self.parents.copy_(taken.parents)
        self._write(after)

    def _chosen_by_kernels(self, states: Float[Tensor, "batch beam dim"]) -> None:
        """The same by three kernels."""
        from headway.engine import kernels

        assert self.penalties is not None
        output, end = self.model.output, self.symbols.end
        logits = unbiased(states, output.weight)
        short = (self.shortest > self.beam.length).to(torch.int8)
        values, tokens = kernels.candidates(logits, output.bias, self.barred, short, end)
        self.seen.copy_(values)
        records = self.tokens, self.ancestors, self.values
        kernels.book(self.beam, values, tokens, self.penalties, end, self.newest, self.parents, records)

    def _write(self, beam: Beam) -> None:
        """Bring the books to their places."""
        self.beam.totals.copy_(beam.totals)
        self.beam.done.copy_(beam.done)
        for held, new in zip(self.beam.found.parts(), beam.found.parts(), strict=True):
            held.copy_(new)

    def _work(self, stage: int) -> Callable[[], None]:
        """What takes one step in this much room, or for none begins."""
        if stage not in self.graphs:
            work = partial(self._step, stage) if stage else self._begin
            self.graphs[stage] = as_graph(work, self._changing()) if self.captures else work
        return self.graphs[stage]

    def _changing(self) -> list[Tensor]:
        """All that a step changes and the next one builds on; memory is written where it was not yet read."""
        lineage, length = self.state.lineage, self.state.length
        assert isinstance(length, Tensor) and isinstance(lineage, FixedLineage)
        books = [self.beam.totals, self.beam.done, *self.beam.found.parts(), self.newest, self.parents]
        return [*books, length, lineage.slots, lineage.added]

    def _answers(self, sentences: int, steps: int) -> list[list[Hypothesis]]:
        found = Found(*(part[:sentences].cpu() for part in self.beam.found.parts())).best(self.room.nbest)
        tokens, parents, values = (each[:steps].cpu() for each in (self.tokens, self.ancestors, self.values))
        if self.seen.isnan().any():
            raise HeadwayError("search: the model gave a probability that is not a number; check its weights for NaN")
        lines, records = torch.arange(self.room.sentences), Records()
        for time in range(steps):
            records.add(Taken(parents[time], tokens[time], values[time]), lines)
        answers: list[list[Hypothesis]] = [[] for _ in range(sentences)]
        for sentence, hypothesis in hypotheses(records, lines[:sentences], found):
            answers[sentence].append(hypothesis)
        return answers


def narrowed(state: DecoderState, entries: int) -> DecoderState:
    """The same state in the same place, looking at the first `entries` positions alone."""
    lineage = state.lineage
    assert isinstance(lineage, FixedLineage)
    past = []
    for each in state.past:
        assert isinstance(each, FixedPast)
        past.append(FixedPast(each.key[:, :entries], each.value[:, :entries], each.slots))
    seen = replace(lineage, positions=lineage.positions[:entries], added=lineage.added[..., :entries])
    return replace(state, past=tuple(past), lineage=seen)


_SEARCHES: WeakKeyDictionary[Transformer, "OrderedDict[Hashable, Captured]"] = WeakKeyDictionary()


def captured(
    model: Transformer, symbols: Symbols, requests: Sequence[Request], config: DecodingConfig
) -> list[list[Hypothesis]]:
    """Decode with a search captured for this model and these sizes, now or earlier.

    The weights may have changed since, in place. One search runs at a time, since its tensors have their places.
    """
    with ONE_AT_A_TIME:
        searches = _SEARCHES.setdefault(model, OrderedDict())
        key = Room.fitting(requests, config, model.config.longest), symbols, weights_of(model)
        if key not in searches:
            searches[key] = Captured(model, symbols, key[0])
            while len(searches) > KEPT or (
                len(searches) > 1 and sum(each.bytes for each in searches.values()) > BYTES_KEPT
            ):
                searches.popitem(last=False)
        searches.move_to_end(key)
        return searches[key].run(requests, config)

"""G8: a sentence gets one answer, whatever is decoded beside it and by whatever way."""

import random
from dataclasses import dataclass
from functools import cached_property

import jaxtyping
import pytest
import torch
from tallies import Tally

from headway.data.batches import Batch
from headway.engine import Engine
from headway.models.transformer import Transformer, TransformerConfig
from headway.objectives import LabelSmoothedLikelihood
from headway.proof import TOLERANCE, naive
from headway.search import DecodingConfig, Hypothesis, Request, Scoring, Symbols
from headway.sequences import Sequences

PADDING, START, END, FIRST, VOCABULARY = 0, 1, 2, 3, 40
SYMBOLS = Symbols(START, END, forbidden=(PADDING, START))
SHAPE = TransformerConfig(
    dim=32, heads=4, hidden=64, encoder_layers=1, decoder_layers=1, longest=40, norm="pre", dropout=0.0
)
PLAIN = DecodingConfig(beam=4, nbest=4, longest=10)
GREEDY = DecodingConfig(beam=1, longest=10)
BATCHES = 1, 2, 7, 32
AT_ONCE = 200
"""Sentences looked at together; the soak draws new ones."""


@pytest.fixture(autouse=True, scope="module")
def unchecked():
    """No shapes are checked here, as in all other tests they are: it would take most of the time."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def sentence(chance: random.Random, longest: int = 9) -> tuple[int, ...]:
    return tuple(chance.randrange(FIRST, VOCABULARY) for _ in range(chance.randint(1, longest)))


@dataclass(frozen=True)
class Trial:
    """Some sentences and all ways to their answers."""

    model: Transformer
    sentences: list[tuple[int, ...]]

    @cached_property
    def engine(self) -> Engine:
        return Engine(self.model, SYMBOLS)

    @torch.inference_mode()
    def answers(
        self, places: list[int], config: DecodingConfig, beside: tuple[int, ...] = ()
    ) -> list[list[Hypothesis]]:
        """The answers to the sentences at these places, as one batch."""
        sources = [self.sentences[place] for place in places] + ([beside] if beside else [])
        search = self.engine.begin([Request(source) for source in sources], config)
        while search.live:
            search.advance()
        return search.answers()[: len(places)]

    def batched(self, size: int, order: list[int], beside: tuple[int, ...] = ()) -> dict[int, list[Hypothesis]]:
        """The answer of every sentence, in batches of this size and order."""
        parts = [order[first : first + size] for first in range(0, len(order), size)]
        return {
            place: answer
            for part in parts
            for place, answer in zip(part, self.answers(part, PLAIN, beside), strict=True)
        }

    def twin(self, place: int, config: DecodingConfig) -> naive.Answer:
        """The answer without a cache."""
        source = self.sentences[place]
        predict, limit = naive.recompute(self.model, [*source, END], SYMBOLS), config.limit(len(source))
        if config.beam == 1:
            return naive.greedy(predict, END, limit, Scoring(config.length_penalty))
        return naive.beam_search(predict, END, limit, config)


@pytest.fixture(scope="module")
def models() -> dict[str, Transformer]:
    """One model that was never trained, and one that learnt to turn short sentences round and knows where to end."""
    torch.manual_seed(8)
    untrained, model = (Transformer(SHAPE, VOCABULARY, VOCABULARY) for _ in range(2))
    chance, optimiser = random.Random(8), torch.optim.Adam(model.parameters(), lr=4e-3, betas=(0.9, 0.98))
    for _ in range(100):
        sources = [sentence(chance) for _ in range(32)]
        labels = [[*reversed(source), END] for source in sources]
        batch = Batch(
            Sequences.pad([[*source, END] for source in sources], PADDING),
            Sequences.pad([[START, *label[:-1]] for label in labels], PADDING),
            Sequences.pad(labels, PADDING).tokens,
            sum(map(len, labels)),
        )
        loss = LabelSmoothedLikelihood(0.1)(model, batch)
        (loss.total / loss.units).backward()
        optimiser.step()
        optimiser.zero_grad()
    return {"untrained": untrained.eval(), "trained": model.eval()}


def same(trial: Trial, place: int, wanted: list[Hypothesis], got: list[Hypothesis], tally) -> bool:
    """Whether two answers are one: the same tokens, scores that agree; or both right where the choice was a tie."""
    if [(each.tokens, each.finished) for each in wanted] == [(each.tokens, each.finished) for each in got]:
        far = max(abs(one.score - other.score) for one, other in zip(wanted, got, strict=True))
        tally.saw(score_difference=far)
        return far <= TOLERANCE
    tied = trial.twin(place, PLAIN if len(got) > 1 else GREEDY).margin <= TOLERANCE
    tally.saw(ties=tally.worst.get("ties", 0) + tied)
    return tied


def rescored(trial: Trial, place: int, hypothesis: Hypothesis) -> float:
    """How far the probability of an output as it is read is from that as it was written."""
    source, tokens = trial.sentences[place], hypothesis.tokens
    with torch.inference_mode():
        encoded = trial.model.encode(Sequences.pad([[*source, END]], END))
        states = trial.model.decode(Sequences.pad([[START, *tokens]], END), encoded).states[0]
        values = trial.model.output(states).log_softmax(-1)
    wanted = [*tokens, END][: len(tokens) + hypothesis.finished]
    return abs(sum(float(values[time, token]) for time, token in enumerate(wanted)) - hypothesis.log_probability)


@pytest.mark.parametrize("kind", ["untrained", "trained"])
def test_every_sentence_gets_the_same_answer_in_every_batch_and_without_a_cache(kind, models, chance, tally):
    left = tally.expect(AT_ONCE, 5000)
    while left:
        trial = Trial(models[kind], [sentence(chance) for _ in range(min(left, AT_ONCE))])
        order = list(range(len(trial.sentences)))
        shuffled = chance.sample(order, k=len(order))
        ways = [trial.batched(size, order) for size in BATCHES]
        ways += [trial.batched(7, shuffled), trial.batched(32, shuffled, beside=sentence(chance, 1) * 39)]
        engine = trial.engine.search([Request(trial.sentences[place]) for place in shuffled], PLAIN)
        ways += [dict(zip(shuffled, engine, strict=True))]
        first = dict(zip(order, trial.answers(order, GREEDY), strict=True))
        for place in order:
            wanted = trial.twin(place, PLAIN).hypotheses
            good = all(same(trial, place, wanted, way[place], tally) for way in ways)
            good &= same(trial, place, trial.twin(place, GREEDY).hypotheses, first[place], tally)
            apart = max(rescored(trial, place, each) for each in ways[0][place])
            tally.saw(rescoring_difference=apart)
            assert good and apart <= TOLERANCE, trial.sentences[place]
            tally.passed += 1
        left -= len(order)


def test_the_trained_model_ends_by_itself_at_lengths_of_its_own(models, chance):
    trial = Trial(models["trained"], [sentence(chance) for _ in range(50)])
    best = [answer[0] for answer in trial.answers(list(range(50)), PLAIN)]
    assert sum(each.finished for each in best) > 40
    assert len({len(each.tokens) for each in best}) > 4


def test_an_answer_that_hangs_on_its_neighbours_would_be_noticed(models, chance, monkeypatch):
    """Padding that is read: the promise fails, as it must."""
    from headway.nn.attention import Visible

    monkeypatch.setattr(Visible, "ready", lambda self: Visible())
    trial = Trial(models["trained"], [sentence(chance) for _ in range(20)])
    order, tally = list(range(20)), Tally("", "")
    alone, together = trial.batched(1, order), trial.batched(20, order)
    assert sum(not same(trial, place, alone[place], together[place], tally) for place in order) > 5

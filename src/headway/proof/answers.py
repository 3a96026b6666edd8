"""Checks of what the search answers: the same in every batch, as the naive twin, and worth what it says."""

import math
import random
from collections.abc import Sequence

import torch

from headway.models.model import NonAutoregressive
from headway.proof import naive
from headway.proof.finding import TOLERANCE, Finding
from headway.proof.subject import SEED, Subject
from headway.search import DecodingConfig, Hypothesis, Request, Scoring

BATCHES = 2, 7, 32
TWINS = 4
"""Sentences that the naive twin searches for by beam, and twice as many greedily: it is slow."""

Answers = Sequence[Sequence[Hypothesis]]


def batch(subject: Subject) -> Finding:
    """A sentence gets the same answer alone and in every batch, in whatever order."""
    sentences, worst, unlike = subject.sentences, 0.0, set[int]()
    order = list(range(len(sentences)))
    shuffled = random.Random(SEED).sample(order, k=len(order))
    for size, places in zip(BATCHES, (order, shuffled, order), strict=True):
        for first in range(0, len(places), size):
            chosen = places[first : first + size]
            got = subject.together([sentences[place] for place in chosen])
            far, other = compared([subject.alone[place] for place in chosen], got)
            worst, unlike = max(worst, far), unlike | {chosen[place] for place in other}
    got = subject.engine.search([Request(sentences[place]) for place in shuffled], subject.config)
    far, other = compared([subject.alone[place] for place in shuffled], got)
    unlike |= {shuffled[place] for place in other}
    told = f"{len(sentences)} sentences alone, in batches of {', '.join(map(str, BATCHES))}, shuffled, and as usual"
    return _judged(subject, told, max(worst, far), unlike)


def padding(subject: Subject) -> Finding:
    """A sentence gets the same answer beside one that is far longer."""
    shortest = sorted(range(len(subject.sentences)), key=lambda place: len(subject.sentences[place]))[:8]
    got = subject.together([*(subject.sentences[place] for place in shortest), subject.longest])[:-1]
    worst, unlike = compared([subject.alone[place] for place in shortest], got)
    told = f"{len(shortest)} sentences alone and beside one of {len(subject.longest)} tokens"
    return _judged(subject, told, worst, {shortest[place] for place in unlike})


def search(subject: Subject) -> Finding:
    """Beam search finds what its naive twin finds, which remembers nothing."""
    chosen = subject.sentences[:TWINS]
    got = subject.together(chosen)
    twins = [twin(subject, sentence) for sentence in chosen]
    worst, unlike = compared([each.hypotheses for each in twins], got)
    wrong = {place for place in unlike if twins[place].margin > TOLERANCE}
    told = f"beam {subject.config.beam} with memory and the naive twin without, {len(chosen)} sentences"
    return _told(told, worst, len(unlike) - len(wrong), len(wrong), len(chosen))


def greedy(subject: Subject) -> Finding:
    """A beam of one writes the likeliest token, and then the likeliest."""
    config = subject.config.model_copy(update={"beam": 1, "nbest": 1})
    chosen = subject.sentences[: 2 * TWINS]
    got, scoring = subject.together(chosen, config), Scoring(config.length_penalty)
    twins = [
        naive.greedy(_predict(subject, sentence), subject.symbols.end, config.limit(len(sentence)), scoring)
        for sentence in chosen
    ]
    worst, unlike = compared([each.hypotheses for each in twins], got)
    wrong = {place for place in unlike if twins[place].margin > TOLERANCE}
    told = f"beam 1 and a plain loop of argmax, {len(chosen)} sentences"
    return _told(told, worst, len(unlike) - len(wrong), len(wrong), len(chosen))


def rescoring(subject: Subject) -> Finding:
    """Reading an answer gives it the probability that writing it gave, and its score follows from that."""
    pairs = [
        (sentence, hypothesis)
        for sentence, answer in zip(subject.sentences, subject.alone, strict=True)
        for hypothesis in answer
    ]
    worst, scoring = 0.0, Scoring(subject.config.length_penalty)
    for first in range(0, len(pairs), 16):
        chosen = pairs[first : first + 16]
        read = reread(subject, [sentence for sentence, _ in chosen], [each.tokens for _, each in chosen])
        for (_, hypothesis), parts in zip(chosen, read, strict=True):
            wanted = sum(parts[: len(hypothesis.tokens) + hypothesis.finished])
            score = wanted / scoring.penalty(len(hypothesis.tokens) + hypothesis.finished)
            worst = max(worst, _far(wanted, hypothesis.log_probability), _far(score, hypothesis.score))
    told = f"log-probability of {len(pairs)} hypotheses as written and as read, relative above 1"
    return Finding.difference(told, worst)


def nbest(subject: Subject) -> Finding:
    """Answers come best first, none twice: from one beam, and from two groups that find the same."""
    grouped = DecodingConfig(**{**subject.config.model_dump(), "groups": 2, "diversity": 0.0})
    answers = [*subject.alone, *subject.together(subject.sentences, grouped)]
    twice = sum(len({each.tokens for each in answer}) < len(answer) for answer in answers)
    ranks = [[(not each.finished, -each.score) for each in answer] for answer in answers]
    unsorted = sum(rank != sorted(rank) for rank in ranks)
    empty = sum(not answer for answer in answers)
    figure = f"{unsorted} out of order, {twice} with an output twice, {empty} without any"
    told = f"{len(answers)} lists of {subject.config.nbest} hypotheses, from one beam and from two groups alike"
    return Finding(told, figure, not unsorted and not twice and not empty, float(unsorted + twice + empty))


def compared(wanted: Answers, got: Answers) -> tuple[float, set[int]]:
    """The largest difference of scores between answers of the same tokens, and the places of the other answers."""
    worst, unlike = 0.0, set[int]()
    for place, (left, right) in enumerate(zip(wanted, got, strict=True)):
        if [(each.tokens, each.finished) for each in left] != [(each.tokens, each.finished) for each in right]:
            unlike.add(place)
            continue
        for one, other in zip(left, right, strict=True):
            worst = max(worst, abs(one.score - other.score))
    return worst, unlike


def twin(subject: Subject, sentence: tuple[int, ...]) -> naive.Answer:
    """What the naive twin finds."""
    config = subject.config
    return naive.beam_search(_predict(subject, sentence), subject.symbols.end, config.limit(len(sentence)), config)


@torch.inference_mode()
def reread(
    subject: Subject, sentences: Sequence[tuple[int, ...]], outputs: Sequence[tuple[int, ...]]
) -> list[list[float]]:
    """The log-probabilities of every token of the outputs and of the end symbol after each, all tokens given."""
    symbols, model = subject.symbols, subject.writer
    given = subject.padded([[symbols.start, *tokens] for tokens in outputs])
    wanted = subject.padded([[*tokens, symbols.end] for tokens in outputs])
    states = model.decode(given, model.encode(subject.padded(subject.ended(sentences)))).states
    values = model.output(states).float().log_softmax(-1).gather(-1, wanted.tokens[..., None])[..., 0]
    return [row[: len(tokens) + 1] for row, tokens in zip(values.tolist(), outputs, strict=True)]


def _predict(subject: Subject, sentence: tuple[int, ...]) -> naive.Predict:
    (source,) = subject.ended([sentence])
    return naive.recompute(subject.writer, source, subject.symbols)


def _far(wanted: float, got: float) -> float:
    far = abs(wanted - got) / max(1.0, abs(wanted))
    return math.inf if math.isnan(far) else far


def _judged(subject: Subject, told: str, worst: float, unlike: set[int]) -> Finding:
    """Answers that differ pass where the twin too had to choose between two that are as good as equal."""
    total = len(subject.sentences)
    if len(unlike) > TWINS or isinstance(subject.model, NonAutoregressive):  # which has no twin
        return _told(told, worst, 0, len(unlike), total)
    wrong = [place for place in unlike if twin(subject, subject.sentences[place]).margin > TOLERANCE]
    return _told(told, worst, len(unlike) - len(wrong), len(wrong), total)


def _told(told: str, worst: float, ties: int, wrong: int, total: int) -> Finding:
    extra = f", {wrong} of {total} answers differ" if wrong else ""
    extra += f", {ties} of {total} decided by rounding" if ties else ""
    return Finding.difference(told, worst, passed=not wrong and worst <= TOLERANCE, told=extra)

"""Laws of the search over random models."""

from itertools import pairwise

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.search import beam_search, greedy

START, END = 0, 1


class RandomModel:
    """Random next-token tables by sentence, step and newest token; the state is each row's (sentence, length)."""

    def __init__(self, seed, sentences, vocabulary, coarse):
        noise = torch.randn(sentences, 12, vocabulary, vocabulary, generator=torch.Generator().manual_seed(seed))
        self.tables = ((noise.round() if coarse else noise) * 1.5).log_softmax(-1)
        if coarse:  # many ties, and some impossible tokens
            self.tables[noise > 1.2] = -torch.inf

    def begin(self, sentences):
        return torch.tensor([[sentence, 0] for sentence in sentences])

    def step(self, tokens, state):
        return self.tables[state[:, 0], state[:, 1], tokens], state + torch.tensor([0, 1])

    def select(self, state, rows):
        return state[rows]


@st.composite
def models(draw):
    limits = draw(st.lists(st.integers(0, 10), min_size=1, max_size=5))
    seed, vocabulary, coarse = draw(st.integers(0, 10**6)), draw(st.integers(2, 9)), draw(st.booleans())
    return RandomModel(seed, len(limits), vocabulary, coarse), limits


strengths = st.sampled_from([0.0, 0.6, 1.0, 3.0])


def run(model, limits, beam, sentences=None, **options):
    sentences = list(range(len(limits))) if sentences is None else sentences
    limits = [limits[sentence] for sentence in sentences]
    options = {"start": START, "end": END, "forbidden": (START,), "limits": limits, **options}
    return beam_search(model, model.begin(sentences), beam=beam, **options)


def naive_beam_search(model, sentence, limit, beam, nbest, strength):
    """The same search in plain lists, sentence by sentence, and going on while the beam has places."""
    live, finished = [((), 0.0)], []
    for length in range(limit + 1):
        candidates = []
        for tokens, total in live:
            row = model.tables[sentence, length, tokens[-1] if tokens else START].double().tolist()
            extended = [(row[token], token) for token in range(1, len(row)) if row[token] > -torch.inf]
            extended.sort(key=lambda pair: -pair[0])
            candidates += [(total + value, tokens, token) for value, token in extended]
        candidates.sort(key=lambda candidate: -candidate[0])
        ended = [(total, tokens) for total, tokens, token in candidates[: beam - len(finished)] if token == END]
        finished += [(total / ((6 + length) / 6) ** strength, tokens) for total, tokens in ended]
        grown = [((*tokens, token), total) for total, tokens, token in candidates if token != END]
        grown = grown[: beam - len(finished)]
        if not grown or length == limit:
            break
        live = grown
    unfinished = [(total / ((5 + length) / 6) ** strength, tokens) for tokens, total in live]
    return sorted(finished or unfinished, key=lambda found: -found[0])[:nbest]


@settings(deadline=None, max_examples=60)
@given(models(), strengths)
def test_a_beam_of_one_is_greedy(case, strength):
    model, limits = case
    options = {"start": START, "end": END, "forbidden": (START,), "limits": limits, "length_penalty": strength}
    expected = greedy(model, model.begin(range(len(limits))), **options)
    assert [found for (found,) in run(model, limits, beam=1, length_penalty=strength)] == expected


@settings(deadline=None, max_examples=60)
@given(models(), st.integers(1, 6), strengths, st.data())
def test_the_search_equals_a_naive_one_in_plain_lists(case, beam, strength, data):
    model, limits = case
    nbest = data.draw(st.integers(1, beam))
    found = run(model, limits, beam=beam, nbest=nbest, length_penalty=strength)
    for sentence, limit in enumerate(limits):
        expected = naive_beam_search(model, sentence, limit, beam, nbest, strength)
        assert [(h.score, h.tokens) for h in found[sentence]] == expected


@settings(deadline=None, max_examples=60)
@given(models(), st.integers(1, 5), strengths, st.randoms(use_true_random=False))
def test_an_answer_never_depends_on_the_rest_of_the_batch(case, beam, strength, random):
    model, limits = case
    together = run(model, limits, beam=beam, nbest=beam, length_penalty=strength)
    order = list(range(len(limits)))
    random.shuffle(order)
    shuffled = run(model, limits, beam=beam, sentences=order, nbest=beam, length_penalty=strength)
    assert [together[sentence] for sentence in order] == shuffled
    for sentence in order:
        assert run(model, limits, beam=beam, sentences=[sentence], nbest=beam, length_penalty=strength) == [
            together[sentence]
        ]


@settings(deadline=None, max_examples=60)
@given(models(), st.integers(1, 5))
def test_the_log_probability_is_that_of_rescoring_the_output(case, beam):
    model, limits = case
    for sentence, hypotheses in enumerate(run(model, limits, beam=beam, nbest=beam)):
        for hypothesis in hypotheses:
            symbols = [START, *hypothesis.tokens] + [END] * hypothesis.finished
            parts = [float(model.tables[sentence, place, a, b]) for place, (a, b) in enumerate(pairwise(symbols))]
            assert list(hypothesis.token_log_probabilities) == parts
            assert hypothesis.log_probability == sum(parts)
            assert len(hypothesis.tokens) <= limits[sentence]
            assert not {START, END}.intersection(hypothesis.tokens)

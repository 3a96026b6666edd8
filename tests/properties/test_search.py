"""Laws of the search over random models."""

from itertools import pairwise, product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.search import DecodingConfig, Request, Search, Symbols, decode

START, END = 0, 1
SYMBOLS = Symbols(START, END, (START,))


class RandomModel:
    """Random next-token tables by sentence, step and newest token; the state is each sentence's number and step."""

    def __init__(self, seed, sentences, vocabulary, coarse):
        noise = torch.randn(sentences, 12, vocabulary, vocabulary, generator=torch.Generator().manual_seed(seed))
        self.tables = ((noise.round() if coarse else noise) * 1.5).log_softmax(-1)
        if coarse:  # many ties, and some impossible tokens
            self.tables[noise > 1.2] = -torch.inf

    def begin(self, sentences):
        return torch.tensor([[sentence, 0] for sentence in sentences])

    def step(self, tokens, parents, state):
        return self.tables[state[:, :1], state[:, 1:], tokens].clone(), state + torch.tensor([0, 1])

    def keep(self, state, sentences):
        return state[sentences]


@st.composite
def models(draw, longest=10):
    limits = draw(st.lists(st.integers(0, longest), min_size=1, max_size=5))
    seed, vocabulary, coarse = draw(st.integers(0, 10**6)), draw(st.integers(2, 9)), draw(st.booleans())
    return RandomModel(seed, len(limits), vocabulary, coarse), limits


strengths = st.sampled_from([0.0, 0.6, 1.0, 3.0])


def setting(beam, strength=0.0, **options):
    return DecodingConfig(beam=beam, length_penalty=strength, limit_ratio=1.0, limit_extra=0, **options)


def run(model, limits, config, sentences=None):
    sentences = list(range(len(limits))) if sentences is None else sentences
    requests = [Request((7,) * limits[sentence], seed=sentence) for sentence in sentences]
    return decode(model, model.begin(sentences), requests, config, SYMBOLS)


def row(model, sentence, tokens):
    """The log-probabilities after these tokens."""
    return model.tables[sentence, len(tokens), tokens[-1] if tokens else START].double().tolist()


def greedy(model, sentence, limit):
    """The likeliest token, one after the other: the tokens, their sum, and whether they ended."""
    tokens, total = (), 0.0
    while True:
        values = row(model, sentence, tokens)
        token = max(range(1, len(values)), key=lambda each: (values[each], -each))
        if values[token] == -torch.inf or (token != END and len(tokens) == limit):
            return tokens, total, False
        total += values[token]
        if token == END:
            return tokens, total, True
        tokens = (*tokens, token)


def naive_beam_search(model, sentence, limit, beam, nbest, strength):
    """The same search in plain lists, sentence by sentence, and going on while the beam has places."""
    live, finished = [((), 0.0)], []
    for length in range(limit + 1):
        candidates = []
        for tokens, total in live:
            values = row(model, sentence, tokens)
            extended = [(values[token], token) for token in range(1, len(values)) if values[token] > -torch.inf]
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


@settings(deadline=None, max_examples=40)
@given(models(), strengths)
def test_a_beam_of_one_is_greedy(case, strength):
    model, limits = case
    for sentence, (found,) in enumerate(run(model, limits, setting(1, strength))):
        expected = greedy(model, sentence, limits[sentence])
        assert (found.tokens, found.log_probability, found.finished) == expected


@settings(deadline=None, max_examples=40)
@given(models(), st.integers(1, 6), strengths, st.data())
def test_the_search_equals_a_naive_one_in_plain_lists(case, beam, strength, data):
    model, limits = case
    nbest = data.draw(st.integers(1, beam))
    found = run(model, limits, setting(beam, strength, nbest=nbest))
    for sentence, limit in enumerate(limits):
        expected = naive_beam_search(model, sentence, limit, beam, nbest, strength)
        assert [h.tokens for h in found[sentence]] == [tokens for _, tokens in expected]
        assert [h.score for h in found[sentence]] == pytest.approx([score for score, _ in expected], rel=1e-12)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.integers(0, 3), strengths)
def test_a_beam_wide_enough_is_exhaustive(seed, limit, strength):
    model = RandomModel(seed, 1, 4, coarse=False)
    (found,) = run(model, [limit], setting(64, strength, nbest=8 if limit else 1))
    every = []
    for length in range(limit + 1):
        for tokens in product((2, 3), repeat=length):
            symbols = [START, *tokens, END]
            total = sum(float(model.tables[0, place, a, b]) for place, (a, b) in enumerate(pairwise(symbols)))
            every.append((total / ((6 + length) / 6) ** strength, tokens))
    every.sort(key=lambda each: -each[0])
    expected = every[: 8 if limit else 1]
    assert [h.tokens for h in found] == [tokens for _, tokens in expected]
    assert torch.allclose(torch.tensor([h.score for h in found]), torch.tensor([score for score, _ in expected]))


OPTIONS = [
    {},
    {"beam": 4, "groups": 2},
    {"no_repeat": 2, "repetition": 1.5},
    {"sample": True, "top_p": 0.9},
    {"shortest_ratio": 0.5},
]


@settings(deadline=None, max_examples=40)
@given(models(), st.integers(1, 5), strengths, st.sampled_from(OPTIONS), st.randoms(use_true_random=False))
def test_an_answer_never_depends_on_the_rest_of_the_batch(case, beam, strength, options, random):
    model, limits = case
    options = {"beam": beam, **options}
    config = setting(strength=strength, nbest=options["beam"], **options)
    together = run(model, limits, config)
    order = list(range(len(limits)))
    random.shuffle(order)
    assert run(model, limits, config, order) == [together[sentence] for sentence in order]
    for sentence in order:
        assert run(model, limits, config, [sentence]) == [together[sentence]]


@settings(deadline=None, max_examples=40)
@given(models(), st.integers(1, 5), strengths, st.sampled_from(OPTIONS))
def test_scores_are_sorted_and_those_of_rescoring_the_output(case, beam, strength, options):
    model, limits = case
    options = {"beam": beam, **options}
    config = setting(strength=strength, nbest=options["beam"], **options)
    for sentence, hypotheses in enumerate(run(model, limits, config)):
        assert 1 <= len(hypotheses) <= config.nbest
        ranks = [(not hypothesis.finished, -hypothesis.score) for hypothesis in hypotheses]
        assert ranks == sorted(ranks)
        assert config.sample or len({h.tokens for h in hypotheses}) == len(hypotheses)
        for hypothesis in hypotheses:
            symbols = [START, *hypothesis.tokens] + [END] * hypothesis.finished
            parts = [float(model.tables[sentence, place, a, b]) for place, (a, b) in enumerate(pairwise(symbols))]
            assert list(hypothesis.token_log_probabilities) == parts
            assert hypothesis.log_probability == sum(parts)
            assert hypothesis.score == pytest.approx(sum(parts) / ((5 + len(parts)) / 6) ** strength, rel=1e-12)
            assert len(hypothesis.tokens) <= limits[sentence]
            assert not {START, END}.intersection(hypothesis.tokens)


@settings(deadline=None, max_examples=30)
@given(models(), st.sampled_from([{"beam": 1}, {"beam": 3}, {"beam": 4, "groups": 2}]))
def test_what_is_stable_is_never_taken_back(case, options):
    model, limits = case
    requests = [Request((7,) * limit) for limit in limits]
    search = Search(model, model.begin(range(len(limits))), requests, setting(**options), SYMBOLS)
    told = [[()] for _ in limits]
    while search.live:
        for sentence in search.sentences.tolist():
            told[sentence].append(search.stable(sentence))
        search.advance()
    for texts, answers in zip(told, search.answers(), strict=True):
        for before, after in pairwise([*texts, answers[0].tokens]):
            assert after[: len(before)] == before

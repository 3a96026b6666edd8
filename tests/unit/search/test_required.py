from collections import Counter
from itertools import product
from math import log
from random import Random

import pytest
import torch
from tables import END, SYMBOLS, A, B, C, Noise, search

from headway.engine import Engine
from headway.errors import ConfigError
from headway.models.transformer import Transformer, TransformerConfig
from headway.search import DecodingConfig, Request, Symbols, decode
from headway.search.constraints import Progress, onward


def after(phrases, *tokens):
    progress = Progress(tuple(phrases))
    for token in tokens:
        progress = progress.after(token)
    return progress


def test_a_phrase_is_met_by_its_tokens_in_a_row():
    assert after([(A, B)], A) == Progress(((A, B),), (A,))
    assert after([(A, B)], A, B) == Progress(())
    assert after([(A, B)], A, C, B) == Progress(((A, B),))


def test_a_phrase_that_breaks_off_keeps_what_still_begins_it():
    assert after([(A, A, B)], A, A, A) == Progress(((A, A, B),), (A, A))
    assert after([(A, B, A, C)], A, B, A, B) == Progress(((A, B, A, C),), (A, B))
    assert after([(A, B, C)], A, B, A) == Progress(((A, B, C),), (A,))
    assert after([(A, B, C)], A, B, B) == Progress(((A, B, C),))


def test_breaking_one_phrase_off_may_continue_another():
    assert after([(A, B, C), (B, A)], A, B, A) == Progress(((A, B, C),))


def test_phrases_count_separately():
    twice = [(A, A), (A, A)]
    assert after(twice, A, A, A).needed == 1
    assert after(twice, A, A, A, A).needed == 0
    assert after([(A, B), (B, C)], A, B, C) == Progress(((B, C),))
    assert after([(A,), (A, B)], A, B) == Progress(((A, B),))
    assert after([(A, B), (B,)], A, B) == Progress(((B,),))


def test_phrases_that_begin_alike_stay_open_until_one_is_written():
    assert onward(after([(A, B), (A, C)], A)) == {
        A: Progress(((A, B), (A, C)), (A,)),
        B: Progress(((A, C),)),
        C: Progress(((A, B),)),
    }


UNIFORM = {
    prefix: {A: 0.6, B: 0.25, C: 0.1, END: 0.05} for length in range(5) for prefix in product((A, B, C), repeat=length)
}


@pytest.mark.parametrize("beam", [1, 2, 4, 8])
def test_the_output_holds_what_is_required_and_is_scored_as_ever(beam):
    ((best,),) = search(UNIFORM, beam=beam, requests=[{"required": ((C, C), (B,))}])
    assert Counter(best.tokens)[B] >= 1
    assert (C, C) in list(zip(best.tokens, best.tokens[1:], strict=False))
    probabilities = {A: 0.6, B: 0.25, C: 0.1, END: 0.05}
    ended = (*best.tokens, END) if best.finished else best.tokens
    assert best.token_log_probabilities == pytest.approx([log(probabilities[token]) for token in ended])


def test_the_best_place_for_a_phrase_is_found():
    # C is likeliest after A B; a search that writes it first would have 0.1.
    tree = {(): {A: 0.9, C: 0.1}, (A,): {B: 0.9, C: 0.1}, (A, B): {C: 0.4, END: 0.6}}
    ((best,),) = search(tree, beam=4, requests=[{"required": ((C,),)}])
    assert best.tokens == (A, B, C)
    assert best.log_probability == pytest.approx(log(0.9 * 0.9 * 0.4))


def test_places_are_divided_by_how_much_is_written():
    # Without a share of its own C (0.01) would be pushed out by A and B at every step.
    tree = {prefix: {A: 0.5, B: 0.48, C: 0.01, END: 0.01} for n in range(5) for prefix in product((A, B, C), repeat=n)}
    ((best,),) = search(tree, beam=2, limits=[4], requests=[{"required": ((C, C),)}])
    assert best.tokens[:2] == (C, C)


def test_at_the_limit_only_tokens_that_advance_are_possible():
    tree = {(A,) * n: {A: 0.9, B: 0.05, C: 0.05} for n in range(4)}
    tree |= {(A,) * n + (B,): {A: 0.9, B: 0.05, C: 0.05} for n in range(4)}
    ((best,),) = search(tree, beam=1, limits=[2], requests=[{"required": ((B, C),)}])
    assert best.tokens == (B, C)
    ((best,),) = search(tree, beam=1, limits=[1], requests=[{"required": ((B, C),)}])  # two tokens are then allowed
    assert best.tokens == (B, C)


def test_progress_that_cannot_be_made_up_for_is_not_given_up():
    # After C C two tokens are left for C C B: breaking off would need three.
    tree = {prefix: {A: 0.97, B: 0.01, C: 0.02} for n in range(6) for prefix in product((A, B, C), repeat=n)}
    ((best,),) = search(tree, beam=1, limits=[4], requests=[{"required": ((C, C, B),), "prefix": (C, C)}])
    assert best.tokens[-3:] == (C, C, B) or best.tokens[:3] == (C, C, B)


def test_sentences_without_phrases_get_the_answers_of_a_plain_beam():
    noise = Noise(8, vocabulary=8, seed=1)
    phrases = [random_case(Random(seed), 8) for seed in range(8)]
    bare = [Request(request.source) for request in phrases]
    mixed = [phrases[line] if line % 2 else bare[line] for line in range(8)]
    for beam in (1, 3, 5):
        config = DecodingConfig(beam=beam, nbest=beam, limit_ratio=1.0, limit_extra=0)
        plain = decode(noise, noise.begin(), bare, config, SYMBOLS)
        found = decode(noise, noise.begin(), mixed, config, SYMBOLS)
        assert found[::2] == plain[::2]
        for line, each in enumerate(found):
            assert all(holds(h.tokens, mixed[line].required) for h in each)
            assert decode(noise, noise.begin([line]), [mixed[line]], config, SYMBOLS) == [each]


def random_case(random, vocabulary):
    phrases = tuple(
        tuple(random.randrange(2, vocabulary) for _ in range(random.randint(1, 3))) for _ in range(random.randint(1, 3))
    )
    prefix = tuple(random.randrange(2, vocabulary) for _ in range(random.choice([0, 0, 0, 2])))
    return Request((7,) * random.randint(0, 8), required=phrases, prefix=prefix)


def holds(tokens, phrases):
    """Whether the phrases stand in the tokens, no two of them sharing one."""
    if not phrases:
        return True
    first, *rest = phrases
    return any(
        tokens[at : at + len(first)] == first and holds((*tokens[:at], -1, *tokens[at + len(first) :]), tuple(rest))
        for at in range(len(tokens))
    )


@pytest.mark.parametrize("beam", range(1, 9))
def test_random_phrases_are_in_random_outputs(beam):
    random = Random(beam)
    requests = [random_case(random, 8) for _ in range(125)]
    noise = Noise(125, vocabulary=8, seed=beam, sharpness=3.0)
    config = DecodingConfig(
        beam=beam,
        nbest=beam,
        limit_ratio=1.0,
        limit_extra=0,
        no_repeat=random.choice([0, 2]),
        repetition=random.choice([1.0, 1.5]),
    )
    found = decode(noise, noise.begin(), requests, config, SYMBOLS)
    for request, each in zip(requests, found, strict=True):
        assert each
        for hypothesis in each:
            assert holds(hypothesis.tokens, request.required)
            assert hypothesis.tokens[: len(request.prefix)] == request.prefix
            assert len(hypothesis.tokens) <= request.limit(config)
        assert [h.score for h in each if h.finished] == sorted((h.score for h in each if h.finished), reverse=True)
        assert len({h.tokens for h in each}) == len(each)


def test_a_transformer_writes_what_is_required():
    torch.manual_seed(1)
    config = TransformerConfig(dim=16, heads=2, hidden=32, encoder_layers=1, decoder_layers=1, longest=64)
    engine = Engine(Transformer(config, 50, 50).eval(), Symbols(1, 2, (0, 1)))
    random = Random(2)
    requests = [
        Request(
            tuple(random.choices(range(3, 50), k=random.randint(1, 5))),
            required=tuple(tuple(random.choices(range(3, 50), k=2)) for _ in range(line % 3)),
        )
        for line in range(24)
    ]
    for beam in (1, 4):
        found = engine.search(requests, DecodingConfig(beam=beam, nbest=beam, limit_extra=4))
        for request, each in zip(requests, found, strict=True):
            assert all(holds(h.tokens, request.required) for h in each)
        plain = engine.search([Request(each.source) for each in requests], DecodingConfig(beam=beam, limit_extra=4))
        assert not all(holds(each[0].tokens, request.required) for request, each in zip(requests, plain, strict=True))
        assert [each[0].tokens for each in found[::3]] == [each[0].tokens for each in plain[::3]]


@pytest.mark.parametrize(
    ("options", "phrase", "said"),
    [
        ({"groups": 2}, (A,), "groups"),
        ({"sample": True}, (A,), "sample"),
        ({}, (), "empty"),
        ({}, (A, END), "control"),
    ],
)
def test_phrases_that_cannot_be_required_are_refused(options, phrase, said):
    with pytest.raises(ConfigError, match=said):
        search(UNIFORM, requests=[{"required": (phrase,)}], **options)

from math import log

import numpy as np
import pytest
import torch
from tables import END, A, B, C, Tables, search, settings

from headway.data.lexicon import Lexicon
from headway.engine import Engine
from headway.models.transformer import Transformer, TransformerConfig
from headway.search import DecodingConfig, Reader, Request, Symbols
from headway.search.ensemble import Ensemble
from headway.search.shortlist import Shortlisted


class Joined(Ensemble):
    """An ensemble of tables that a test can begin."""

    @property
    def trees(self):
        return self.members[0].trees

    def begin(self):
        return tuple(member.begin() for member in self.members)


def test_an_ensemble_takes_the_mean_of_probabilities():
    # A: (0.6 + 0.1) / 2 = 0.35, B: (0.3 + 0.5) / 2 = 0.4; the product would choose A B or C otherwise.
    one = Tables({(): {A: 0.6, B: 0.3, C: 0.1}, (B,): {END: 0.5, A: 0.5}})
    two = Tables({(): {A: 0.1, B: 0.5, C: 0.4}, (B,): {END: 0.9, A: 0.1}})
    ((best,),) = search(stepper=Joined((one, two)), beam=1)
    assert best.tokens == (B,)
    assert best.token_log_probabilities == pytest.approx((log(0.4), log(0.7)))


def test_what_one_member_thinks_impossible_another_may_allow():
    (found,) = search(stepper=Joined((Tables({(): {A: 1.0}}), Tables({(): {B: 1.0}}))), beam=2, nbest=2)
    assert {h.tokens: h.log_probability for h in found} == {
        (A,): pytest.approx(log(0.5)),
        (B,): pytest.approx(log(0.5)),
    }


def test_an_ensemble_lets_sentences_go_in_every_member():
    quick, slow = {(): {END: 1.0}}, {(): {A: 1.0}, (A,): {A: 1.0}}
    members = Tables(quick, slow, quick), Tables(quick, slow, quick)
    assert [each[0].tokens for each in search(stepper=Joined(members), beam=2)] == [(), (A, A), ()]
    assert members[0].shapes == members[1].shapes == [(3, 1), (1, 1), (1, 2)]


def test_an_ensemble_has_read_what_its_members_have_on_average():
    tree = {(): {A: 0.6, B: 0.4}}
    stepper = Joined((Tables(tree, unread={(A,): -3.0}), Tables(tree, unread={(A,): -1.0})))
    assert isinstance(stepper, Reader)
    (found,) = search(stepper=stepper, beam=2, nbest=2, coverage_penalty=0.5)
    assert {h.tokens: h.score for h in found} == {
        (B,): pytest.approx(log(0.4)),
        (A,): pytest.approx(log(0.6) - 0.5 * 2.0),
    }


SYMBOLS = Symbols(1, 2, (0, 1))


def model(seed=3):
    torch.manual_seed(seed)
    config = TransformerConfig(dim=16, heads=2, hidden=32, encoder_layers=1, decoder_layers=1, longest=64)
    built = Transformer(config, 80, 80).eval()
    built.output.bias.data[2] += 1.0
    return built


def requests(count=6):
    numbers = torch.Generator().manual_seed(5)
    lengths = torch.randint(1, 8, (count,), generator=numbers).tolist()
    return [Request(tuple(torch.randint(3, 80, (n,), generator=numbers).tolist())) for n in lengths]


def same(found, expected):
    assert len(found) == len(expected)
    for one, two in zip(found, expected, strict=True):
        assert [(each.tokens, each.finished) for each in one] == [(each.tokens, each.finished) for each in two]
        assert [each.score for each in one] == pytest.approx([each.score for each in two], abs=1e-4)


def lexicon(candidates):
    table = (np.arange(80)[:, None] * 7 + np.arange(candidates) * 11) % 77 + 3
    return Lexicon(table.astype(np.int32), np.arange(3, 12, dtype=np.int32), 80)


OPTIONS = [{}, {"beam": 1}, {"beam": 4, "nbest": 4, "no_repeat": 2}, {"groups": 2, "nbest": 2}]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("others", [(), (model(4),)])
def test_a_shortlist_of_the_whole_vocabulary_changes_nothing(options, others):
    whole = Lexicon(np.zeros((80, 0), np.int32), np.arange(80, dtype=np.int32), 80)
    config = DecodingConfig(limit_extra=3, **options)
    full = Engine(model(), SYMBOLS, others).search(requests(), config)
    same(Engine(model(), SYMBOLS, others, whole).search(requests(), config), full)


@pytest.mark.parametrize("options", OPTIONS)
def test_a_shortlisted_output_holds_only_what_its_own_source_allows_whoever_else_is_there(options):
    engine, config = Engine(model(), SYMBOLS, lexicon=lexicon(3)), DecodingConfig(limit_extra=3, **options)
    together = engine.search(requests(), config)
    for request, found in zip(requests(), together, strict=True):
        assert {token for each in found for token in each.tokens} <= set(
            engine.lexicon.allowed(request.source).tolist()
        )
    same([engine.search([request], config)[0] for request in requests()], together)
    same(engine.search(requests()[::-1], config), together[::-1])
    full = Engine(model(), SYMBOLS).search(requests(), config)
    assert [each[0].tokens for each in full] != [each[0].tokens for each in together]


def test_a_shortlist_holds_what_a_request_needs():
    engine = Engine(model(), SYMBOLS, lexicon=lexicon(1))
    request = Request((5, 6), prefix=(70,), required=((71, 72),))
    assert not {70, 71, 72}.intersection(engine.lexicon.allowed(request.source).tolist())
    ((best,),) = engine.search([request], settings(beam=4))
    assert best.tokens[0] == 70
    assert (71, 72) in zip(best.tokens, best.tokens[1:], strict=False)


def test_a_shortlisted_step_is_the_softmax_over_the_tokens_of_the_sentence():
    built = model()
    names = np.array([1, 2, 5, 9, 30])
    cut = Shortlisted.over(built, names)
    with torch.inference_mode():
        source = Engine(built, SYMBOLS)._source([Request((4, 5)), Request((6, 7))])
        state = cut.start(built.start(built.encode(source)), [np.array([2, 5, 30]), np.array([1, 2, 9])])
        given, _ = cut.step(torch.tensor([[0], [0]]), None, state)
        full, _ = built.step(torch.tensor([[1], [1]]), None, built.start(built.encode(source)))
    for line, tokens in ((0, [2, 5, 30]), (1, [1, 2, 9])):
        expected = full[line, 0, tokens].log_softmax(-1)
        places = np.searchsorted(names, tokens)
        assert torch.allclose(given[line, 0, places], expected, atol=1e-5)
        assert given[line, 0].exp().sum() == pytest.approx(1.0)
        assert (given[line, 0] > -torch.inf).sum() == 3

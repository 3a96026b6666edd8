import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from tables import END, SYMBOLS, A, B, C, Tables, search, settings

from headway.config import validated
from headway.errors import ConfigError
from headway.search import DecodingConfig, Hypothesis, Request, Search
from headway.search.candidates import GROUP, best
from headway.search.decode import ranked
from headway.search.records import Records, Taken


@pytest.mark.parametrize(("length", "limit"), [(0, 20), (1, 22), (7, 34), (500, 256)])
def test_the_limit_follows_the_source_up_to_the_longest(length, limit):
    assert DecodingConfig().limit(length) == limit


def test_the_limit_leaves_room_for_what_the_output_must_hold():
    config = settings()
    assert Request((7,) * 4).limit(config) == 4
    assert Request((7,) * 4, prefix=(A, B), required=((A,), (B, C))).limit(config) == 5


@pytest.mark.parametrize(
    "wrong",
    [
        {"beam": 0},
        {"beam": 65},
        {"beam": 2, "nbest": 3},
        {"nbest": 0},
        {"length_penalty": float("nan")},
        {"length_penalty": -0.1},
        {"limit_ratio": float("inf")},
        {"longest": 0},
        {"limit_extra": -1},
        {"beam": 4, "groups": 3},
        {"mbr": 8},
        {"mbr": 2, "nbest": 3},
        {"sample": True, "groups": 2},
        {"sample": True, "coverage_penalty": 0.1},
        {"repetition": 0.9},
        {"top_p": 0.0},
    ],
)
def test_settings_that_cannot_work_are_refused(wrong):
    with pytest.raises(ConfigError):
        validated(DecodingConfig, wrong, "recipe")


@pytest.mark.parametrize("count", [1, 3, 5, 40, 64, 100])
@pytest.mark.parametrize("vocabulary", [7, 64, 1000, 13 * GROUP, 90 * GROUP + 17])
def test_the_best_tokens_are_those_of_a_stable_sort_however_many_tie(count, vocabulary):
    generator = torch.Generator().manual_seed(count)
    merits = torch.randint(-6, 0, (5, 3, vocabulary), generator=generator).float()
    merits[0, 0, ::3] = -torch.inf
    merits[1, :, -1] = 0.0  # the very last token is the best
    expected = merits.sort(dim=-1, descending=True, stable=True)
    values, tokens = best(merits, count)
    assert torch.equal(values, expected.values[..., :count])
    assert torch.equal(tokens, expected.indices[..., :count])


@examples(deadline=None, max_examples=50)
@given(st.data(), st.integers(1, 9))
def test_the_best_of_few_values_and_many_groups_are_those_of_a_stable_sort(data, count):
    groups = data.draw(st.integers(1, 30))
    few = data.draw(st.lists(st.floats(-9, 9, width=32).map(lambda value: value + 0.0), min_size=1, max_size=4))
    seed, size = data.draw(st.integers(0, 99)), groups * GROUP + data.draw(st.integers(0, GROUP - 1))
    chosen = torch.randint(len(few), (2, 1, size), generator=torch.Generator().manual_seed(seed))
    merits = torch.tensor([*few])[chosen]
    expected = merits.sort(dim=-1, descending=True, stable=True)
    values, tokens = best(merits, count)
    assert torch.equal(values, expected.values[..., :count])
    assert torch.equal(tokens, expected.indices[..., :count])


def hypothesis(tokens, score, finished=True):
    return Hypothesis(tokens, score, score, finished, ())


def test_the_same_output_found_twice_is_kept_once_in_its_better_place():
    cut, other, whole = hypothesis((A,), -0.5, finished=False), hypothesis((B,), -2.0), hypothesis((A,), -1.0)
    assert ranked([cut, other, whole], 3, unique=True) == [whole, other]
    assert ranked([cut, other, whole], 3, unique=False) == [whole, other, cut]


def test_equal_scores_are_kept_in_the_order_they_were_found():
    found = [hypothesis((B,), -1.0), hypothesis((A,), -1.0)]
    assert ranked(found, 2, unique=True) == found


def test_tracing_goes_back_through_steps_that_other_sentences_have_left():
    records = Records()

    def step(parents, tokens, sentences):
        values = -torch.tensor(tokens, dtype=torch.float64)
        records.add(Taken(torch.tensor(parents), torch.tensor(tokens), values), torch.tensor(sentences))

    step([[0, 0], [0, 0], [0, 0]], [[10, 11], [20, 21], [30, 31]], [0, 1, 2])
    step([[1, 0], [1, 0]], [[12, 13], [32, 33]], [0, 2])
    step([[1, 1]], [[34, 35]], [2])
    ends = np.array([2, 0, 1, 2, 0]), np.array([3, 2, 1, 2, 0]), np.array([1, 0, 1, 0, 0])
    tokens, values = records.trace(*ends)
    assert [row[:length].tolist() for row, length in zip(tokens, ends[1], strict=True)] == [
        [30, 33, 35],
        [11, 12],
        [21],
        [31, 32],
        [],
    ]
    assert np.array_equal(values, -tokens)


def stable_by_step(*trees, limits, sentence=0, **changes):
    stepper = Tables(*trees)
    requests = [Request((7,) * limit) for limit in limits]
    search = Search(stepper, stepper.begin(), requests, settings(**changes), SYMBOLS)
    seen = []
    while search.live and sentence in search.sentences.tolist():
        seen.append(search.stable(sentence))
        search.advance()
    while search.live:
        search.advance()
    return seen, search.answers()[sentence][0].tokens


def test_stable_is_what_all_rows_and_all_outputs_found_begin_with():
    # After one step B is still in the beam; after two only A B and A C are; after three A B C and A B.
    tree = {
        (): {A: 0.8, B: 0.2},
        (A,): {B: 0.5, C: 0.5},
        (B,): {A: 0.1},
        (A, B): {C: 0.6, END: 0.4},
        (A, C): {A: 0.1},
        (A, B, C): {A: 0.9, END: 0.1},
    }
    seen, final = stable_by_step(tree, limits=[5], beam=2)
    assert seen == [(), (), (A,), (A, B), (A, B)]
    assert final == (A, B, C, A)


def test_stable_of_one_sentence_while_others_leave():
    slow = {(A,) * length: {A: 1.0} for length in range(4)}
    quick = {(): {END: 1.0}}
    seen, final = stable_by_step(quick, quick, slow, limits=[6] * 3, sentence=2, beam=1)
    assert seen == [(A,) * length for length in range(5)]
    assert final == (A,) * 4


@pytest.mark.parametrize("options", [{"beam": 1}, {"beam": 3}, {"beam": 4, "groups": 2}])
def test_sentences_that_leave_at_different_steps_get_their_own_answers(options):
    texts = [(A,) * 5, (), (B, C), (C,), (A, B, C, A), (B,), (C, A, B)]
    trees = [{text[:length]: {text[length]: 0.9, END: 0.1} for length in range(len(text))} for text in texts]
    found = search(*trees, limits=[8] * len(texts), length_penalty=2.0, **options)
    assert [each[0].tokens for each in found] == texts

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from headway.data.lexicon import FORMAT, Lexicon, vocabularies
from headway.data.tokenizer import Tokenizer, TokenizerConfig
from headway.errors import FolderError

SIZE = 40


@pytest.fixture(scope="module")
def pairs():
    """Every source token is translated by the next one, and every target ends in 0 and mostly has a 1."""
    generator = np.random.default_rng(4)
    sources = [generator.integers(2, SIZE - 1, generator.integers(2, 9)).tolist() for _ in range(400)]
    return [([*source], [*(token + 1 for token in reversed(source)), *([1] if source[0] > 5 else []), 0])
            for source in sources]  # fmt: skip


def learn(pairs, **options):
    return Lexicon.learn(pairs, source_size=SIZE, target_size=SIZE, **options)


@pytest.fixture(scope="module")
def lexicon(pairs):
    return learn(pairs, candidates=3, frequent=2)


def test_the_likeliest_candidate_is_the_translation(lexicon):
    assert lexicon.candidates.dtype == np.int32
    assert lexicon.candidates.shape == (SIZE, 3)
    assert lexicon.candidates[2:-1, 0].tolist() == list(range(3, SIZE))


def test_a_token_that_never_occurred_has_no_candidates(lexicon):
    assert (lexicon.candidates[[0, 1, SIZE - 1]] == -1).all()


def test_the_most_frequent_tokens_are_always_allowed_and_no_candidates(lexicon):
    assert lexicon.always.tolist() == [0, 1]
    assert not np.isin(lexicon.candidates, [0, 1]).any()


def test_of_equally_frequent_tokens_the_lower_ids_are_taken():
    found = learn([([1], [7, 5, 3, 9])], frequent=2)
    assert found.always.tolist() == [3, 5]
    assert found.candidates[1].tolist() == [7, 9]


def test_no_more_tokens_are_always_allowed_than_there_are():
    assert learn([([1], [7, 5, 5])], frequent=200).always.tolist() == [5, 7]
    assert learn([([1], [7, 5, 5])], frequent=0).always.tolist() == []


def test_as_many_candidates_as_asked_for(pairs):
    assert (learn(pairs, candidates=5, frequent=2).candidates >= 0).sum(axis=1).max() == 5
    assert learn([([1], [2, 3])], frequent=0).candidates.shape == (SIZE, 2)


def test_what_is_allowed_is_sorted_and_unique(lexicon):
    allowed = lexicon.allowed([5, 9, 5, 10])
    assert allowed.tolist() == sorted(set(allowed.tolist()))
    assert {0, 1, 6, 10, 11} <= set(allowed.tolist())
    expected = {0, 1, *lexicon.candidates[[5, 9, 10]].ravel().tolist()} - {-1}
    assert set(allowed.tolist()) == expected


def test_an_empty_source_and_an_unknown_token_allow_what_is_always_allowed(lexicon):
    assert lexicon.allowed([]).tolist() == lexicon.allowed([0]).tolist() == [0, 1]


def test_the_same_pairs_give_the_same_lexicon(pairs, tmp_path):
    for name in ("a", "b"):
        learn(iter(pairs)).save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_coverage_counts_tokens_that_are_allowed(lexicon):
    found = lexicon.coverage([([5], [6, 0, 30]), ([], [1, 6, 6])])
    assert found.pairs == 2
    assert found.tokens == 6
    assert found.covered == 3
    assert found.allowed == len(lexicon.allowed([5])) + 2


def test_what_was_saved_is_loaded(lexicon, tmp_path):
    path = tmp_path / "shortlist.safetensors"
    lexicon.save(path)
    found = Lexicon.load(path)
    assert list(tmp_path.iterdir()) == [path]
    assert (found.candidates == lexicon.candidates).all()
    assert (found.always == lexicon.always).all()
    assert (found.source_size, found.target_size) == (SIZE, SIZE)


def complaint(path):
    with pytest.raises(FolderError) as caught:
        Lexicon.load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith("; make it again by 'headway shortlist'")
    return str(caught.value)


@pytest.mark.parametrize("length", [0, 5, 100, -1])
def test_a_file_that_breaks_off_is_refused(lexicon, tmp_path, length):
    path = tmp_path / "shortlist"
    lexicon.save(path)
    path.write_bytes(path.read_bytes()[:length])
    assert "cannot be read as a shortlist" in complaint(path)


def test_what_is_no_file_is_refused(tmp_path):
    assert "cannot be read as a shortlist" in complaint(tmp_path)
    assert "cannot be read as a shortlist" in complaint(tmp_path / "missing")


def changed(lexicon, path, facts=None, **tensors):
    """The saved lexicon with other facts and tensors."""
    lexicon.save(path)
    told = {"format": FORMAT, "target_size": SIZE, "vocabularies": ""} | facts if isinstance(facts, dict) else facts
    held = load_file(path) | tensors
    save_file(
        {name: value for name, value in held.items() if value is not None}, path, {"headway.lexicon": json.dumps(told)}
    )
    return path


def test_the_changed_files_below_differ_by_nothing_else(lexicon, tmp_path):
    assert Lexicon.load(changed(lexicon, tmp_path / "same", {})).target_size == SIZE


WRONG = {
    "another format": ({"format": 2}, {}, "not a shortlist that this Headway reads"),
    "a tensor too many": ({}, {"more": np.zeros(1)}, "not a shortlist that this Headway reads"),
    "a tensor too few": ({}, {"always": None}, "not a shortlist that this Headway reads"),
    "facts of another kind": ([FORMAT], {}, "cannot be read as a shortlist"),
    "no number": ({"target_size": "many"}, {}, "cannot be read as a shortlist"),
    "no finite number": ({"target_size": float("inf")}, {}, "cannot be read as a shortlist"),
    "wide ids": ({}, {"always": np.zeros(3, np.int64)}, "not tables of ids"),
    "floats": ({}, {"candidates": np.zeros((3, 3), np.float32)}, "not tables of ids"),
    "another shape": ({}, {"candidates": np.zeros(3, np.int32)}, "not tables of ids"),
    "always too high": ({}, {"always": np.array([SIZE], np.int32)}, f"outside a vocabulary of {SIZE} tokens"),
    "always too low": ({}, {"always": np.array([-1], np.int32)}, f"outside a vocabulary of {SIZE} tokens"),
    "candidate too high": ({}, {"candidates": np.array([[SIZE]], np.int32)}, f"outside a vocabulary of {SIZE} tokens"),
    "candidate too low": ({}, {"candidates": np.array([[-2]], np.int32)}, f"outside a vocabulary of {SIZE} tokens"),
    "a smaller vocabulary": ({"target_size": 20}, {}, "outside a vocabulary of 20 tokens"),
    "a huge vocabulary": ({"target_size": 10**30}, {}, "outside a vocabulary of 1000"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_foreign_or_damaged_file_is_refused_in_one_line(lexicon, tmp_path, name):
    facts, tensors, expected = WRONG[name]
    assert expected in complaint(changed(lexicon, tmp_path / "shortlist", facts, **tensors))


def test_a_safetensors_file_without_facts_is_refused(tmp_path):
    save_file({"always": np.zeros(1, np.int32), "candidates": np.zeros((1, 1), np.int32)}, tmp_path / "plain")
    assert "not a shortlist that this Headway reads" in complaint(tmp_path / "plain")


def test_only_the_vocabularies_it_was_made_for_are_served():
    one, same, other = (
        Tokenizer.train(text, TokenizerConfig(kind="characters")) for text in (["abc"], ["cab"], ["abd"])
    )
    assert one.size == other.size
    empty, ids = np.full((one.size, 0), -1, np.int32), np.zeros(1, np.int32)
    lexicon = Lexicon(empty, ids, one.size, vocabularies(one, one))
    lexicon.check(one, one, "here")
    lexicon.check(same, one, "here")
    for pair in ((one, other), (other, one), (other, other)):
        with pytest.raises(FolderError, match="here: was made for another vocabulary"):
            lexicon.check(*pair, "here")
    with pytest.raises(FolderError, match="another vocabulary"):
        Lexicon(empty, ids, one.size + 1).check(one, one, "here")
    Lexicon(empty, ids, one.size).check(other, one, "here")  # nothing is known but the sizes

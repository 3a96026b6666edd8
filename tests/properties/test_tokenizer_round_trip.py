import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.data.dropout import BpeDropout
from headway.data.tokenizer import Tokenizer, TokenizerConfig

LINES = ["the cat sat on the mat, the hat", "ein Hund läuft über die Straße", "aaa aaaa  aaaaa\n\n"] * 10
BPE = Tokenizer.train(LINES, TokenizerConfig(vocabulary=400))
TEXTS = st.text(alphabet=st.characters(exclude_categories=["Cs"])) | st.lists(
    st.sampled_from(
        ["the", " ", "cat", "aaaa", "läuft", "Straße", "\n", "\t", "<s>", "</s>", "▁", "🎉", "\x00", "'s", "."]
    )
).map("".join)


@given(TEXTS)
@settings(deadline=None)
def test_byte_level_text_comes_back_whole(text):
    ids = BPE.encode([text])[0]
    assert BPE.decode(ids) == text
    assert {BPE.padding, BPE.start, BPE.end, BPE.unknown}.isdisjoint(ids)


@given(TEXTS)
@settings(deadline=None)
def test_pieces_carry_the_ids_of_the_encoding(text):
    assert [token for token, _ in BPE.pieces(text)] == BPE.encode([text])[0]


@given(TEXTS)
@settings(deadline=None)
def test_dropping_nothing_encodes_as_the_library_does(text):
    assert BpeDropout(BPE, 0.0).encode(text, random.Random(0)) == BPE.encode([text])[0]


@given(TEXTS, st.floats(0.01, 0.99), st.integers(0, 2**32))
@settings(max_examples=50, deadline=None)
def test_a_dropped_segmentation_is_the_same_text_and_the_same_again(text, probability, seed):
    dropout = BpeDropout(BPE, probability)
    ids = dropout.encode(text, random.Random(seed))
    assert BPE.decode(ids) == text
    assert dropout.encode(text, random.Random(seed)) == ids


@pytest.mark.parametrize("generator", [random.Random(3), np.random.default_rng(3)])
def test_any_source_of_chance_will_do(generator):
    assert BPE.decode(BpeDropout(BPE, 0.3).encode(LINES[0], generator)) == LINES[0]

"""Ragged sentences as one value."""

import pytest
import torch

from headway.sequences import Sequences

SENTENCES = [[5, 6, 7], [8], [], [9, 4]]


def test_padded_sentences_are_rows_filled_on_the_right():
    padded = Sequences.pad(SENTENCES, 0)
    assert padded.tokens.tolist() == [[5, 6, 7], [8, 0, 0], [0, 0, 0], [9, 4, 0]]
    assert padded.lengths.tolist() == [3, 1, 0, 2]
    assert (padded.longest, padded.full, padded.packed) == (3, False, False)


def test_packed_sentences_stand_one_after_the_other():
    packed = Sequences.pack(SENTENCES)
    assert packed.tokens.tolist() == [5, 6, 7, 8, 9, 4]
    assert packed.lengths.tolist() == [3, 1, 0, 2]
    assert (packed.longest, packed.full, packed.packed) == (3, True, True)
    assert packed.bounds.tolist() == [0, 3, 4, 4, 6]
    assert packed.bounds.dtype == torch.int32


def test_presence_tells_tokens_from_padding_even_where_a_token_has_the_padding_id():
    assert Sequences.pad([[0, 0], [0]], 0).present.tolist() == [[True, True], [True, False]]
    assert Sequences.pack([[0, 0], [0]]).present.tolist() == [True, True, True]


def test_positions_count_from_zero_in_every_sentence_of_either_layout():
    assert Sequences.pad(SENTENCES, 0).positions.tolist() == [[0, 1, 2]] * 4
    assert Sequences.pack(SENTENCES).positions.tolist() == [0, 1, 2, 0, 0, 1]


@pytest.mark.parametrize(("sentences", "full"), [([[1, 2], [3, 4]], True), ([[1, 2], [3]], False), ([[1]], True)])
def test_a_padded_batch_is_full_when_no_cell_is_padding(sentences, full):
    padded = Sequences.pad(sentences, 0)
    assert padded.full is full
    assert padded.full == bool(padded.present.all())


def test_no_sentences_at_all_are_a_value_too():
    padded, packed = Sequences.pad([], 0), Sequences.pack([])
    assert padded.tokens.shape == (0, 0)
    assert packed.tokens.shape == (0,)
    assert (padded.longest, packed.longest) == (0, 0)
    assert packed.bounds.tolist() == [0]


def test_moving_to_a_device_keeps_everything():
    padded = Sequences.pad(SENTENCES, 0)
    moved = padded.to("meta")
    assert moved.tokens.device.type == moved.lengths.device.type == "meta"
    assert (moved.longest, moved.full) == (padded.longest, padded.full)

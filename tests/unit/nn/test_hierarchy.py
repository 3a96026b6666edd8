"""Documents divided into sentences and put together again."""

import pytest
import torch

from headway.nn.hierarchy import Hierarchy
from headway.nn.pooling import Pooling
from headway.sequences import Sequences

STOP = 9


def divided(documents):
    source = Sequences.pad(documents, STOP)  # padding that looks like a full stop
    return source, Hierarchy.of(source, source.tokens == STOP)


@pytest.mark.parametrize(
    ("document", "sentences"),
    [
        ([4, 5, 2], [[4, 5, 2]]),
        ([4, STOP, 5, 2], [[4, STOP], [5, 2]]),
        ([4, STOP, 2], [[4, STOP, 2]]),
        ([4, STOP, STOP, 5, STOP, 2], [[4, STOP, STOP], [5, STOP, 2]]),
        ([STOP, 4, 2], [[STOP], [4, 2]]),
        ([2], [[2]]),
    ],
    ids=str,
)
def test_marks_end_sentences_a_run_of_them_ends_one_and_the_end_symbol_begins_none(document, sentences):
    others = [[7, STOP, 7, 7, 7, STOP, 7, 2], [7, 2]]
    for documents in ([document], [others[0], document], [document, *others]):
        _, found = divided(documents)
        place = documents.index(document)
        rows = found.parts.tokens[place, : found.parts.lengths[place]].tolist()
        assert [found.words.tokens[row, : found.words.lengths[row]].tolist() for row in rows] == sentences


def test_what_is_divided_and_joined_again_is_as_it_was():
    source, found = divided([[4, STOP, 5, 6, STOP, 2], [4, 2], [4, 5, STOP, STOP, 6, 7, 2]])
    x = torch.randn(3, 7, 4)
    again = found.joined(found.divided(x))
    assert torch.equal(again[source.present], x[source.present])
    assert found.part[source.present].tolist() == [0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1]
    states = torch.randn(5, 4)
    assert torch.equal(found.gathered(states)[found.parts.present], states)


def test_pooling_takes_no_account_of_what_is_not_there():
    torch.manual_seed(1)
    pooling, x = Pooling(4, 6), torch.randn(2, 5, 4)
    present = torch.tensor([[True] * 3 + [False] * 2, [True] * 5])
    pooled, weights = pooling(x, present)
    alone, shorter = pooling(x[:1, :3], present[:1, :3])
    torch.testing.assert_close(pooled[:1], alone)
    torch.testing.assert_close(weights[:1, :3], shorter)
    assert (weights[0, 3:] == 0).all()

"""Who may see whom, as a mask."""

import pytest
import torch

from headway.nn.attention import Segments, Visible
from headway.sequences import Sequences

CPU = torch.device("cpu")
LENGTHS = [3, 1, 4]
SENTENCES = [list(range(1, length + 1)) for length in LENGTHS]


def marks(mask):
    return ["".join("x" if cell else "." for cell in row) for row in mask.tolist()]


@pytest.mark.parametrize(
    ("visible", "queries", "keys", "expected"),
    [
        (Visible(causal=True), 3, 3, ["x..", "xx.", "xxx"]),
        (Visible(causal=True), 2, 4, ["xxx.", "xxxx"]),
        (Visible(causal=True), 3, 2, ["..", "x.", "xx"]),
        (Visible(window=0), 3, 3, ["x..", ".x.", "..x"]),
        (Visible(window=1), 4, 4, ["xx..", "xxx.", ".xxx", "..xx"]),
        (Visible(causal=True, window=1), 4, 4, ["x...", "xx..", ".xx.", "..xx"]),
        (Visible(causal=True, window=1), 1, 4, ["..xx"]),
    ],
)
def test_the_mask_is_what_every_condition_allows(visible, queries, keys, expected):
    assert marks(visible.allowed(queries, keys, CPU)) == expected


@pytest.mark.parametrize("visible", [Visible(), Visible(causal=True)])
def test_no_mask_is_made_where_one_query_sees_all_keys(visible):
    assert visible.allowed(1, 5, CPU) is None


def test_padding_joins_the_other_conditions():
    present = Sequences.pad([[1, 1], [1, 1, 1]], 0).present
    mask = Visible(keys=present, causal=True).allowed(3, 3, CPU)
    assert marks(mask[0]) == ["x..", "xx.", "xx."]
    assert marks(mask[1]) == ["x..", "xx.", "xxx"]


def test_a_full_batch_needs_no_padding_mask():
    full = Sequences.pad([[1, 2], [3, 4]], 0)
    assert Visible.between(full, full) == Visible()


def test_a_causal_token_sees_no_padding_even_without_a_padding_mask():
    padded = Sequences.pad(SENTENCES, 0)
    visible = Visible.between(padded, padded, causal=True)
    assert visible.keys is None
    mask = visible.allowed(4, 4, CPU).expand(3, 4, 4)
    sees_padding = (mask & ~padded.present[:, None]).any(-1)
    assert not (sees_padding & padded.present).any()


def test_packed_sentences_become_segments_and_back_the_same_description():
    packed = Sequences.pack(SENTENCES)
    visible = Visible.between(packed, packed, causal=True, window=2)
    assert visible.keys is None
    padded = visible.padded()
    assert (padded.causal, padded.window, padded.segments) == (True, 2, None)
    assert torch.equal(padded.keys, Sequences.pad(SENTENCES, 0).present)


def test_padding_packed_rows_and_packing_them_again_gives_them_back():
    packed = Sequences.pack(SENTENCES)
    segments = Segments(packed, packed)
    rows = torch.randn(sum(LENGTHS), 2, 5, generator=torch.Generator().manual_seed(1))
    padded = segments.pad_queries(rows)
    assert padded.shape == (3, 4, 2, 5)
    assert torch.equal(padded, segments.pad_keys(rows))
    assert torch.equal(segments.pack_queries(padded), rows)
    assert (padded[~Sequences.pad(SENTENCES, 0).present] == 0).all()

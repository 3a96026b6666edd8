"""What rows of a search remember, and what they have left unread."""

import math

import torch

from headway.models.transformer import Transformer, TransformerConfig
from headway.nn.rows import followed, left_unread
from headway.sequences import Sequences


def test_rows_go_on_from_their_parents_or_all_from_the_only_one():
    values = torch.arange(6.0).view(1, 3, 2)
    assert followed(values, torch.tensor([[2, 0]]), 2).tolist() == [[[4.0, 5.0], [0.0, 1.0]]]
    assert followed(values, None, 3) is values
    assert followed(values[:, :1], None, 2).tolist() == [[[0.0, 1.0], [0.0, 1.0]]]


def test_what_was_never_looked_at_counts_and_padding_does_not():
    coverage = torch.tensor([[[2.0, 0.5, 0.0, 0.0]]])
    absent = torch.tensor([[[False, False, False, True]]])
    expected = math.log(0.5) + math.log(1e-9)
    torch.testing.assert_close(left_unread(coverage, absent), torch.tensor([[expected]]))
    torch.testing.assert_close(left_unread(coverage, None), torch.tensor([[expected + math.log(1e-9)]]))


def test_a_model_in_half_precision_keeps_account_in_single():
    config = TransformerConfig(dim=8, heads=2, hidden=8, encoder_layers=1, decoder_layers=1, longest=8)
    model = Transformer(config, 12, 12).bfloat16().eval()
    with torch.inference_mode():
        state = model.start(model.encode(Sequences.pad([[4, 5, 2], [2]], 2)), coverage=True)
        _, state = model.step(torch.tensor([[1], [1]]), None, state)
    assert state.coverage.dtype == torch.float32
    assert model.unread(state).isfinite().all()

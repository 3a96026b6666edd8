"""Convolutions: the sums they stand for, and one step after the other."""

import pytest
import torch

from headway.nn.convolution import Convolution, shown


@pytest.mark.parametrize("kernel", [1, 3, 5])
@pytest.mark.parametrize("dilation", [1, 2, 4])
@pytest.mark.parametrize("causal", [False, True])
@torch.no_grad()
def test_a_convolution_is_that_of_torch_with_zeros_beyond_the_edges(kernel, dilation, causal):
    torch.manual_seed(1)
    own = Convolution(4, 6, kernel=kernel, dilation=dilation, causal=causal)
    x, reach = torch.randn(2, 7, 4), (kernel - 1) * dilation
    weight = own.window.weight.view(6, kernel, 4).transpose(1, 2)
    before = reach if causal else reach // 2
    around = torch.nn.functional.pad(x.transpose(1, 2), (before, reach - before))
    expected = torch.nn.functional.conv1d(around, weight, own.window.bias, dilation=dilation)
    torch.testing.assert_close(own(x), expected.transpose(1, 2))


@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("dilation", [1, 3])
@torch.no_grad()
def test_step_after_step_is_the_whole_sequence(kernel, dilation):
    torch.manual_seed(1)
    own = Convolution(4, 6, kernel=kernel, dilation=dilation, causal=True)
    x = torch.randn(2, 9, 4)
    recent, found = own.begin(x), []
    for time in range(9):
        mapped, recent = own.step(x[:, time : time + 1], recent)
        found.append(mapped)
        assert recent.shape == (2, 1, (kernel - 1) * dilation, 4)
    torch.testing.assert_close(torch.cat(found, 1), own(x))


@torch.no_grad()
def test_the_gain_is_what_a_standard_deviation_is_multiplied_by():
    torch.manual_seed(1)
    own = Convolution(64, 64, kernel=3)
    own.initialise(2.0)
    assert own(torch.randn(4, 200, 64))[:, 1:-1].std().item() == pytest.approx(2.0, rel=0.05)


def test_padding_is_shown_as_zeros():
    x = torch.ones(2, 3, 4)
    present = torch.tensor([[True, True, False], [True, True, True]])
    assert shown(x, present).sum(-1).tolist() == [[4, 4, 0], [4, 4, 4]]
    assert shown(x, None) is x

import pytest
import torch
from torch import Tensor

from headway.nn.attention.dropping import attention_with_dropout
from headway.nn.dropout import dropout_mask

SHAPE = (3, 5, 2, 4)  # batch, query, heads, width


def drawn() -> tuple[Tensor, Tensor, Tensor]:
    """A query, and a key and a value of a longer sequence that lie side by side as one projection leaves them."""
    generator = torch.Generator().manual_seed(2)
    query = torch.randn(*SHAPE, dtype=torch.float64, generator=generator)
    both = torch.randn(3, 7, 2, 2, 4, dtype=torch.float64, generator=generator)
    return query.requires_grad_(), both[:, :, 0].requires_grad_(), both[:, :, 1].requires_grad_()


def plain(query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None) -> tuple[Tensor, Tensor]:
    scores = torch.einsum("bqhw,bkhw->hbqk", query, key) / 2
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    weights = scores.softmax(-1)
    dropped = weights * dropout_mask(weights, 0.3)
    return torch.einsum("hbqk,bkhw->bqhw", dropped, value), weights.transpose(0, 1)


@pytest.mark.parametrize("mask", ["none", "keys", "queries and keys"])
def test_output_weights_and_gradients_are_those_of_the_plain_computation(mask: str) -> None:
    inputs = drawn()
    allowed = {
        "none": None,
        "keys": torch.arange(7) < torch.tensor([7, 3, 1])[:, None, None],
        "queries and keys": torch.ones(5, 7, dtype=torch.bool).tril(2)[None],
    }[mask]
    direction = torch.randn(*SHAPE, dtype=torch.float64)
    torch.manual_seed(4)
    expected, expected_weights = plain(*inputs, allowed)
    torch.manual_seed(4)
    output, weights = attention_with_dropout(*inputs, allowed, 0.3)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(weights, expected_weights.detach())
    made = torch.autograd.grad((output * direction).sum(), inputs)
    wanted = torch.autograd.grad((expected * direction).sum(), inputs)
    for one, other in zip(made, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_a_masked_key_gets_no_weight_and_no_gradient() -> None:
    query, key, value = drawn()
    allowed = (torch.arange(7) != 4)[None, None]
    output, weights = attention_with_dropout(query, key, value, allowed, 0.3)
    output.sum().backward()
    assert weights[..., 4].abs().sum() == 0
    assert value.grad[:, 4].abs().sum() == 0 and key.grad[:, 4].abs().sum() == 0


def test_the_weights_carry_no_gradient() -> None:
    _, weights = attention_with_dropout(*drawn(), None, 0.3)
    assert not weights.requires_grad

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from headway.objectives import projection
from headway.objectives.projection import smoothed_cross_entropy

Case = tuple[Tensor, Tensor, Tensor | None, Tensor]


def case(dtype: torch.dtype, *, bias: bool = True, tokens: int = 37, scale: float = 1.0) -> Case:
    generator = torch.Generator().manual_seed(5)

    def parameter(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=dtype, generator=generator).mul_(scale).requires_grad_()

    labels = torch.randint(23, (tokens,), generator=generator)
    return parameter(tokens, 8), parameter(23, 8), parameter(23) if bias else None, labels


def plain(states: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float) -> Tensor:
    return F.cross_entropy(F.linear(states, weight, bias), labels, label_smoothing=smoothing, reduction="sum")


def gradients(loss: Tensor, *inputs: Tensor | None) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, [each for each in inputs if each is not None])


@pytest.fixture(autouse=True)
def several_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(projection._LOGITS, "cpu", 10 * 23)


@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_and_gradients_are_those_of_the_plain_computation(
    dtype: torch.dtype, close: float, bias: bool, smoothing: float
) -> None:
    states, weight, offset, labels = case(dtype, bias=bias)
    total, surprise = smoothed_cross_entropy(states, weight, offset, labels, smoothing)
    expected = plain(states, weight, offset, labels, smoothing)
    torch.testing.assert_close(total, expected, rtol=close, atol=close)
    torch.testing.assert_close(surprise, plain(states, weight, offset, labels, 0.0), rtol=close, atol=close)
    made, wanted = gradients(3 * total, states, weight, offset), gradients(3 * expected, states, weight, offset)
    for one, other in zip(made, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=close, atol=close)


def test_huge_logits_neither_overflow_nor_lose_the_label() -> None:
    states, weight, bias, labels = case(torch.float32, scale=30.0)
    total, _ = smoothed_cross_entropy(states, weight, bias, labels, 0.1)
    torch.testing.assert_close(total, plain(states, weight, bias, labels, 0.1))


def test_the_surprise_has_no_gradient() -> None:
    _, surprise = smoothed_cross_entropy(*case(torch.float32), 0.1)
    assert not surprise.requires_grad


def test_without_gradients_the_sums_are_the_same_and_nothing_is_kept() -> None:
    arguments = case(torch.float64)
    with torch.no_grad():
        total, surprise = smoothed_cross_entropy(*arguments, 0.1)
    assert not total.requires_grad
    with_gradients = smoothed_cross_entropy(*arguments, 0.1)
    torch.testing.assert_close((total, surprise), tuple(each.detach() for each in with_gradients))


def test_no_tokens_cost_nothing() -> None:
    total, surprise = smoothed_cross_entropy(*case(torch.float32, tokens=0), 0.1)
    assert total.item() == surprise.item() == 0.0


def test_autocast_changes_the_products_and_neither_the_type_of_the_loss_nor_of_the_gradients() -> None:
    states, weight, bias, labels = case(torch.float32, scale=0.5)
    with torch.autocast("cpu", torch.bfloat16):
        total, _ = smoothed_cross_entropy(states, weight, bias, labels, 0.1)
    expected = plain(states, weight, bias, labels, 0.1)
    torch.testing.assert_close(total, expected, rtol=1e-2, atol=1e-2)
    made, wanted = gradients(total, states, weight, bias), gradients(expected, states, weight, bias)
    for one, other in zip(made, wanted, strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one, other, rtol=5e-2, atol=5e-2)


def test_low_precision_states_get_low_precision_gradients() -> None:
    states, weight, bias, labels = case(torch.float32, scale=0.5)
    lowered = states.detach().bfloat16().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        total, _ = smoothed_cross_entropy(lowered, weight, bias, labels, 0.1)
    total.backward()
    assert total.dtype == torch.float32
    assert lowered.grad.dtype == torch.bfloat16
    assert weight.grad.dtype == torch.float32

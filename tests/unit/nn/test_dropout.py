import pytest
import torch

from headway.nn.dropout import Dropout, add_dropped, dropout, dropout_mask, rectify_dropped


def test_the_share_of_dropped_elements_is_the_probability() -> None:
    torch.manual_seed(1)
    for probability in (0.05, 0.1, 0.5, 0.9):
        zeros = (dropout(torch.ones(1_000_000), probability, training=True) == 0).double().mean().item()
        assert zeros == pytest.approx(probability, abs=5 * (probability * (1 - probability) / 1e6) ** 0.5)


def test_what_is_kept_is_scaled_so_that_the_expectation_stays() -> None:
    torch.manual_seed(1)
    result = dropout(torch.full((1_000_000,), 3.0), 0.1, training=True)
    assert result.mean().item() == pytest.approx(3.0, abs=0.01)
    assert result[result != 0].unique().tolist() == pytest.approx([3.0 / 0.9], rel=1e-4)


def test_neighbours_are_dropped_independently() -> None:
    torch.manual_seed(1)
    dropped = (dropout_mask(torch.ones(1_000_000), 0.5) == 0).double()
    for lag in (1, 2, 3, 4, 8, 256):
        both = (dropped[lag:] * dropped[:-lag]).mean().item()
        assert both == pytest.approx(0.25, abs=0.003)


def test_the_same_generator_state_gives_the_same_mask_and_the_next_draw_another() -> None:
    x = torch.ones(1001)
    torch.manual_seed(7)
    state = torch.get_rng_state()
    first, second = dropout(x, 0.3, training=True), dropout(x, 0.3, training=True)
    torch.set_rng_state(state)
    assert torch.equal(dropout(x, 0.3, training=True), first)
    assert not torch.equal(first, second)


def test_nothing_is_dropped_in_evaluation_or_with_probability_zero() -> None:
    x = torch.randn(64)
    assert torch.equal(dropout(x, 0.5, training=False), x)
    assert torch.equal(Dropout(0.5).eval()(x), x)
    assert torch.equal(dropout(x, 0.0, training=True), x)


def test_everything_is_dropped_with_probability_one() -> None:
    assert dropout(torch.ones(64), 1.0, training=True).abs().sum() == 0


def test_the_gradient_passes_through_kept_elements_only_and_scaled() -> None:
    x = torch.randn(5, 7, dtype=torch.float64, requires_grad=True)
    result = dropout(x, 0.4, training=True)
    result.sum().backward()
    assert torch.allclose(x.grad, result.detach() / x.detach())


def test_adding_what_is_left_equals_dropping_then_adding_with_gradients() -> None:
    x, y = (torch.randn(6, 8, dtype=torch.float64, requires_grad=True) for _ in range(2))
    weight = torch.randn(6, 8, dtype=torch.float64)
    torch.manual_seed(3)
    expected = x + dropout(y, 0.3, training=True)
    expected_gradients = torch.autograd.grad((expected * weight).sum(), (x, y))
    torch.manual_seed(3)
    result = add_dropped(x, y, 0.3, training=True)
    gradients = torch.autograd.grad((result * weight).sum(), (x, y))
    assert torch.allclose(result, expected)
    assert all(torch.allclose(*both) for both in zip(gradients, expected_gradients, strict=True))


def test_rectifying_and_dropping_equals_one_after_the_other_with_gradients() -> None:
    x = torch.randn(6, 8, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(6, 8, dtype=torch.float64)
    torch.manual_seed(3)
    expected = dropout(x.relu(), 0.3, training=True)
    (expected_gradient,) = torch.autograd.grad((expected * weight).sum(), x)
    torch.manual_seed(3)
    result = rectify_dropped(x, 0.3, training=True)
    (gradient,) = torch.autograd.grad((result * weight).sum(), x)
    assert torch.allclose(result, expected)
    assert torch.allclose(gradient, expected_gradient)


def test_the_fused_forms_are_the_plain_ones_in_evaluation() -> None:
    x, y = torch.randn(64), torch.randn(64)
    module = Dropout(0.5).eval()
    assert torch.equal(module.add(x, y), x + y)
    assert torch.equal(module.rectify(x), x.relu())


def test_low_precision_stays_low() -> None:
    assert dropout(torch.ones(8, dtype=torch.bfloat16), 0.5, training=True).dtype == torch.bfloat16


def test_a_random_number_of_64_bits_decides_four_places():
    torch.manual_seed(1)
    dropout_mask(torch.zeros(3, 4), 0.5)
    after = torch.rand(1)
    torch.manual_seed(1)
    torch.empty(3, dtype=torch.int64).random_(-(1 << 63), None)
    assert torch.equal(torch.rand(1), after)

import torch
import torch.nn.functional as F

from headway.nn.linear import Linear, lowered


def gradients(function, *inputs):
    return torch.autograd.grad(function.square().sum(), inputs)


def test_low_precision_is_that_of_copies_and_the_gradients_are_of_the_weights():
    torch.manual_seed(1)
    module, x = Linear(6, 8), torch.randn(5, 6, requires_grad=True)
    wanted = F.linear(x, module.weight, module.bias)
    expected = gradients(wanted, x, module.weight, module.bias)
    with lowered(module, torch.float32):
        found = module(x)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(gradients(found, x, module.weight, module.bias), expected)


def test_copies_are_lower_and_gone_afterwards():
    torch.manual_seed(1)
    module, x = Linear(6, 8), torch.randn(5, 6, dtype=torch.float64)
    module = module.double()
    exact = module(x)
    with lowered(module, torch.float32):
        rough = module(x)
    assert rough.dtype == torch.float32
    assert 0.0 < float((rough - exact).detach().abs().max()) < 1e-5
    assert torch.equal(module(x), exact)


def test_some_outputs_are_rows_of_the_matrix():
    torch.manual_seed(1)
    module, x = Linear(6, 8), torch.randn(2, 5, 6)
    whole = module(x)
    torch.testing.assert_close(module(x, slice(2, 5)), whole[..., 2:5])
    with lowered(module, torch.float32):
        some = module(x, slice(5, None))
    torch.testing.assert_close(some, whole[..., 5:])
    (slope,) = torch.autograd.grad(some.sum(), module.weight)
    assert slope[:5].abs().sum() == 0
    assert slope[5:].abs().sum() > 0


def test_what_is_rectified_has_no_gradient_where_it_is_zero():
    torch.manual_seed(1)
    module, x = Linear(6, 8), torch.randn(5, 6, requires_grad=True)
    wanted = F.relu(F.linear(x, module.weight, module.bias))
    expected = gradients(wanted, x, module.weight, module.bias)
    torch.testing.assert_close(module.rectified(x, 0.0), wanted)
    with lowered(module, torch.float32):
        found = module.rectified(x, 0.0)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(gradients(found, x, module.weight, module.bias), expected)


def test_what_is_rectified_and_dropped_is_scaled_up_and_so_is_its_gradient():
    torch.manual_seed(1)
    module, x = Linear(6, 400), torch.randn(50, 6, requires_grad=True)
    full = F.relu(F.linear(x, module.weight, module.bias)).detach()
    with lowered(module, torch.float32):
        left = module.rectified(x, 0.25)
    kept = left > 0
    torch.testing.assert_close(left[kept], full[kept] / 0.75, rtol=1e-3, atol=1e-6)
    assert 0.72 < float(kept.sum() / (full > 0).sum()) < 0.78
    (slope,) = torch.autograd.grad(left.sum(), module.bias)
    torch.testing.assert_close(slope, kept.sum(0) / 0.75, rtol=1e-3, atol=1e-5)


def test_a_pass_without_gradients_before_it_takes_no_gradient_away():
    torch.manual_seed(1)
    module, x = Linear(6, 8), torch.randn(5, 6)
    with lowered(module, torch.float32):
        with torch.no_grad():
            module(x, slice(3)), module(x, slice(3, None))
        found = module(x, slice(3)).sum() + module(x, slice(3, None)).square().sum()
    found.backward()
    assert module.weight.grad is not None
    assert (module.weight.grad != 0).all()


def test_frozen_weights_get_no_gradient_and_pass_one_on():
    module, x = Linear(6, 8).requires_grad_(False), torch.randn(5, 6, requires_grad=True)
    with lowered(module, torch.float32):
        module(x).sum().backward()
    assert module.weight.grad is None
    torch.testing.assert_close(x.grad, module.weight.sum(0).expand(5, 6))

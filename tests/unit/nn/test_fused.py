"""The kernels around a sub-layer against double precision, interpreted where there is no GPU."""

from itertools import product

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")

from headway.nn import dropout as doors
from headway.nn import elements
from headway.nn.chance import draws, new_seed, threshold
from headway.nn.dropout import Dropout, fused_here
from headway.nn.elements import added, column_sums, dropped, rectified, risen
from headway.nn.fused import joined, normalised
from headway.nn.residual import Norm, Residual

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
EXACT = {torch.float32: 1e-6, torch.bfloat16: 6e-3}
CASES = list(product([torch.float32, torch.bfloat16], [48, 130], [0.0, 0.3]))
cases = pytest.mark.parametrize(("dtype", "dim", "probability"), CASES)


def leaves(*shape, dtype=torch.float32, count=1, seed=1):
    generator = torch.Generator().manual_seed(seed)
    made = [torch.randn(shape, generator=generator).to(DEVICE, dtype).requires_grad_() for _ in range(count)]
    return made if count > 1 else made[0]


def exact(*tensors):
    return [each.detach().double().requires_grad_() for each in tensors]


def factors(shape, probability, seed=5):
    """What dropout will multiply by, the generator left as it will find it."""
    torch.manual_seed(seed)
    drawn = draws(int(new_seed(DEVICE)), torch.arange(torch.Size(shape).numel())).view(shape)
    torch.manual_seed(seed)
    return ((drawn >= threshold(probability)).double() / (1 - probability)).to(DEVICE)


def distance(got, wanted):
    return ((got.double() - wanted.double()).norm() / wanted.double().norm()).item()


def assert_alike(output, inputs, expected, expected_inputs, within):
    assert distance(output, expected) < within
    direction = leaves(*output.shape, seed=9).detach().to(output.dtype)
    gradients = torch.autograd.grad(output, inputs, direction)
    wanted = torch.autograd.grad(expected, expected_inputs, direction.double())
    for mine, other, leaf in zip(gradients, wanted, inputs, strict=True):
        assert mine.dtype == leaf.dtype
        assert distance(mine, other) < within


@cases
def test_joining_equals_the_norm_of_the_sum_with_what_is_left(dtype, dim, probability):
    x, y = leaves(5, 7, dim, dtype=dtype, count=2)
    weight, bias = leaves(dim, count=2, seed=2)
    inputs = x, y, weight, bias
    wanted = exact(*inputs)
    mask = factors(x.shape, probability)
    output, _ = joined(*inputs, 1e-5, probability)
    expected = F.layer_norm(wanted[0] + wanted[1] * mask, (dim,), *wanted[2:])
    assert output.dtype == dtype
    assert_alike(output, inputs, expected, wanted, EXACT[dtype])


@pytest.mark.parametrize("probability", [0.0, 0.3])
def test_a_wide_stream_is_joined_by_a_narrow_branch_in_the_precision_of_the_branch(probability):
    x, y = leaves(9, 48), leaves(9, 48, dtype=torch.bfloat16, seed=3)
    inputs = x, y, *leaves(48, count=2, seed=2)
    wanted = exact(*inputs)
    mask = factors(x.shape, probability)
    output, _ = joined(*inputs, 1e-5, probability)
    assert output.dtype == torch.bfloat16
    expected = F.layer_norm(wanted[0] + wanted[1] * mask, (48,), *wanted[2:])
    assert_alike(output, inputs, expected, wanted, EXACT[torch.bfloat16])


@pytest.mark.parametrize("readers", [(1.0, 1.0), (1.0, 0.0), (0.0, 1.0)])
def test_the_gradients_of_two_readers_are_added(readers):
    x, y = leaves(9, 48, count=2)
    inputs = x, y, *leaves(48, count=2, seed=2)
    wanted = exact(*inputs)
    expected = F.layer_norm(wanted[0] + wanted[1] * factors(x.shape, 0.3), (48,), *wanted[2:])
    both = joined(*inputs, 1e-5, 0.3)
    assert torch.equal(*both)
    maps = leaves(9, 48, count=2, seed=4)
    read = sum((each * one).sum() for each, one, reader in zip(both, maps, readers, strict=True) if reader)
    wished = sum((expected * one * reader).sum() for one, reader in zip(maps, readers, strict=True))
    gradients = torch.autograd.grad(read, inputs)
    for mine, other in zip(gradients, torch.autograd.grad(wished, wanted), strict=True):
        assert distance(mine, other) < 1e-6


def test_a_stream_far_from_zero_keeps_its_variance():
    x, y = leaves(3, 64, count=2)
    shifted = (x + 1000).detach().requires_grad_()
    weight, bias = leaves(64, count=2, seed=2)
    expected = F.layer_norm(shifted.double() + y.double(), (64,), weight.double(), bias.double())
    assert distance(joined(shifted, y, weight, bias, 1e-5, 0.0)[0], expected) < 1e-4


@pytest.mark.parametrize(("given", "asked"), list(product([torch.float32, torch.bfloat16], repeat=2)))
def test_normalising_equals_the_norm_in_the_precision_asked_for(given, asked):
    inputs = leaves(11, 130, dtype=given), *leaves(130, count=2, seed=2)
    wanted = exact(*inputs)
    output = normalised(*inputs, 1e-5, asked)
    assert output.dtype == asked
    within = EXACT[torch.bfloat16 if torch.bfloat16 in (given, asked) else torch.float32]
    assert_alike(output, inputs, F.layer_norm(wanted[0], (130,), *wanted[1:]), wanted, within)


def test_more_rows_than_a_program_holds_give_the_gradients_of_all():
    inputs = leaves(1100, 8), *leaves(8, count=2, seed=2)
    wanted = exact(*inputs)
    expected = F.layer_norm(wanted[0], (8,), *wanted[1:])
    assert_alike(normalised(*inputs, 1e-5, torch.float32), inputs, expected, wanted, 1e-6)


@cases
def test_adding_equals_the_sum_with_what_is_left(dtype, dim, probability):
    x, y = leaves(5, 7, dim), leaves(5, 7, dim, dtype=dtype, seed=3)
    wanted = exact(x, y)
    mask = factors(x.shape, probability)
    output = added(x, y, probability)
    assert output.dtype == torch.float32
    assert_alike(output, (x, y), wanted[0] + wanted[1] * mask, wanted, EXACT[dtype])


@cases
def test_dropping_equals_multiplying_by_the_mask(dtype, dim, probability):
    x = leaves(5, 13, dim, dtype=dtype)
    wanted = exact(x)
    mask = factors(x.shape, probability)
    assert_alike(dropped(x, probability), (x,), wanted[0] * mask, wanted, EXACT[dtype])


@cases
def test_rectifying_equals_multiplying_the_positive_by_the_mask(dtype, dim, probability):
    x = leaves(5, 13, dim, dtype=dtype)
    wanted = exact(x)
    mask = factors(x.shape, probability)
    assert_alike(rectified(x, probability), (x,), wanted[0].relu() * mask, wanted, EXACT[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1, 3), (63, 64), (300, 130), (129, 1)])
def test_columns_are_summed_in_single_precision(dtype, shape):
    gradient = leaves(*shape, dtype=dtype).detach()
    sums = column_sums(gradient)
    assert sums.dtype == torch.float32
    assert distance(sums, gradient.double().sum(0)) < 1e-6
    turned = gradient.t().contiguous().t()
    assert distance(column_sums(turned), gradient.double().sum(0)) < 1e-6
    assert distance(column_sums(torch.cat((gradient, gradient), 1)[:, : shape[1]]), gradient.double().sum(0)) < 1e-6


@pytest.mark.parametrize("probability", [0.0, 0.3])
@pytest.mark.parametrize("shape", [(70, 130), (200, 48)])
def test_the_gradient_of_rectifying_comes_with_the_sums_of_its_columns(shape, probability):
    x, gradient = leaves(*shape, dtype=torch.bfloat16, count=2)
    result = rectified(x, probability)
    (expected,) = torch.autograd.grad(result, x, gradient.detach())
    below, sums = risen(gradient.detach(), result.detach(), probability)
    assert torch.equal(below, expected)
    unrounded = gradient.detach().double() * (result > 0) / (1 - probability)
    assert distance(sums, unrounded.sum(0)) < 1e-6


def test_the_share_of_dropped_elements_is_the_probability_and_the_rest_is_scaled():
    x = torch.ones(100_003, device=DEVICE)
    for probability in (0.1, 0.5):
        torch.manual_seed(1)
        result = dropped(x, probability)
        assert (result == 0).double().mean().item() == pytest.approx(probability, abs=0.008)
        assert result[result != 0].unique().tolist() == pytest.approx([1 / (1 - probability)])


def test_the_same_generator_state_gives_the_same_bits_and_the_next_draw_others():
    x, y = leaves(40, 48, dtype=torch.bfloat16, count=2)
    weight, bias = leaves(48, count=2, seed=2)

    def step():
        output, _ = joined(x, y, weight, bias, 1e-5, 0.3)
        return output, *torch.autograd.grad(output.sum(), (x, y, weight, bias))

    torch.manual_seed(1)
    first, second = step(), step()
    torch.manual_seed(1)
    assert all(torch.equal(*both) for both in zip(first, step(), strict=True))
    assert not torch.equal(first[0], second[0])


def test_without_dropout_both_branches_share_one_gradient():
    x, y = leaves(4, 16, count=2)
    gradients = torch.autograd.grad(joined(x, y, *leaves(16, count=2), 1e-5, 0.0)[0].sum(), (x, y))
    assert gradients[0].data_ptr() == gradients[1].data_ptr()


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_on_a_cpu_no_kernel_takes_part(norm, monkeypatch):
    monkeypatch.setattr(doors, "element_kernels", lambda: pytest.fail("the door was open"))
    residual = Residual(16, norm=norm, dropout=0.3)
    x, y = torch.randn(2, 4, 16)
    assert not fused_here(x, 0.3, True)
    torch.manual_seed(1)
    mask = doors.dropout_mask(y, 0.3)
    plain = F.layer_norm(x, (16,)) if norm == "pre" else x
    assert torch.equal(residual.enter(x), plain)
    total = torch.addcmul(x, y, mask)
    torch.manual_seed(1)
    assert torch.equal(residual.leave(x, y), total if norm == "pre" else F.layer_norm(total, (16,)))
    torch.manual_seed(1)
    assert torch.equal(Dropout(0.3).rectify(y), y.clamp_min(0) * mask)
    assert torch.equal(Norm(16)(x), F.layer_norm(x, (16,)))


class OnGpu(torch.Tensor):
    """A tensor that says it is on a GPU, to see which way it is sent."""

    is_cuda = True


def test_in_training_with_gradients_a_gpu_goes_through_the_kernels_and_otherwise_not(monkeypatch):
    monkeypatch.setattr(doors, "element_kernels", lambda: None)
    assert not fused_here(torch.zeros(3, 16).as_subclass(OnGpu), 0.3, True)
    monkeypatch.setattr(doors, "element_kernels", lambda: elements)
    x = torch.zeros(3, 16).as_subclass(OnGpu)
    assert fused_here(x, 0.3, True)
    assert fused_here(x, 0.0, True)
    assert not fused_here(x, 1.0, True)
    assert not fused_here(x, 0.3, False)
    assert not fused_here(x.double(), 0.3, True)
    with torch.no_grad():
        assert not fused_here(x, 0.3, True)
    assert doors.rows_fused_here(x, 0.3, True)
    assert not doors.rows_fused_here(torch.zeros(1, 8193).as_subclass(OnGpu), 0.3, True)

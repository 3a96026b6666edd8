"""The parts of a projection as views, and their gradients on the way back."""

import pytest
import torch

from headway.nn.attention.parts import side_by_side, together

HEADS, WIDTH = 2, 3


def projection(parts, *batch):
    return torch.randn(*batch, parts * HEADS * WIDTH, generator=torch.Generator().manual_seed(1)).requires_grad_()


class Handing(torch.autograd.Function):
    """Passes any tensors on and hands back the gradients it was given at the beginning."""

    @staticmethod
    def forward(ctx, gradients, *parts):
        ctx.gradients = gradients
        return sum(part.sum() for part in parts)

    @staticmethod
    def backward(ctx, pull):
        return None, *ctx.gradients


@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize("batch", [(5,), (2, 5)])
def test_parts_are_views_and_their_gradients_are_joined(parts, batch):
    x = projection(parts, *batch)
    pieces = side_by_side(x, parts, HEADS)
    plain = x.unflatten(-1, (parts, HEADS, WIDTH)).unbind(-3)
    for number, (piece, wanted) in enumerate(zip(pieces, plain, strict=True)):
        assert torch.equal(piece, wanted)
        assert piece.data_ptr() == x.data_ptr() + 4 * number * HEADS * WIDTH
    (got,) = torch.autograd.grad(sum((i + 1) * (piece**2).sum() for i, piece in enumerate(pieces)), x)
    (wanted,) = torch.autograd.grad(sum((i + 1) * (piece**2).sum() for i, piece in enumerate(plain)), x)
    assert torch.equal(got, wanted)


@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize("batch", [(5,), (2, 5)])
def test_gradients_that_lie_side_by_side_are_passed_on_as_they_lie(parts, batch, monkeypatch):
    x = projection(parts, *batch)
    buffer = torch.randn(*batch, parts, HEADS, WIDTH)
    loss = Handing.apply(buffer.unbind(-3), *side_by_side(x, parts, HEADS))
    monkeypatch.setattr(torch, "stack", None)
    (got,) = torch.autograd.grad(loss, x)
    assert got.data_ptr() == buffer.data_ptr()
    assert torch.equal(got, buffer.flatten(-3))


def strangers():
    """Three gradients each that do not lie side by side, whatever else they do."""
    buffer, wider = torch.randn(5, 3, HEADS, WIDTH), torch.randn(5, 4, HEADS, WIDTH)
    apart = [torch.randn(5, HEADS, WIDTH) for _ in range(3)]
    one, two, three = buffer.unbind(1)
    return {
        "three tensors": apart,
        "another order": [two, one, three],
        "the same one twice": [one, two, two],
        "a copy among them": [one, two.clone(), three],
        "part of something wider": list(wider.unbind(1)[:3]),
        "one after the other": list(torch.randn(3, 5, HEADS, WIDTH).unbind(0)),
        "heads within features": list(torch.randn(5, 3, WIDTH, HEADS).transpose(-2, -1).unbind(1)),
        "one number for all": [torch.ones(()).expand(5, HEADS, WIDTH)] * 3,
        "one missing": [one, None, three],
    }


@pytest.mark.parametrize("kind", list(strangers()))
def test_gradients_that_lie_otherwise_are_joined_and_missing_ones_are_zero(kind):
    gradients = strangers()[kind]
    x = projection(3, 5)
    (got,) = torch.autograd.grad(Handing.apply(gradients, *side_by_side(x, 3, HEADS)), x)
    wanted = torch.stack([torch.zeros(5, HEADS, WIDTH) if part is None else part for part in gradients], 1)
    assert torch.equal(got, wanted.flatten(1))
    if None not in gradients:
        assert together(gradients) is None


def test_parts_that_nobody_used_get_zeros():
    x = projection(3, 5)
    _, middle, _ = side_by_side(x, 3, HEADS)
    middle.sum().backward()
    grad = x.grad.unflatten(-1, (3, HEADS, WIDTH))
    assert (grad[:, 1] == 1).all()
    assert (grad[:, [0, 2]] == 0).all()


def test_gradients_add_up_over_two_passes_without_touching_each_other():
    x = projection(2, 5)
    for _ in range(2):
        first, second = side_by_side(x, 2, HEADS)
        buffer = torch.ones(5, 2, HEADS, WIDTH)
        Handing.apply(buffer.unbind(1), first, second).backward()
    assert (x.grad == 2).all()


def test_without_a_gradient_to_come_nothing_is_recorded():
    x = projection(2, 5)
    with torch.no_grad():
        assert all(part.grad_fn is None for part in side_by_side(x, 2, HEADS))
    assert all(part.grad_fn is None for part in side_by_side(x.detach(), 2, HEADS))


def test_gradients_of_gradients_are_right():
    x = projection(2, 3).detach().double().requires_grad_()

    def mixed(x):
        first, second = side_by_side(x, 2, HEADS)
        return first.sin() * second

    assert torch.autograd.gradcheck(mixed, x)
    assert torch.autograd.gradgradcheck(mixed, x)

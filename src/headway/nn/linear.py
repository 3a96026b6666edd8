"""Linear maps, and their weights in low precision: copied once a pass, all together."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from headway.nn.dropout import element_kernels, rectify_dropped

EVERY = slice(None)


class Linear(nn.Linear):
    """A linear map, all or some of its outputs; inside `lowered` it multiplies in low precision.

    The gradients of its weights are then sums in single precision that were never rounded.
    """

    _low: tuple[Tensor, Tensor] | None = None
    _halves: tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]] | None = None

    def forward(self, x: Float[Tensor, "*batch inputs"], outputs: slice = EVERY) -> Float[Tensor, "*batch outputs"]:
        """Map `x` to the chosen outputs."""
        every = outputs == EVERY
        if self._low is None:
            weight, bias = (self.weight, self.bias) if every else (self.weight[outputs], self.bias[outputs])
            return F.linear(x, weight, bias)
        weights = (self.weight, self.bias) if every else self._half(outputs)
        low = (each[outputs] for each in self._low)
        return _LowProduct.apply(x, *weights, *low, None)  # type: ignore[no-untyped-call]  # as torch left it

    def _half(self, outputs: slice) -> tuple[Tensor, Tensor]:
        """The weights of the outputs before or after a place, which is one and the same in a pass."""
        if not torch.is_grad_enabled():  # what has no gradient must not serve a pass that needs one
            return self.weight[outputs], self.bias[outputs]
        if self._halves is None:
            place = outputs.stop if outputs.start is None else outputs.start
            first, second, *biases = _Halves.apply(self.weight, self.bias, place)  # type: ignore[no-untyped-call]  # as torch left it
            self._halves = (first, biases[0]), (second, biases[1])
        return self._halves[outputs.start is not None]

    def rectified(self, x: Float[Tensor, "*batch inputs"], probability: float) -> Float[Tensor, "*batch outputs"]:
        """What is left of max(0, what `x` is mapped to) after dropout."""
        if self._low is None:
            return rectify_dropped(F.linear(x, self.weight, self.bias), probability, training=True)
        return _LowProduct.apply(x, self.weight, self.bias, *self._low, probability)  # type: ignore[no-untyped-call]  # as torch left it


@contextmanager
def lowered(model: nn.Module, precision: torch.dtype) -> Iterator[None]:
    """While inside, multiply by copies of the weights in this precision, all made in one go."""
    maps = [module for module in model.modules() if isinstance(module, Linear)]
    weights = [weight.detach() for module in maps for weight in (module.weight, module.bias)]
    copies = [torch.empty_like(weight, dtype=precision) for weight in weights]
    torch._foreach_copy_(copies, weights)
    try:
        for module, weight, bias in zip(maps, copies[::2], copies[1::2], strict=True):
            module._low = weight, bias
        yield
    finally:
        for module in maps:
            module._low = module._halves = None


def as_lowered(layer: nn.Module) -> Callable[[], AbstractContextManager[None]]:
    """Remember in what precision the maps of a layer multiply now; inside what is returned they do so again."""
    maps = [(module, module._low) for module in layer.modules() if isinstance(module, Linear)]

    @contextmanager
    def again() -> Iterator[None]:
        before = [(module, module._low, module._halves) for module, _ in maps]
        try:
            for module, low in maps:
                module._low = low
            yield
        finally:
            for module, low, halves in before:
                module._low, module._halves = low, halves

    return again


class _Halves(torch.autograd.Function):
    """The rows of a matrix and of its bias, those before a place and those after: joined once on the way back."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor, place: int) -> tuple[Tensor, ...]:
        del ctx
        return weight[:place], weight[place:], bias[:place], bias[place:]

    @staticmethod
    @once_differentiable
    def backward(_: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        return torch.cat(gradients[:2]), torch.cat(gradients[2:]), None


class _LowProduct(torch.autograd.Function):
    """A product in low precision, and with a probability also what a rectifier and dropout leave of it."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        low_weight: Tensor,
        low_bias: Tensor,
        probability: float | None,
    ) -> Tensor:
        del weight, bias  # what the gradients are of
        rows = x.reshape(-1, x.shape[-1]).to(low_weight.dtype)
        product = torch._addmm_activation if probability == 0.0 else torch.addmm  # the first rectifies as it goes
        mapped = product(low_bias, rows, low_weight.t())
        if probability:
            kernels = element_kernels() if mapped.is_cuda else None
            fused = None if kernels is None else kernels.rectified(mapped, probability)
            mapped = rectify_dropped(mapped, probability, training=True) if fused is None else fused
        ctx.save_for_backward(rows, low_weight, None if probability is None else mapped)
        ctx.precision, ctx.probability = x.dtype, probability
        return mapped.view(*x.shape[:-1], len(low_bias))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight, rectified = ctx.saved_tensors
        slope = gradient.reshape(-1, gradient.shape[-1])
        if rectified is None:
            to_bias = column_sums(slope)
        else:
            slope, to_bias = risen(slope, rectified, ctx.probability)
        to_x = None
        if ctx.needs_input_grad[0]:
            to_x = torch.mm(slope, weight).view(*gradient.shape[:-1], weight.shape[1]).to(ctx.precision)
        to_weight = widely(slope.t(), rows) if ctx.needs_input_grad[1] else None
        return to_x, to_weight, to_bias, None, None, None


def column_sums(x: Float[Tensor, "rows outputs"]) -> Float[Tensor, " outputs"]:
    """The sum of every column in single precision."""
    kernels = element_kernels() if x.is_cuda else None
    return x.sum(0, dtype=torch.float32) if kernels is None else kernels.column_sums(x)


def risen(
    gradient: Float[Tensor, "rows outputs"], result: Float[Tensor, "rows outputs"], probability: float
) -> tuple[Float[Tensor, "rows outputs"], Float[Tensor, " outputs"]]:
    """The gradient before a rectifier and dropout, of that after them, and the sum of its columns."""
    kernels = element_kernels() if gradient.is_cuda else None
    if kernels is not None:
        slope, sums = kernels.risen(gradient, result, probability)
        return slope, sums
    slope = torch.ops.aten.threshold_backward(gradient, result, 0) / (1.0 - probability)
    return slope, column_sums(slope)


def widely(
    left: Float[Tensor, "outputs tokens"], right: Float[Tensor, "tokens inputs"]
) -> Float[Tensor, "outputs inputs"]:
    """Their product in single precision, whatever theirs: sums that are never rounded."""
    if left.dtype == torch.float32 or not left.is_cuda:
        return torch.mm(left.float(), right.float())
    product: Tensor = torch.mm(left, right, out_dtype=torch.float32)
    return product

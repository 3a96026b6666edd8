"""`attend`: scaled dot-product attention (equation 1), the one door to every kernel."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from inspect import signature
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from headway.nn.attention.dropping import attention_with_dropout
from headway.nn.attention.restricted import attend_restricted
from headway.nn.attention.restricted import serves as restricted_serves
from headway.nn.attention.visibility import Segments, Visible
from headway.nn.compiling import compiles
from headway.nn.dropout import dropout
from headway.nn.positions import Bias
from headway.sequences import Sequences


class Attended(NamedTuple):
    """What attention gives: the mixed values, and the weights that mixed them if they were asked for."""

    output: Float[Tensor, "*batch query heads width"]
    weights: Float[Tensor, "sentences heads query key"] | None


def attend(
    query: Float[Tensor, "*batch query heads width"],
    key: Float[Tensor, "*batch key heads width"],
    value: Float[Tensor, "*batch key heads width"],
    visible: Visible,
    bias: Bias | None = None,
    *,
    drop: float = 0.0,
    need_weights: bool = False,
) -> Attended:
    """Mix the values each query may see by softmax(q·k/√width + bias).

    A query that sees nothing gets zeros. The weights come padded, one matrix a sentence, before dropout.
    """
    special = None if need_weights else _special(query, key, value, visible, bias, drop)
    if special is not None:
        return Attended(special, None)
    if visible.segments is not None:
        padded = attend(
            visible.segments.pad_queries(query),
            visible.segments.pad_keys(key),
            visible.segments.pad_keys(value),
            visible.padded(),
            bias,
            drop=drop,
            need_weights=need_weights,
        )
        return Attended(visible.segments.pack_queries(padded.output), padded.weights)
    plain = bias is None and visible.added is None and not need_weights and query.dim() == 4
    if drop > 0.0 and plain and query.device.type == "cpu":
        return Attended(_dropping(query, key, value, visible, drop), None)
    added = None
    if bias is not None:
        added = bias(query, visible.distances(query.shape[-3], key.shape[-3], query.device))
    query, key, value = query.transpose(-3, -2), key.transpose(-3, -2), value.transpose(-3, -2)
    if need_weights or (drop > 0.0 and query.device.type == "cpu"):
        return _explicit(query, key, value, visible, added, drop)
    return Attended(_fused(query, key, value, visible, added, drop), None)


def _special(
    query: Float[Tensor, "*batch query heads width"],
    key: Float[Tensor, "*batch key heads width"],
    value: Float[Tensor, "*batch key heads width"],
    visible: Visible,
    bias: Bias | None,
    drop: float,
) -> Float[Tensor, "*batch query heads width"] | None:
    """The kernels for one kind of visibility each, or None where none of them serves."""
    if bias is None and visible.segments is not None:
        packed = _packed(query, key, value, visible, drop)
        if packed is not None:
            return packed
    if bias is None and _side_by_side(query, key, visible):
        rows, (asked, known, held) = _rows(query), (x.flatten(0, 1) for x in (query, key, value))
        packed = _packed(asked, known, held, replace(visible, segments=Segments(rows, rows)), drop)
        if packed is not None:
            return packed.unflatten(0, query.shape[:2])
    if restricted_serves(query, key, visible):
        return attend_restricted(query, key, value, visible, bias, drop=drop)
    if bias is None and drop == 0.0 and _few_serves(query, visible):
        output: Tensor = _few_kernel().attend_few(query, key, value, visible.added)
        return output
    return None


def _side_by_side(
    query: Float[Tensor, "*batch query heads width"], key: Float[Tensor, "*batch key heads width"], visible: Visible
) -> bool:
    """Whether these are sentences of which every position sees a window and no padding: as good as packed."""
    if visible.window is None or visible.keys is not None or visible.segments is not None:
        return False
    kernels = query.is_cuda or (_short_kernel() is not None and _short_kernel().ON_CPU)
    plain = kernels and visible.added is None and visible.distance is None
    return plain and query.dim() == 4 and query.shape == key.shape


def _rows(query: Float[Tensor, "batch query heads width"]) -> Sequences:
    """The rows of a batch as packed sentences, of whatever tokens."""
    batch, length = query.shape[:2]
    lengths = torch.full((batch,), length, device=query.device)
    return Sequences(lengths.new_zeros(batch * length), lengths, length, True)


def _packed(
    query: Float[Tensor, "query heads width"],
    key: Float[Tensor, "key heads width"],
    value: Float[Tensor, "key heads width"],
    visible: Visible,
    drop: float,
) -> Float[Tensor, "query heads width"] | None:
    """The kernels that take packed sentences as they lie, or None where none of them serves."""
    if _short_kernel() is not None and _short_kernel().serves(query, visible, drop):
        output: Tensor = _short_kernel().attend_short(query, key, value, visible, drop)
        return output
    return _packed_flash(query, key, value, visible) if drop == 0.0 and _flash_serves(query) else None


def _mask(visible: Visible, query: Tensor, key: Tensor) -> tuple[Tensor | None, Bool[Tensor, "..."] | None]:
    """The mask with a heads axis, to choose by or to add, and which of its rows are blind.

    A blind row is opened here and its result set to zero later: softmax over nothing would be NaN forwards, and NaN
    in a gradient survives being multiplied by zero.
    """
    if visible.added is not None:
        return visible.added.to(query.dtype), None
    allowed = visible.allowed(query.shape[-2], key.shape[-2], query.device)
    if allowed is None:
        return None, None
    allowed = allowed.unsqueeze(-3)
    blind = ~allowed.any(-1, keepdim=True)
    return allowed | blind, blind


def _masked(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask


def _fused(
    query: Float[Tensor, "*batch heads query width"],
    key: Float[Tensor, "*batch heads key width"],
    value: Float[Tensor, "*batch heads key width"],
    visible: Visible,
    bias: Tensor | None,
    drop: float,
) -> Float[Tensor, "*batch query heads width"]:
    """PyTorch's fused kernels."""
    plain_causal = (
        visible.causal
        and bias is None
        and visible.keys is None
        and visible.window is None
        and visible.added is None
        and query.shape[-2] == key.shape[-2]
    )
    if plain_causal:
        output = F.scaled_dot_product_attention(query, key, value, dropout_p=drop, is_causal=True)
        return output.transpose(-3, -2)
    mask, blind = _mask(visible, query, key)
    scores = mask
    if bias is not None:
        scores = bias if mask is None else _masked(bias, mask)
    output = F.scaled_dot_product_attention(query, key, value, attn_mask=scores, dropout_p=drop)
    if blind is not None:
        output = output.masked_fill(blind, 0.0)
    return output.transpose(-3, -2)


def _dropping(
    query: Float[Tensor, "batch query heads width"],
    key: Float[Tensor, "batch key heads width"],
    value: Float[Tensor, "batch key heads width"],
    visible: Visible,
    drop: float,
) -> Float[Tensor, "batch query heads width"]:
    """Our own kernel for dropout on a CPU."""
    mask, blind = _mask(visible, query.transpose(1, 2), key.transpose(1, 2))
    allowed = None if mask is None else mask.squeeze(-3).expand(1 if mask.dim() == 3 else len(mask), -1, -1)
    output, _ = attention_with_dropout(query, key, value, allowed, drop)
    return output if blind is None else output.masked_fill(blind.transpose(-3, -2), 0.0)


def _explicit(
    query: Float[Tensor, "*batch heads query width"],
    key: Float[Tensor, "*batch heads key width"],
    value: Float[Tensor, "*batch heads key width"],
    visible: Visible,
    bias: Tensor | None,
    drop: float,
) -> Attended:
    """The same in plain sight: the slow twin of every kernel, and the way to the weights."""
    scores = (query / math.sqrt(query.shape[-1])) @ key.transpose(-2, -1)
    if bias is not None:
        scores = scores + bias
    mask, blind = _mask(visible, query, key)
    if mask is not None:
        scores = _masked(scores, mask)
    weights = scores.softmax(-1)
    if blind is not None:
        weights = weights.masked_fill(blind, 0.0)
    output = dropout(weights, drop, training=True) @ value
    return Attended(output.transpose(-3, -2), weights)


@cache
def _few_kernel() -> Any:
    """The module of our kernel for a step of decoding, or None where Triton is not installed."""
    try:
        from headway.nn.attention import few
    except ImportError:
        return None
    return few


def _few_serves(query: Tensor, visible: Visible) -> bool:
    """Whether these are the queries of a decoding step on a GPU, each of which sees a key, and nobody will learn."""
    ready = visible.keys is None and visible.window is None and not visible.causal and visible.segments is None
    if not (ready and query.is_cuda) or torch.is_grad_enabled() or not compiles():
        return False
    return bool(_few_kernel().serves(query))


@cache
def _short_kernel() -> Any:
    """The module of our kernel for short packed sentences, or None where Triton is not installed."""
    try:
        from headway.nn.attention import short
    except ImportError:
        return None
    return short


@cache
def _variable_length_kernel() -> Callable[..., Any] | None:
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    # Torch 2.10 has the kernel without windows, hence without a right edge to ask for.
    return varlen_attn if "window_size" in signature(varlen_attn).parameters else None


def _flash_serves(query: Tensor) -> bool:
    """Whether the packed flash kernel takes these queries: in half precision, of a width and on a GPU it knows."""
    if not query.is_cuda or query.dtype not in (torch.bfloat16, torch.float16):
        return False
    width, ampere = query.shape[-1], (8, 0)
    fits = width % 8 == 0 and width <= 256 and torch.cuda.get_device_capability(query.device) >= ampere
    return fits and _variable_length_kernel() is not None


def _packed_flash(
    query: Float[Tensor, "query heads width"],
    key: Float[Tensor, "key heads width"],
    value: Float[Tensor, "key heads width"],
    visible: Visible,
) -> Float[Tensor, "query heads width"]:
    segments, kernel = visible.segments, _variable_length_kernel()
    assert segments is not None and kernel is not None  # attend has asked
    side = -1 if visible.window is None else visible.window
    output: Tensor = kernel(
        query,
        key,
        value,
        segments.queries.bounds,
        segments.keys.bounds,
        segments.queries.longest,
        segments.keys.longest,
        window_size=(side, 0 if visible.causal else side),
    )
    return output

"""The likeliest next tokens of every row, in an order that is the same on every device and in every batch."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

SHIFT = 6
GROUP = 1 << SHIFT
"""Tokens looked at as one before they are looked at singly."""

SMALL = 1 << 16
"""So few merits are looked at one by one."""


def best(
    merits: Float[Tensor, "batch beam vocabulary"], count: int
) -> tuple[Float[Tensor, "batch beam candidates"], Int[Tensor, "batch beam candidates"]]:
    """The `count` tokens of highest merit in each row, best first; of equals, the lower id first.

    A vocabulary smaller than `count` is returned whole. The best `count` tokens are all in the `count` groups with the
    highest maxima, so that only those are ranked token by token.
    """
    vocabulary = merits.shape[-1]
    count = min(count, vocabulary)
    groups = vocabulary // GROUP
    if groups <= 2 * count:
        ids = torch.arange(vocabulary, device=merits.device).expand(merits.shape)
        return _ranked(merits, ids, count)
    body = merits[..., : groups * GROUP].unflatten(-1, (groups, GROUP))
    if merits.device.type == "cpu" and groups * GROUP == vocabulary:
        untied = _untied(body, count)
        if untied is not None:
            return untied
    numbers = torch.arange(groups, device=merits.device)
    chosen = _keys(body.amax(-1), numbers).topk(count, -1, sorted=False).indices
    inside = body.gather(-2, chosen[..., None].expand(*chosen.shape, GROUP)).flatten(-2)
    ids = (chosen[..., None] * GROUP + torch.arange(GROUP, device=merits.device)).flatten(-2)
    if groups * GROUP < vocabulary:
        rest = torch.arange(groups * GROUP, vocabulary, device=merits.device)
        inside = torch.cat((inside, merits[..., groups * GROUP :]), -1)
        ids = torch.cat((ids, rest.expand(*ids.shape[:-1], -1)), -1)
    return _ranked(inside, ids, count)


def _untied(
    body: Float[Tensor, "batch beam groups group"], count: int
) -> tuple[Float[Tensor, "batch beam candidates"], Int[Tensor, "batch beam candidates"]] | None:
    """The same in fewer steps, where no two merits that matter are equal; elsewhere None."""
    peaks = body.amax(-1).topk(count + 1, -1)
    chosen = peaks.indices[..., :count]
    inside = body.gather(-2, chosen[..., None].expand(*chosen.shape, GROUP)).flatten(-2)
    values, places = inside.topk(count + 1, -1)
    equal = (values[..., 1:] == values[..., :-1]).any() or (peaks.values[..., -1] == peaks.values[..., -2]).any()
    if equal:
        return None
    places = places[..., :count]
    return values[..., :count], chosen.gather(-1, places >> SHIFT) * GROUP + (places & (GROUP - 1))


def top(
    merits: Float[Tensor, "batch vocabulary"],
) -> tuple[Float[Tensor, "batch 1"], Int[Tensor, "batch 1"]]:
    """The token of highest merit in each row; of equals, the one with the lower id."""
    groups = merits.shape[-1] // GROUP
    if merits.numel() < SMALL or groups * GROUP < merits.shape[-1]:
        return merits.max(-1, keepdim=True)
    body = merits.unflatten(-1, (groups, GROUP))
    group = body.amax(-1).max(-1, keepdim=True).indices
    value, place = body.gather(1, group[..., None].expand(-1, -1, GROUP))[:, 0].max(-1, keepdim=True)
    return value, group * GROUP + place


def _ranked(merits: Tensor, ids: Tensor, count: int) -> tuple[Tensor, Tensor]:
    order = _keys(merits, ids).topk(count, -1).indices
    return merits.gather(-1, order), ids.gather(-1, order)


def _keys(merits: Float[Tensor, "*rows"], ids: Int[Tensor, "*shape"]) -> Int[Tensor, "*rows"]:
    """Whole numbers, no two alike, in the order of merit and, among equals, against the order of ids."""
    bits = merits.contiguous().view(torch.int32)
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # floats order as sign and magnitude, whole numbers do not
    return ordered.long() * (1 << 31) - ids

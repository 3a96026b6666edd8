"""The likeliest next tokens of every row, brought to the host in a reproducible order."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headway.errors import HeadwayError


def shortlist(
    log_probabilities: Float[Tensor, "rows vocabulary"], count: int, forbidden: Sequence[int] = ()
) -> tuple[Float[Tensor, "rows candidates"], Int[Tensor, "rows candidates"]]:
    """The `count` best tokens of each row, best first, as log-probabilities and ids; forbidden ones become impossible.

    Equal log-probabilities rank by the lower id on every device. A vocabulary smaller than `count` is returned whole.
    """
    vocabulary = log_probabilities.shape[1]
    depth = min(count + len(forbidden), vocabulary)  # so deep that `count` allowed tokens must be among them
    best = log_probabilities.topk(min(depth + 1, vocabulary), dim=1)  # one more, to see a tie across the cut
    values, tokens = best.values.cpu().double(), best.indices.cpu()
    if values.isnan().any():  # topk ranks NaN first, so none can hide further down
        raise HeadwayError("search: the model gave a probability that is not a number; check its weights for NaN")
    if depth < vocabulary:
        _settle_ties(log_probabilities, depth, values, tokens)
    if forbidden:
        values = values.masked_fill(torch.isin(tokens, torch.tensor(forbidden)), -torch.inf)
    tokens, order = tokens.sort(dim=1)
    values, ranked = values.gather(1, order).sort(dim=1, descending=True, stable=True)
    return values[:, :count], tokens.gather(1, ranked)[:, :count]


def _settle_ties(
    log_probabilities: Float[Tensor, "rows vocabulary"],
    depth: int,
    values: Float[Tensor, "rows candidates"],
    tokens: Int[Tensor, "rows candidates"],
) -> None:
    """Choose again, by lower id, in rows where equal values stand on both sides of the cut: topk picks any of them."""
    tied = (values[:, depth - 1] == values[:, depth]) & (values[:, depth] > -torch.inf)
    if tied.any():  # rare, and a stable sort of the whole vocabulary is slow
        rows = tied.nonzero()[:, 0]
        ranked = log_probabilities[rows.to(log_probabilities.device)].sort(dim=1, descending=True, stable=True)
        values[rows] = ranked.values[:, : depth + 1].cpu().double()
        tokens[rows] = ranked.indices[:, : depth + 1].cpu()

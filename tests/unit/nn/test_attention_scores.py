"""Every score against its formula, one query and one key at a time."""

import math

import pytest
import torch

from headway.nn.attention.scores import score_of

QUERY, KEY, HIDDEN = 6, 8, 5


def product(matrix, vector):
    return [sum(left * right for left, right in zip(row, vector, strict=True)) for row in matrix]


def naive(kind, score, query, key):
    """The formula in plain numbers."""
    weights = {name: weight.tolist() for name, weight in score.named_parameters()}
    if kind in ("dot", "scaled-dot"):
        (raw,) = product([query], key)
        return raw / math.sqrt(len(query)) if kind == "scaled-dot" else raw
    if kind == "multiplicative":
        return product([query], product(weights["key.weight"], key))[0]
    parts = product(weights["query.weight"], query), product(weights["key.weight"], key), weights["query.bias"]
    hidden = [math.tanh(sum(part)) for part in zip(*parts, strict=True)]
    if kind == "function":
        inner = product(weights["inner.weight"], hidden)
        hidden = [max(0.0, sum(part)) for part in zip(inner, weights["inner.bias"], strict=True)]
    return product([weights["weight"]], hidden)[0]


@pytest.mark.parametrize("kind", ["dot", "scaled-dot", "multiplicative", "additive", "function"])
def test_a_score_is_its_formula(kind):
    torch.manual_seed(1)
    wide = QUERY if "dot" in kind else KEY
    score = score_of(kind, query_dim=QUERY, key_dim=wide, hidden=HIDDEN)
    for weight in score.parameters():
        torch.nn.init.normal_(weight)  # biases too: zeros would hide their places
    queries, keys = torch.randn(2, 3, QUERY), torch.randn(2, 4, wide)
    got = score(queries, score.remember(keys))
    assert got.shape == (2, 3, 4)
    for sentence in range(2):
        for place, query in enumerate(queries[sentence].tolist()):
            wanted = [naive(kind, score, query, key) for key in keys[sentence].tolist()]
            torch.testing.assert_close(got[sentence, place], torch.tensor(wanted), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["dot", "multiplicative", "additive", "function"])
def test_one_query_may_serve_every_sentence(kind):
    torch.manual_seed(1)
    score = score_of(kind, query_dim=KEY, key_dim=KEY, hidden=HIDDEN)
    query, keys = torch.randn(1, KEY), score.remember(torch.randn(3, 4, KEY))
    torch.testing.assert_close(score(query, keys), score(query.expand(3, 1, KEY), keys))


def test_the_concatenation_of_luong_is_the_additive_score():
    torch.manual_seed(1)
    score = score_of("additive", query_dim=QUERY, key_dim=KEY, hidden=HIDDEN)
    query, key = torch.randn(1, 1, QUERY), torch.randn(1, 1, KEY)
    both = torch.cat([score.query.weight, score.key.weight], 1)
    concatenated = torch.tanh(torch.cat([query, key], -1) @ both.t()) @ score.weight
    torch.testing.assert_close(score(query, score.remember(key)).squeeze(), concatenated.squeeze())


@pytest.mark.parametrize("kind", ["dot", "scaled-dot"])
def test_products_of_unequal_vectors_are_refused(kind):
    with pytest.raises(ValueError, match="one size, not 6 and 8"):
        score_of(kind, query_dim=QUERY, key_dim=KEY, hidden=HIDDEN)

"""The kernel for short packed sentences on a GPU, at the sizes of training, against the explicit path."""

import math

import pytest
import torch

from headway.nn.attention import Visible, attend
from headway.nn.attention.parts import side_by_side
from headway.sequences import Sequences

pytest.importorskip("triton")

from headway.nn.attention import short
from headway.nn.chance import draws, threshold

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
TYPES = {torch.float32: 1e-5, torch.float16: 3e-3, torch.bfloat16: 2e-2}


def lengths_of(sentences, seed=1):
    """Lengths as sentences have them, some of them empty, one of them long."""
    drawn = torch.randn(sentences, generator=torch.Generator().manual_seed(seed)) * 0.55 + 3.05
    lengths = drawn.exp().round().clamp(3, 120).int().tolist()
    lengths[seed], lengths[10 + seed], lengths[20 + seed] = 0, 0, 300
    return lengths


def packed_of(lengths):
    return Sequences.pack([[7] * length for length in lengths]).to("cuda")


def randoms(*shape, seed=1):
    generator = torch.Generator("cuda").manual_seed(seed + sum(shape))
    return torch.randn(*shape, generator=generator, device="cuda")


def distance(got, wanted):
    return ((got.double() - wanted.double()).norm() / wanted.double().norm()).item()


def outcome(function, inputs, dtype):
    """The output and the gradient of every input, for a direction that is the same for all functions."""
    leaves = [x.detach().to(dtype).requires_grad_() for x in inputs]
    output = function(*leaves)
    return [output.detach(), *torch.autograd.grad(output, leaves, randoms(*output.shape, seed=9).to(dtype))]


def sides(kind, heads, width, sentences=200):
    """Who sees whom, one projection or two, and the parts of these."""
    queries, keys = lengths_of(sentences), lengths_of(sentences, seed=2)
    dim = heads * width
    if kind == "cross":
        visible = Visible.between(packed_of(queries), packed_of(keys))
        return visible, [randoms(sum(queries), dim), randoms(sum(keys), 2 * dim)]
    mine = packed_of(queries)
    return Visible.between(mine, mine, causal=kind == "causal"), [randoms(sum(queries), 3 * dim)]


def parts(inputs, heads):
    one, *two = inputs
    return (*side_by_side(one, 1, heads), *side_by_side(two[0], 2, heads)) if two else side_by_side(one, 3, heads)


@pytest.mark.parametrize("kind", ["self", "causal", "cross"])
@pytest.mark.parametrize(("heads", "width"), [(2, 16), (4, 32), (8, 64), (2, 128)])
@pytest.mark.parametrize("dtype", list(TYPES))
def test_output_and_gradients_equal_the_explicit_path(kind, heads, width, dtype):
    visible, inputs = sides(kind, heads, width)
    inputs = [x.to(dtype) for x in inputs]
    got = outcome(lambda *x: short.attend_short(*parts(x, heads), visible), inputs, dtype)
    wanted = outcome(lambda *x: attend(*parts(x, heads), visible, need_weights=True).output, inputs, torch.float64)
    for mine, exact in zip(got, wanted, strict=True):
        assert mine.isfinite().all()
        assert distance(mine, exact) < TYPES[dtype]


def dropping(visible, drop, seed, heads):
    """Attention with the mask our random numbers give, over the padded batch in plain torch."""
    segments = visible.segments

    def function(*inputs):
        query, key, value = parts(inputs, heads)
        starts = segments.queries.bounds[:-1].long()[:, None, None, None]
        row = starts + torch.arange(segments.queries.longest, device="cuda")[:, None]
        row = row + torch.arange(heads, device="cuda")[:, None, None] * len(query)
        longest = max(segments.queries.longest, segments.keys.longest)
        kept = draws(seed, row * longest + torch.arange(segments.keys.longest, device="cuda")) >= threshold(drop)
        padded = segments.pad_queries(query), segments.pad_keys(key), segments.pad_keys(value)
        weights = attend(*padded, visible.padded(), need_weights=True).weights
        mixed = torch.einsum("bhqk,bkhw->bqhw", weights * kept / (1 - drop), padded[2])
        return segments.pack_queries(mixed)

    return function


@pytest.mark.parametrize("kind", ["self", "causal", "cross"])
@pytest.mark.parametrize(("heads", "width"), [(4, 32), (8, 64)])
@pytest.mark.parametrize("drop", [0.1, 0.7])
def test_dropout_drops_the_weights_our_random_numbers_choose_both_ways(kind, heads, width, drop, monkeypatch):
    seed = 3_000_000_007
    monkeypatch.setattr(short, "new_seed", lambda device: torch.tensor(seed, device=device))
    visible, inputs = sides(kind, heads, width, sentences=60)
    got = outcome(lambda *x: short.attend_short(*parts(x, heads), visible, drop), inputs, torch.float32)
    wanted = outcome(dropping(visible, drop, seed, heads), inputs, torch.float64)
    for mine, exact in zip(got, wanted, strict=True):
        assert distance(mine, exact) < 1e-5


def test_dropout_drops_its_share_and_keeps_the_expectation():
    torch.manual_seed(1)
    sentences = packed_of([32] * 200)
    query = torch.zeros(6400, 8, 64, device="cuda", dtype=torch.bfloat16)
    left = short.attend_short(query, query, torch.ones_like(query), Visible.between(sentences, sentences), 0.1)
    left = left[..., 0].float()
    assert left.mean().item() == pytest.approx(1.0, abs=2e-3)
    assert left.var().item() == pytest.approx(0.1 / 0.9 / 32, rel=0.1)


@pytest.mark.parametrize("drop", [0.0, 0.1])
def test_the_same_input_and_seed_give_the_same_bits(drop):
    visible, inputs = sides("causal", 8, 64, sentences=1000)

    def run():
        torch.manual_seed(1)
        return outcome(lambda *x: short.attend_short(*parts(x, 8), visible, drop), inputs, torch.bfloat16)

    first = run()
    for _ in range(5):
        assert all(torch.equal(one, other) for one, other in zip(first, run(), strict=True))


def test_a_captured_pass_repeats_itself_on_new_input_and_draws_new_masks():
    visible, (x,) = sides("causal", 4, 32)
    x = x.bfloat16()
    pull = torch.randn(len(x), 4, 32, device="cuda", dtype=torch.bfloat16)

    def both(drop):
        leaf = x.detach().requires_grad_()
        output = short.attend_short(*side_by_side(leaf, 3, 4), visible, drop)
        return output.detach(), torch.autograd.grad(output, leaf, pull)[0]

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        both(0.0), both(0.1)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plain, dropped = both(0.0), both(0.1)
    x.copy_(torch.randn_like(x))
    graph.replay()
    for captured, eager in zip(plain, both(0.0), strict=True):
        assert torch.equal(captured, eager)
    before = dropped[0].clone()
    graph.replay()
    assert not torch.equal(before, dropped[0])
    assert distance(dropped[0], plain[0]) < 1.0


def test_no_row_of_output_or_gradient_is_left_unwritten(monkeypatch):
    empty, empty_like = torch.empty, torch.empty_like
    monkeypatch.setattr(torch, "empty", lambda *shape, **kind: empty(*shape, **kind).fill_(math.nan))
    monkeypatch.setattr(torch, "empty_like", lambda x: empty_like(x).fill_(math.nan))
    for kind in ("self", "causal", "cross"):
        visible, inputs = sides(kind, 4, 32)
        got = outcome(lambda *x, sees=visible: short.attend_short(*parts(x, 4), sees, 0.0), inputs, torch.bfloat16)
        assert all(x.isfinite().all() for x in got)


def test_the_door_takes_the_kernel_for_short_sentences_with_and_without_dropout(monkeypatch):
    calls, kernel = [], short.attend_short
    monkeypatch.setattr(short, "attend_short", lambda *args: calls.append(args[-1]) or kernel(*args))
    monkeypatch.setattr(short, "LONGEST", 512)
    visible, inputs = sides("causal", 4, 32)
    query, key, value = parts([x.bfloat16() for x in inputs], 4)
    for drop in (0.0, 0.1):
        attend(query, key, value, visible, drop=drop)
    assert calls == [0.0, 0.1]

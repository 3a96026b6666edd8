"""The kernel for short packed sentences, interpreted on a CPU, against the explicit path in double precision."""

import math

import pytest
import torch

from headway.nn.attention import Visible, attend
from headway.nn.attention.parts import side_by_side
from headway.sequences import Sequences

pytest.importorskip("triton")

from headway.nn.attention import short
from headway.nn.chance import draws, threshold

pytestmark = pytest.mark.skipif(not short.INTERPRETED, reason="tests/gpu runs these kernels where there is a GPU")
EMPTY = [3, 0, 5, 2, 0]
FACING = [4, 0, 0, 1, 3]


def packed_of(lengths):
    return Sequences.pack([[7] * length for length in lengths])


def leaf(*shape, dtype=torch.float32, seed=1):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, generator=generator).to(dtype).requires_grad_()


def sides(queries, keys, heads=1, width=16, dtype=torch.float32):
    return [leaf(sum(side), heads, width, dtype=dtype, seed=i) for i, side in enumerate((queries, keys, keys))]


def outcome(function, leaves, dtype):
    """The output and the gradient of every leaf, for a direction that is the same for all functions."""
    copies = [x.detach().to(dtype).requires_grad_() for x in leaves]
    output = function(*copies)
    output.backward(leaf(*output.shape, seed=9).detach().to(output.dtype))
    return [output.detach(), *(x.grad for x in copies)]


def assert_like_the_explicit_path(queries, keys, *, causal=False, window=None, tolerance=3e-6, **kind):
    leaves = sides(queries, keys, **kind)
    visible = Visible.between(packed_of(queries), packed_of(keys), causal=causal, window=window)
    got = outcome(lambda *x: short.attend_short(*x, visible), leaves, leaves[0].dtype)
    wanted = outcome(lambda *x: attend(*x, visible, need_weights=True).output, leaves, torch.float64)
    for mine, exact in zip(got, wanted, strict=True):
        torch.testing.assert_close(mine.double(), exact, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("width", [16, 32, 64, 128])
def test_every_head_width_equals_the_explicit_path(width, causal):
    assert_like_the_explicit_path([4, 1], [4, 1], causal=causal, width=width, heads=2)


@pytest.mark.parametrize("causal", [False, True])
def test_sentences_of_many_tiles_equal_the_explicit_path(causal):
    assert_like_the_explicit_path([70, 32, 33], [70, 32, 33], causal=causal)


def test_a_sentence_longer_than_one_program_sees_to_equals_the_explicit_path(monkeypatch):
    monkeypatch.setattr(short, "REACH", 64)
    assert_like_the_explicit_path([150, 5], [150, 5], causal=True)


def test_tiles_of_unequal_sides_equal_the_explicit_path(monkeypatch):
    monkeypatch.setitem(short.FORWARDS, 16, short.Tiles(16, 32, 1))
    monkeypatch.setitem(short.WHOLE, 16, (short.Tiles(16, 16, 1), short.Tiles(32, 64, 1)))
    monkeypatch.setitem(short.TILED, 16, short.Tiles(16, 64, 1))
    assert_like_the_explicit_path([40, 70, 5, 20], [40, 70, 5, 20], causal=True)


@pytest.mark.parametrize(("queries", "keys"), [([2, 40], [35, 3]), ([5, 33], [2, 34])])
def test_two_sides_of_unequal_length_equal_the_explicit_path(queries, keys):
    assert_like_the_explicit_path(queries, keys)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [0, 3, 40])
def test_a_window_equals_the_explicit_path(window, causal):
    assert_like_the_explicit_path([50, 6], [50, 6], causal=causal, window=window)


def test_half_precision_is_close_to_the_explicit_path():
    assert_like_the_explicit_path([40, 6], [40, 6], dtype=torch.float16, tolerance=2e-3)


def test_empty_sentences_leave_zeros_and_no_row_unwritten(monkeypatch):
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *args, **kinds: empty(*args, **kinds).fill_(math.nan))
    monkeypatch.setattr(torch, "empty_like", lambda x: torch.full_like(x, math.nan))
    assert_like_the_explicit_path(EMPTY, FACING)
    assert_like_the_explicit_path(EMPTY, EMPTY, causal=True)
    visible = Visible.between(packed_of(EMPTY), packed_of(FACING))
    output, query, key, value = outcome(lambda *x: short.attend_short(*x, visible), sides(EMPTY, FACING), torch.float32)
    assert (output[3:8] == 0).all() and (query[3:8] == 0).all()
    assert (key[5:] == 0).all() and (value[5:] == 0).all()
    assert (output[:3] != 0).all() and (value[:5] != 0).all()


def test_causal_queries_left_of_every_key_are_blind_as_in_a_padded_batch():
    queries, keys = [6, 2], [4, 2]
    visible = Visible.between(packed_of(queries), packed_of(keys), causal=True)
    output, query, *_ = outcome(lambda *x: short.attend_short(*x, visible), sides(queries, keys), torch.float32)
    assert (output[:2] == 0).all() and (query[:2] == 0).all()
    assert (output[2:] != 0).all()


def test_enormous_scores_on_hidden_keys_never_reach_a_gradient():
    leaves = sides([5], [5])
    huge = torch.tensor([1.0, 1.0, 1.0, 1e18, 1e18])[:, None, None]
    visible = Visible.between(packed_of([5]), packed_of([5]), causal=True)
    output = short.attend_short(leaves[0], leaves[1] * huge, leaves[2], visible)
    output[:3].sum().backward()
    assert all(x.grad[:3].isfinite().all() for x in leaves)


def dropping(lengths, facing, drop, seed, heads, *, causal):
    """Attention sentence by sentence with the mask our random numbers give, in plain torch."""

    def function(query, key, value):
        outputs, first, begin = [], 0, 0
        for queries, keys in zip(lengths, facing, strict=True):
            q, k, v = query[first : first + queries], key[begin : begin + keys], value[begin : begin + keys]
            scores = torch.einsum("qhw,khw->hqk", q, k) / math.sqrt(q.shape[-1])
            if causal:
                scores = scores.masked_fill(torch.ones(queries, keys).triu(1).bool(), -math.inf)
            row = torch.arange(heads)[:, None, None] * sum(lengths) + first + torch.arange(queries)[:, None]
            index = row * max(*lengths, *facing) + torch.arange(keys)
            kept = draws(seed, index) >= threshold(drop)
            outputs.append(torch.einsum("hqk,khw->qhw", scores.softmax(-1) * kept / (1 - drop), v))
            first, begin = first + queries, begin + keys
        return torch.cat(outputs)

    return function


@pytest.mark.parametrize("drop", [0.1, 0.7])
@pytest.mark.parametrize(("queries", "keys", "causal"), [([5, 40], [5, 40], True), ([5, 34], [35, 3], False)])
def test_dropout_drops_the_weights_our_random_numbers_choose_both_ways(queries, keys, causal, drop, monkeypatch):
    monkeypatch.setattr(short, "new_seed", lambda _: torch.tensor(3_000_000_007))
    leaves = sides(queries, keys, heads=2)
    visible = Visible.between(packed_of(queries), packed_of(keys), causal=causal)
    got = outcome(lambda *x: short.attend_short(*x, visible, drop), leaves, torch.float32)
    wanted = outcome(dropping(queries, keys, drop, 3_000_000_007, 2, causal=causal), leaves, torch.float64)
    for mine, exact in zip(got, wanted, strict=True):
        torch.testing.assert_close(mine.double(), exact, rtol=1e-5, atol=1e-5)


def dropped_ones(drop, heads=8):
    """What is left of values that are all one under even weights: the share of weights kept, lifted."""
    lengths = [32] * 4
    visible = Visible.between(packed_of(lengths), packed_of(lengths))
    query = torch.zeros(sum(lengths), heads, 16)
    return short.attend_short(query, query, torch.ones_like(query), visible, drop)[:, :, 0]


def test_dropout_drops_its_share_and_keeps_the_expectation():
    torch.manual_seed(1)
    left = dropped_ones(0.3)
    weights = 4 * 8 * 32 * 32
    assert left.mean().item() == pytest.approx(1.0, abs=4 * math.sqrt(0.3 / 0.7 / weights))
    counts = (left * 32 * 0.7).round()
    assert counts.var().item() == pytest.approx(32 * 0.3 * 0.7, rel=0.2)
    torch.testing.assert_close(left, counts / (32 * 0.7))


def test_the_seed_of_torch_repeats_dropout_and_the_next_call_draws_anew():
    torch.manual_seed(1)
    first, second = dropped_ones(0.3, heads=1), dropped_ones(0.3, heads=1)
    torch.manual_seed(1)
    assert torch.equal(first, dropped_ones(0.3, heads=1))
    assert not torch.equal(first, second)


def test_the_same_input_gives_the_same_bits():
    visible = Visible.between(packed_of([40, 7]), packed_of([40, 7]), causal=True)
    runs = [
        outcome(lambda *x: short.attend_short(*x, visible), sides([40, 7], [40, 7]), torch.float32) for _ in range(2)
    ]
    assert all(torch.equal(one, other) for one, other in zip(*runs, strict=True))


@pytest.mark.parametrize("lengths", [[5, 2], [40]])
def test_gradients_of_one_projection_come_back_in_one_tensor_without_a_copy(lengths, monkeypatch):
    monkeypatch.setattr(torch, "stack", None)
    heads, width, tokens = 2, 16, sum(lengths)
    visible = Visible.between(packed_of(lengths), packed_of(lengths), causal=True)

    def together(x):
        return short.attend_short(*side_by_side(x, 3, heads), visible)

    def apart(x):
        return attend(*x.unflatten(-1, (3, heads, width)).unbind(-3), visible, need_weights=True).output

    x = [leaf(tokens, 3 * heads * width)]
    got, (wanted, exact) = outcome(together, x, torch.float32), outcome(apart, x, torch.float64)
    torch.testing.assert_close(got[0].double(), wanted, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(got[1].double(), exact, rtol=1e-5, atol=1e-5)


def test_gradients_of_keys_and_values_of_one_projection_come_back_in_one_tensor_without_a_copy(monkeypatch):
    monkeypatch.setattr(torch, "stack", None)
    visible = Visible.between(packed_of([5, 2]), packed_of([3, 9]))

    def crossing(x, memory):
        return short.attend_short(*side_by_side(x, 1, 2), *side_by_side(memory, 2, 2), visible)

    _, *slopes = outcome(crossing, [leaf(7, 32), leaf(12, 64)], torch.float32)
    assert all(slope.abs().sum() > 0 for slope in slopes)


def test_gradients_and_inputs_that_lie_anyhow_in_memory_are_taken():
    visible = Visible.between(packed_of([5, 2]), packed_of([5, 2]))

    def turned(query, key, value):
        shuffled = [x.permute(2, 1, 0).contiguous().permute(2, 1, 0) for x in (query, key, value)]
        output = short.attend_short(*shuffled, visible)
        return output.permute(2, 0, 1).contiguous()  # its gradient comes back with another last axis

    def plain(*x):
        return attend(*x, visible, need_weights=True).output.permute(2, 0, 1).contiguous()

    leaves = sides([5, 2], [5, 2], heads=2)
    got, wanted = outcome(turned, leaves, torch.float32), outcome(plain, leaves, torch.float64)
    for mine, exact in zip(got, wanted, strict=True):
        torch.testing.assert_close(mine.double(), exact, rtol=1e-5, atol=1e-5)


def test_the_door_takes_the_kernel_for_packed_sentences_and_not_where_weights_are_wanted(monkeypatch):
    monkeypatch.setattr(short, "ON_CPU", True)
    calls = []
    kernel = short.attend_short
    monkeypatch.setattr(short, "attend_short", lambda *args: calls.append(args[-1]) or kernel(*args))
    visible = Visible.between(packed_of([5, 2]), packed_of([5, 2]))
    leaves = sides([5, 2], [5, 2])
    output = attend(*leaves, visible).output
    assert calls == [0.0]
    torch.testing.assert_close(output, attend(*leaves, visible, need_weights=True).output)
    attend(*leaves, visible, drop=0.5)
    assert calls == [0.0, 0.5]


@pytest.mark.parametrize("causal", [False, True])
def test_the_door_takes_the_kernel_for_a_window_of_long_sentences_without_padding(causal, monkeypatch):
    monkeypatch.setattr(short, "ON_CPU", True)
    calls, kernel = [], short.attend_short
    monkeypatch.setattr(short, "attend_short", lambda *args: calls.append(args[0].shape) or kernel(*args))
    leaves = [leaf(2, 130, 2, 16, seed=seed) for seed in range(3)]
    monkeypatch.setattr(short, "LONGEST", 16)
    visible = Visible(causal=causal, window=7)
    got = outcome(lambda *x: attend(*x, visible).output, leaves, torch.float32)
    assert calls == [(260, 2, 16)]
    wanted = outcome(lambda *x: attend(*x, visible, need_weights=True).output, leaves, torch.float64)
    for mine, exact in zip(got, wanted, strict=True):
        torch.testing.assert_close(mine.double(), exact, rtol=3e-6, atol=3e-6)
    padded = Visible(torch.arange(130).expand(2, -1) < torch.tensor([[130], [4]]), causal=causal, window=7)
    for other in (Visible(causal=causal), Visible(causal=causal, window=17), padded):
        attend(*leaves, other)
    assert len(calls) == 1


def test_the_kernel_serves_what_it_can_and_leaves_long_sentences_without_dropout_to_others(monkeypatch):
    visible = Visible.between(packed_of([5, 2]), packed_of([5, 2]))
    query, *_ = sides([5, 2], [5, 2])
    assert not short.serves(query, visible, 0.0)
    monkeypatch.setattr(short, "ON_CPU", True)
    assert short.serves(query, visible, 0.0)
    assert not short.serves(query.double(), visible, 0.0)
    assert not short.serves(query[..., :12], visible, 0.0)
    assert not short.serves(query, Visible(), 0.0)
    monkeypatch.setattr(short, "LONGEST", 4)
    assert not short.serves(query, visible, 0.0)
    assert short.serves(query, visible, 0.1)

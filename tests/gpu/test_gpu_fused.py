"""The element-wise kernels of training at their real sizes, and inside a CUDA graph."""

import pytest
import torch
import torch.nn.functional as F

from headway.nn.attention import Visible
from headway.nn.dropout import Dropout, fused_here
from headway.nn.embedding import Embedding, embedded
from headway.nn.feedforward import FeedForward
from headway.nn.positions import SinusoidalPositions
from headway.nn.residual import Norm, Residual

pytest.importorskip("triton")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
SIZES = [(8192, 128), (25_600, 512), (999, 1024), (257, 130), (65, 8192)]
sizes = pytest.mark.parametrize(("rows", "dim"), SIZES)


def leaves(*shape, dtype=torch.bfloat16, count=1, seed=1):
    generator = torch.Generator("cuda").manual_seed(seed)
    made = [torch.randn(shape, generator=generator, device="cuda").to(dtype).requires_grad_() for _ in range(count)]
    return made if count > 1 else made[0]


def factors(shape, probability, seed=5):
    """What dropout will multiply by, the generator left as it will find it."""
    from headway.nn.chance import draws, new_seed, threshold

    torch.manual_seed(seed)
    drawn = draws(int(new_seed(torch.device("cuda"))), torch.arange(torch.Size(shape).numel(), device="cuda"))
    torch.manual_seed(seed)
    return (drawn.view(shape) >= threshold(probability)).double() / (1 - probability)


def distance(got, wanted):
    return ((got.double() - wanted.double()).norm() / wanted.double().norm()).item()


def assert_alike(output, inputs, expected, expected_inputs, within=1e-2):
    assert distance(output, expected) < within
    direction = leaves(*output.shape, dtype=output.dtype, seed=9).detach()
    gradients = torch.autograd.grad(output, inputs, direction)
    wanted = torch.autograd.grad(expected, expected_inputs, direction.double())
    for mine, other, leaf in zip(gradients, wanted, inputs, strict=True):
        assert mine.dtype == leaf.dtype
        assert distance(mine, other) < within


def exact(*tensors):
    return [each.detach().double().requires_grad_() for each in tensors]


@sizes
@pytest.mark.parametrize("probability", [0.0, 0.3])
def test_a_post_norm_residual_in_half_precision_equals_double_precision(rows, dim, probability):
    residual = Residual(dim, norm="post", dropout=probability).cuda()
    x, y = leaves(rows, dim, count=2)
    inputs = x, y, residual.norm.weight, residual.norm.bias
    wanted = exact(*inputs)
    mask = factors(x.shape, probability)
    with torch.autocast("cuda", torch.bfloat16):
        output = residual.leave(x, y)
    assert output.dtype == torch.bfloat16
    assert_alike(output, inputs, F.layer_norm(wanted[0] + wanted[1] * mask, (dim,), *wanted[2:]), wanted)


@sizes
def test_two_readers_of_a_post_norm_residual_have_their_gradients_added(rows, dim):
    residual = Residual(dim, norm="post", dropout=0.1).cuda()
    x, y = leaves(rows, dim, count=2)
    inputs = x, y, residual.norm.weight, residual.norm.bias
    wanted = exact(*inputs)
    mask = factors(x.shape, 0.1)
    one, other = residual.leave_twice(x, y)
    expected = F.layer_norm(wanted[0] + wanted[1] * mask, (dim,), *wanted[2:])
    given = leaves(rows, dim, count=2, seed=4)
    gradients = torch.autograd.grad((one, other), inputs, given)
    wished = torch.autograd.grad(expected, wanted, given[0].double() + given[1].double())
    assert all(distance(*both) < 1e-2 for both in zip(gradients, wished, strict=True))


@sizes
def test_a_pre_norm_residual_keeps_its_stream_wide_and_shows_it_narrow(rows, dim):
    residual = Residual(dim, norm="pre", dropout=0.3).cuda()
    x, y = leaves(rows, dim, dtype=torch.float32), leaves(rows, dim, seed=2)
    with torch.autocast("cuda", torch.bfloat16):
        shown = residual.enter(x)
        mask = factors(x.shape, 0.3)
        stream = residual.leave(x, y)
    assert shown.dtype == torch.bfloat16
    assert stream.dtype == torch.float32
    inputs = x, residual.norm.weight, residual.norm.bias
    wanted = exact(*inputs)
    assert_alike(shown, inputs, F.layer_norm(wanted[0], (dim,), *wanted[1:]), wanted)
    wanted = exact(x, y)
    assert_alike(stream, (x, y), wanted[0] + wanted[1] * mask, wanted)


def test_without_autocast_everything_stays_in_single_precision():
    x, y = leaves(300, 128, dtype=torch.float32, count=2)
    residual = Residual(128, norm="post", dropout=0.0).cuda()
    wanted = exact(x, y)
    assert_alike(residual.leave(x, y), (x, y), F.layer_norm(wanted[0] + wanted[1], (128,)), wanted, within=1e-6)
    assert Norm(128).cuda()(x).dtype == torch.float32


@pytest.mark.parametrize(("rows", "hidden"), [(8192, 256), (25_600, 2048), (3, 77)])
def test_rectifying_and_dropping_equal_double_precision(rows, hidden):
    x = leaves(rows, hidden)
    mask = factors(x.shape, 0.1)
    wanted = exact(x)
    assert_alike(Dropout(0.1).rectify(x), (x,), wanted[0].relu() * mask, wanted)
    mask = factors(x.shape, 0.1)
    assert_alike(Dropout(0.1)(x), (x,), wanted[0] * mask, wanted)


@pytest.mark.parametrize(("rows", "columns"), [(8192, 128), (8192, 384), (25_600, 512), (25_600, 2048), (33, 70)])
def test_column_sums_are_exact_and_the_same_in_every_run(rows, columns):
    from headway.nn.elements import column_sums

    gradient = leaves(rows, columns).detach()
    sums = column_sums(gradient)
    assert distance(sums, gradient.double().sum(0)) < 1e-6
    assert torch.equal(sums, column_sums(gradient))


@pytest.mark.parametrize(("rows", "hidden"), [(8192, 256), (25_600, 2048), (33, 70)])
def test_the_gradient_of_rectifying_comes_with_the_sums_of_its_columns(rows, hidden):
    from headway.nn.elements import rectified, risen

    x, gradient = leaves(rows, hidden, count=2)
    result = rectified(x, 0.1)
    below, sums = risen(gradient.detach(), result.detach(), 0.1)
    assert torch.equal(below, torch.autograd.grad(result, x, gradient.detach())[0])
    assert distance(sums, (gradient.detach().double() * (result > 0) / 0.9).sum(0)) < 1e-5


def embedding_step(vocabulary, dim, tokens, wide=False):
    torch.manual_seed(5)
    embedding, order = Embedding(vocabulary, dim).cuda(), SinusoidalPositions(dim, 64).cuda()
    positions = torch.arange(len(tokens), device="cuda") % 64

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            return embedded(embedding, order, Dropout(0.1), tokens, positions, wide=wide)

    return embedding, order.table[positions], step


def frequent(rows, vocabulary):
    """Tokens of which some are in every tenth place and most are rare."""
    generator = torch.Generator("cuda").manual_seed(1)
    rare = torch.randint(0, vocabulary, (rows,), generator=generator, device="cuda")
    return torch.where(torch.rand(rows, generator=generator, device="cuda") < 0.3, rare % 3, rare)


@pytest.mark.parametrize(("rows", "dim", "vocabulary"), [(8192, 128, 10_000), (25_600, 512, 40_000), (100, 130, 50)])
def test_embedded_tokens_and_their_gradients_equal_double_precision(rows, dim, vocabulary):
    tokens = frequent(rows, vocabulary)
    embedding, placed, step = embedding_step(vocabulary, dim, tokens)
    mask = factors((rows, dim), 0.1)
    output = step()
    assert output.dtype == torch.bfloat16
    (wide,) = exact(embedding.weight)
    expected = (wide[tokens] * embedding.scale + placed.double()) * mask
    assert_alike(output, (embedding.weight,), expected, (wide,))


def test_a_pre_norm_model_begins_in_single_precision():
    _, _, step = embedding_step(50, 128, frequent(100, 50), wide=True)
    assert step().dtype == torch.float32


def test_gradients_are_equal_in_two_runs_bit_for_bit():
    tokens = frequent(25_600, 10_000)
    embedding, _, look = embedding_step(10_000, 512, tokens)
    residual, network = Residual(512, norm="post", dropout=0.1).cuda(), FeedForward(512, 2048, dropout=0.1).cuda()
    parameters = [*embedding.parameters(), *residual.parameters(), *network.parameters()]

    def gradients():
        torch.manual_seed(3)
        with torch.autocast("cuda", torch.bfloat16):
            x = look()
            output = residual.leave(x, network(residual.enter(x), Visible()))
        return torch.autograd.grad(output.float().square().mean(), parameters)

    assert all(torch.equal(*both) for both in zip(gradients(), gradients(), strict=True))


def test_a_captured_step_draws_new_masks_at_every_replay_and_its_gradients_use_them():
    x, y = leaves(256, 128, count=2)
    weight, bias = torch.ones(128, device="cuda", requires_grad=True), torch.zeros(128, device="cuda")
    from headway.nn.elements import added
    from headway.nn.fused import joined

    tokens = frequent(256, 40)
    embedding, _, look = embedding_step(40, 128, tokens)
    assert fused_here(x, 0.3, True)

    def step():
        total = added(x.float(), y, 0.3)
        normal, _ = joined(x, y, weight, bias, 1e-5, 0.3)
        looked = look()
        inputs = y, weight, embedding.weight
        return total, looked, *torch.autograd.grad(total.sum() + normal.float().square().sum() + looked.sum(), inputs)

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        results = step()
    replays = []
    for _ in range(3):
        graph.replay()
        replays.append([each.clone() for each in results])
    for one, other in ((0, 1), (1, 2)):
        assert not any(torch.equal(*both) for both in zip(replays[one], replays[other], strict=True))
    dropped = replays[0][0] == x.float()
    assert dropped.double().mean().item() == pytest.approx(0.3, abs=0.02)

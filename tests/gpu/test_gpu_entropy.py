"""The kernel of the loss at real sizes, against the plain computation in double precision."""

import pytest
import torch
import torch.nn.functional as F

from headway.objectives import projection
from headway.objectives.projection import smoothed_cross_entropy

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

GPU = torch.device("cuda")
SIZES = [(1000, 128, 10000), (777, 512, 37000), (513, 64, 6001), (64, 256, 50257), (200, 128, 1000)]


@pytest.fixture
def entropy(monkeypatch):
    pytest.importorskip("triton")
    from headway.objectives import entropy as module

    calls, real = [], module.smoothed_entropy
    monkeypatch.setattr(
        module, "smoothed_entropy", lambda *given, **options: (calls.append(len(given[0])), real(*given, **options))
    )
    module.calls = calls
    yield module
    del module.calls


def case(tokens, dim, vocabulary, *, biased, dtype=torch.float32):
    generator = torch.Generator(GPU).manual_seed(3)

    def parameter(*shape, scale=1.0):
        drawn = torch.randn(shape, generator=generator, device=GPU) * scale
        return drawn.bfloat16().float().requires_grad_()  # what autocast would round is round already

    states = parameter(tokens, dim).detach().to(dtype).requires_grad_()
    inputs = states, parameter(vocabulary, dim, scale=dim**-0.5), parameter(vocabulary) if biased else None
    labels = torch.randint(vocabulary, (tokens,), generator=generator, device=GPU)
    labels[::7] = -1
    return inputs, labels


def found(inputs, labels, smoothing):
    with torch.autocast("cuda", torch.bfloat16):
        total, surprise = smoothed_cross_entropy(*inputs, labels, smoothing)
    return _apart(total, surprise, inputs)


def exact(inputs, labels, smoothing):
    doubles = [None if each is None else each.detach().double().requires_grad_() for each in inputs]
    logits = F.linear(*doubles)[labels >= 0]
    total = F.cross_entropy(logits, labels[labels >= 0], label_smoothing=smoothing, reduction="sum")
    surprise = F.cross_entropy(logits, labels[labels >= 0], reduction="sum")
    return _apart(total, surprise, doubles)


def _apart(total, surprise, inputs):
    """Both losses without their graph, which a capture on another stream must not find alive, and the gradients."""
    gradients = torch.autograd.grad(3 * total, [each for each in inputs if each is not None])
    return total.detach(), surprise.detach(), gradients


def off(one, other):
    """How far one tensor lies from another, as a share of it."""
    return float((one.double() - other).norm() / other.norm())


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_and_gradients_are_those_of_the_plain_computation(entropy, monkeypatch, size, biased, smoothing):
    monkeypatch.setitem(projection._LOGITS, "cuda", 300 * size[2])  # several chunks
    inputs, labels = case(*size, biased=biased)
    total, surprise, made = found(inputs, labels, smoothing)
    expected, hidden, wanted = exact(inputs, labels, smoothing)
    assert sum(entropy.calls) == size[0]
    assert off(total, expected) < 1e-3
    assert off(surprise, hidden) < 1e-3
    assert all(off(one, other) < 1e-2 for one, other in zip(made, wanted, strict=True))
    assert all(each.dtype == torch.float32 for each in made)
    assert not made[0][::7].any()


@pytest.mark.parametrize("scale", [3.0, 60.0])  # the second is more than a power of two in single precision holds
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("vocabulary", [5, 300, 6001, 37000])
def test_given_the_same_logits_it_is_exact_however_unlikely_the_labels(entropy, vocabulary, biased, scale):
    generator = torch.Generator(GPU).manual_seed(5)
    logits = entropy.room_for_logits(torch.empty(0, 1, device=GPU, dtype=torch.bfloat16), 65, vocabulary)
    logits.copy_(scale * torch.randn(65, vocabulary, generator=generator, device=GPU))
    bias = torch.randn(vocabulary, generator=generator, device=GPU)
    labels = torch.randint(vocabulary, (65,), generator=generator, device=GPU)
    doubles = (logits.double() + (bias.double() if biased else 0.0)).requires_grad_()
    total = F.cross_entropy(doubles, labels, label_smoothing=0.1, reduction="none")
    hidden = F.cross_entropy(doubles, labels, reduction="none")
    (wanted,) = torch.autograd.grad(total.sum(), doubles)
    numbers = torch.full((65, 2), torch.nan, device=GPU)
    scaled = entropy.scaled_bias(bias) if biased else None
    entropy.smoothed_entropy(logits, scaled, labels, numbers, 0.1, differentiate=True)
    torch.testing.assert_close(numbers.double(), torch.stack((total, hidden), 1).detach(), rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(logits.double(), wanted, rtol=2**-8, atol=1e-6)


def test_the_kernel_is_nearer_to_the_truth_than_torch_on_full_logits(entropy):
    inputs, labels = case(2048, 512, 37000, biased=True)
    _, _, made = found(inputs, labels, 0.1)
    counted = labels >= 0
    with torch.autocast("cuda", torch.bfloat16):
        logits = F.linear(*inputs)[counted]
        total = F.cross_entropy(logits, labels[counted], label_smoothing=0.1, reduction="sum")
    theirs = torch.autograd.grad(3 * total, inputs)
    _, _, wanted = exact(inputs, labels, 0.1)
    for ours, torchs, other in zip(made, theirs, wanted, strict=True):
        assert off(ours, other) < 1.2 * off(torchs, other)


def test_low_precision_states_get_low_precision_gradients(entropy):
    inputs, labels = case(300, 128, 6000, biased=True, dtype=torch.bfloat16)
    _, _, made = found(inputs, labels, 0.1)
    assert [each.dtype for each in made] == [torch.bfloat16, torch.float32, torch.float32]
    _, _, wanted = exact(inputs, labels, 0.1)
    assert all(off(one, other) < 1e-2 for one, other in zip(made, wanted, strict=True))


def test_the_same_bits_every_time_and_in_a_graph(entropy, monkeypatch):
    monkeypatch.setitem(projection._LOGITS, "cuda", 300 * 10000)
    inputs, labels = case(1000, 128, 10000, biased=True)
    first, second = found(inputs, labels, 0.1), found(inputs, labels, 0.1)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        found(inputs, labels, 0.1)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = found(inputs, labels, 0.1)
    graph.replay()
    torch.cuda.synchronize()
    for other in (second, captured):
        assert torch.equal(first[0], other[0])
        assert torch.equal(first[1], other[1])
        assert all(torch.equal(one, two) for one, two in zip(first[2], other[2], strict=True))


def test_no_more_than_a_chunk_of_logits_is_ever_held(entropy, monkeypatch):
    tokens, dim, vocabulary = 4096, 64, 32000
    monkeypatch.setitem(projection._LOGITS, "cuda", 256 * vocabulary)
    inputs, labels = case(tokens, dim, vocabulary, biased=True)
    found(inputs, labels, 0.1)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    found(inputs, labels, 0.1)
    torch.cuda.synchronize()
    taken = torch.cuda.max_memory_allocated() - before
    chunk, gradients = 2 * 256 * vocabulary, 4 * (tokens + vocabulary) * dim
    assert taken < chunk + 3 * gradients + (4 << 20)


def test_single_precision_stays_on_torchs_path_and_can_be_captured(entropy):
    inputs, labels = case(300, 64, 6000, biased=True)
    total, _ = smoothed_cross_entropy(*inputs, labels, 0.1)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured, _ = smoothed_cross_entropy(*inputs, labels, 0.1)
    graph.replay()
    assert not entropy.calls
    torch.testing.assert_close(captured, total)

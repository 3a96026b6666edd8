"""The kernel of the loss, interpreted, against the plain computation; and labels that do not count, on every path."""

import pytest
import torch
import torch.nn.functional as F

from headway.data.batches import Batch
from headway.models.transformer import Transformer, TransformerConfig
from headway.objectives import ConsistentLikelihood, LabelSmoothedLikelihood, likelihood, projection
from headway.objectives.consistency import Agreement
from headway.objectives.projection import SmoothedCrossEntropy, projected, smoothed_cross_entropy
from headway.sequences import Sequences

IGNORED = -100


def plain(logits, labels, smoothing):
    """The sum over the rows that count."""
    return (
        F.cross_entropy(logits, labels, label_smoothing=smoothing, ignore_index=IGNORED, reduction="sum")
        if (labels >= 0).any()
        else 0.0 * logits.sum()
    )


def drawn(rows, vocabulary, *, seed=0, uncounted=()):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(rows, vocabulary, generator=generator)
    labels = torch.randint(vocabulary, (rows,), generator=generator)
    labels[list(uncounted)] = IGNORED
    return logits.bfloat16(), torch.randn(vocabulary, generator=generator), labels


@pytest.fixture
def entropy(monkeypatch):
    pytest.importorskip("triton")
    from headway.objectives import entropy as module

    monkeypatch.setattr(module, "BLOCK", 16)
    return module


@pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are interpreted only where there is no GPU")
class TestKernel:
    @pytest.mark.parametrize("smoothing", [0.0, 0.1])
    @pytest.mark.parametrize("biased", [True, False])
    @pytest.mark.parametrize("vocabulary", [5, 16, 37, 48])
    def test_loss_surprise_and_gradient_are_those_of_the_plain_computation(
        self, entropy, smoothing, biased, vocabulary
    ):
        logits, bias, labels = drawn(5, vocabulary, uncounted=[3])
        exact = (logits.double() + (bias.double() if biased else 0.0)).requires_grad_()
        found = torch.full((5, 2), torch.nan)
        given = logits.clone()
        scaled = entropy.scaled_bias(bias) if biased else None
        entropy.smoothed_entropy(given, scaled, labels, found, smoothing, differentiate=True)
        for row in range(5):
            loss = plain(exact[row : row + 1], labels[row : row + 1], smoothing)
            surprise = plain(exact[row : row + 1], labels[row : row + 1], 0.0)
            torch.testing.assert_close(
                found[row].double(), torch.stack((loss, surprise)).detach(), rtol=1e-5, atol=1e-5
            )
        (wanted,) = torch.autograd.grad(plain(exact, labels, smoothing), exact)
        # The interpreter cuts what a GPU rounds.
        torch.testing.assert_close(given.double(), wanted, rtol=2**-7, atol=1e-6)
        assert not given[3].any()

    def test_rows_with_gaps_between_them_are_taken_as_they_lie(self, entropy):
        logits, bias, labels = drawn(3, 21)
        room = entropy.room_for_logits(logits, 3, 21)
        assert room.shape == (3, 21)
        assert room.stride() == (64, 1)
        beside = torch.full((3, 64), 7.0, dtype=torch.bfloat16)
        inside = beside[:, :21].copy_(logits)
        found, expected = torch.empty(3, 2), torch.empty(3, 2)
        entropy.smoothed_entropy(inside, entropy.scaled_bias(bias), labels, found, 0.1, differentiate=True)
        entropy.smoothed_entropy(logits, entropy.scaled_bias(bias), labels, expected, 0.1, differentiate=True)
        assert torch.equal(found, expected)
        assert torch.equal(inside, logits)
        assert (beside[:, 32:] == 7.0).all()

    def test_without_a_gradient_the_logits_stay(self, entropy):
        logits, bias, labels = drawn(2, 20)
        given, found, with_gradient = logits.clone(), torch.empty(2, 2), torch.empty(2, 2)
        entropy.smoothed_entropy(given, entropy.scaled_bias(bias), labels, found, 0.1, differentiate=False)
        assert torch.equal(given, logits)
        entropy.smoothed_entropy(given, entropy.scaled_bias(bias), labels, with_gradient, 0.1, differentiate=True)
        assert torch.equal(found, with_gradient)

    @pytest.mark.filterwarnings("ignore:overflow encountered")  # which is how it notices
    @pytest.mark.parametrize("biased", [True, False])
    @pytest.mark.parametrize("scale", [30, 1000])
    def test_huge_logits_neither_overflow_nor_lose_the_label(self, entropy, biased, scale):
        logits, bias, labels = drawn(4, 37)
        logits *= scale
        exact = (logits.double() + (bias.double() if biased else 0.0)).requires_grad_()
        found = torch.empty(4, 2)
        scaled = entropy.scaled_bias(bias) if biased else None
        entropy.smoothed_entropy(logits, scaled, labels, found, 0.1, differentiate=True)
        expected = plain(exact, labels, 0.1)
        assert (found[:, 1] > 100).any()  # beyond what a power of two in single precision holds
        torch.testing.assert_close(found[:, 0].sum().double(), expected.detach(), rtol=1e-5, atol=0.0)
        torch.testing.assert_close(
            logits.double(), torch.autograd.grad(expected, exact)[0], rtol=2**-7, atol=1e-6 * scale
        )

    @pytest.mark.filterwarnings("ignore:overflow encountered", "ignore:invalid value encountered")
    def test_impossible_labels_cost_infinitely_much_and_impossible_others_nothing(self, entropy):
        logits, _, labels = drawn(2, 37)
        labels[:] = torch.tensor([3, 20])
        logits[:, 20:30] = -torch.inf
        found = torch.empty(2, 2)
        entropy.smoothed_entropy(logits.clone(), None, labels, found, 0.0, differentiate=False)
        surprise = F.cross_entropy(logits.double(), labels, reduction="none")
        torch.testing.assert_close(found[:, 1].double(), surprise, rtol=1e-5, atol=1e-5)
        assert found[1, 1] == torch.inf

    def test_what_is_not_a_number_is_not_hidden(self, entropy):
        logits, _, labels = drawn(2, 20)
        logits[0, 3] = torch.nan
        found = torch.empty(2, 2)
        entropy.smoothed_entropy(logits, None, labels, found, 0.1, differentiate=True)
        assert found[0].isnan().all()
        assert found[1].isfinite().all()

    @pytest.mark.parametrize("biased", [True, False])
    @pytest.mark.parametrize("tokens", [0, 1, 11])
    def test_all_of_the_projection_goes_through_it(self, entropy, monkeypatch, tokens, biased):
        monkeypatch.setattr(projection, "_kernel_serves", lambda x: x.dtype == torch.bfloat16)
        monkeypatch.setitem(projection._LOGITS, "cpu", 4 * 37)  # several chunks
        served = []
        real = entropy.smoothed_entropy
        monkeypatch.setattr(
            entropy,
            "smoothed_entropy",
            lambda *given, **options: (served.append(len(given[0])), real(*given, **options)),
        )
        torch.manual_seed(4)
        shapes = [(tokens, 8), (37, 8), *([(37,)] if biased else [])]
        inputs = [torch.randn(shape).bfloat16().float().requires_grad_() for shape in shapes]
        labels = torch.randint(37, (tokens,))
        labels[2:4] = -1
        with torch.autocast("cpu", torch.bfloat16):
            total, surprise = smoothed_cross_entropy(*inputs[:2], inputs[2] if biased else None, labels, 0.1)
        exact = [each.detach().double().requires_grad_() for each in inputs]
        rows = F.linear(*exact)[labels >= 0]
        expected = F.cross_entropy(rows, labels[labels >= 0], label_smoothing=0.1, reduction="sum")
        torch.testing.assert_close(total.double(), expected, rtol=1e-2, atol=1e-6)
        torch.testing.assert_close(
            surprise.double(), F.cross_entropy(rows, labels[labels >= 0], reduction="sum"), rtol=1e-2, atol=1e-6
        )
        made, wanted = torch.autograd.grad(3 * total, inputs), torch.autograd.grad(3 * expected, exact)
        for one, other in zip(made, wanted, strict=True):
            assert one.dtype == torch.float32
            torch.testing.assert_close(one.double(), other, rtol=3e-2, atol=0.15)
        assert sum(served) == tokens
        assert len(served) == -(-tokens // 4)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("passes", [1, 2])
def test_tokens_that_do_not_count_change_nothing_for_the_others(monkeypatch, smoothing, passes):
    monkeypatch.setitem(projection._LOGITS, "cpu", passes * 4 * 23)  # several chunks
    torch.manual_seed(2)
    states, weight, bias = (
        torch.randn(shape, dtype=torch.float64).requires_grad_() for shape in [(passes, 11, 8), (23, 8), (23,)]
    )
    labels = torch.randint(23, (11,))
    counted = torch.arange(11) % 4 != 1
    criterion = SmoothedCrossEntropy(smoothing) if passes == 1 else Agreement(SmoothedCrossEntropy(smoothing), 2.5)
    found = projected(states, weight, bias, labels.masked_fill(~counted, -1).repeat(passes, 1), criterion)
    expected = projected(states[:, counted], weight, bias, labels[counted].repeat(passes, 1), criterion)
    torch.testing.assert_close(found, expected)
    made = torch.autograd.grad(found[0], (states, weight, bias))
    torch.testing.assert_close(made, torch.autograd.grad(expected[0], (states, weight, bias)))
    assert not made[0][:, ~counted].any()


def test_a_batch_of_which_nothing_counts_costs_nothing():
    states, weight = torch.randn(1, 3, 8).requires_grad_(), torch.randn(23, 8).requires_grad_()
    total, surprise = projected(states, weight, None, torch.full((1, 3), -1), SmoothedCrossEntropy(0.1))
    assert total.item() == surprise.item() == 0.0
    assert not any(gradient.any() for gradient in torch.autograd.grad(total, (states, weight)))


def test_its_graph_cannot_be_used_twice_unnoticed():
    states, weight = torch.randn(3, 8).requires_grad_(), torch.randn(23, 8).requires_grad_()
    total, _ = smoothed_cross_entropy(states, weight, None, torch.tensor([1, 2, 3]), 0.1)
    total.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        total.backward()


@pytest.mark.parametrize(
    ("tokens", "most", "size"),
    [(25600, 3627, 3200), (3000, 3627, 3000), (0, 10, 1), (1, 1, 1), (11, 4, 4), (300, 200, 150)],
)
def test_chunks_are_even_and_of_whole_tiles_where_that_fits(tokens, most, size):
    assert projection._evenly(tokens, most) == size


@pytest.mark.parametrize(
    "objective", [LabelSmoothedLikelihood(0.1), ConsistentLikelihood(0.1, 5.0)], ids=lambda each: type(each).__name__
)
def test_work_that_is_recorded_keeps_its_padding_and_gives_the_same(monkeypatch, objective):
    torch.manual_seed(1)
    sizes = {"dim": 8, "heads": 2, "hidden": 16, "encoder_layers": 1, "decoder_layers": 1, "longest": 8, "dropout": 0.0}
    model = Transformer(TransformerConfig(**sizes), 11, 11).double()
    labels = Sequences.pad([[5, 6, 7, 2], [8, 2]], 0)
    batch = Batch(Sequences.pad([[4, 2], [6, 3, 2]], 0), Sequences.pad([[1, 5, 6, 7], [1, 8]], 0), labels.tokens, 6)
    expected = objective(model, batch)
    wanted = torch.autograd.grad(expected.total, list(model.parameters()))
    monkeypatch.setattr(likelihood, "_recorded", lambda states: True)
    states, kept = likelihood.counted(torch.zeros(2, 4, 8), batch)
    assert len(states) == len(kept) == 8
    assert (kept < 0).sum() == 2
    found = objective(model, batch)
    torch.testing.assert_close((found.total, found.surprise), (expected.total, expected.surprise))
    torch.testing.assert_close(torch.autograd.grad(found.total, list(model.parameters())), wanted)

import pytest
import torch
import torch.nn.functional as F

from headway.data.batches import Batch
from headway.models.transformer import Transformer, TransformerConfig
from headway.objectives import ConsistentLikelihood, LabelSmoothedLikelihood, Objective, projection
from headway.objectives.consistency import Agreement
from headway.objectives.projection import SmoothedCrossEntropy, projected
from headway.sequences import Sequences

SOURCES, LABELS = [[4, 5, 2], [6, 2], [7, 8, 9, 2]], [[5, 6, 7, 2], [8, 2], [9, 2]]
VOCABULARY, START = 11, 1

every_layout = pytest.mark.parametrize("packed", [False, True])


def batch(packed):
    def layout(sentences):
        return Sequences.pack(sentences) if packed else Sequences.pad(sentences, 0)

    targets = [[START, *label[:-1]] for label in LABELS]
    return Batch(layout(SOURCES), layout(targets), layout(LABELS).tokens, sum(map(len, LABELS)))


def build(dropout=0.0):
    torch.manual_seed(1)
    sizes = {"dim": 8, "heads": 2, "hidden": 16, "encoder_layers": 1, "decoder_layers": 1, "longest": 8}
    return Transformer(TransformerConfig(**sizes, dropout=dropout), VOCABULARY, VOCABULARY)


def plainly(logits, labels, smoothing, weight):
    """The loss of the paper with autograd: likelihood of both passes, and the two divergences by half."""
    likelihood = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=smoothing, reduction="sum")
    p, q = logits.log_softmax(-1)
    divergence = F.kl_div(q, p, log_target=True, reduction="sum") + F.kl_div(p, q, log_target=True, reduction="sum")
    return likelihood + weight * divergence / 2


def gradients(model):
    found = {name: parameter.grad for name, parameter in model.named_parameters()}
    model.zero_grad(set_to_none=True)
    return found


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weight", [0.0, 1.0, 5.0])
@pytest.mark.parametrize("bias", [True, False])
def test_loss_and_gradients_are_those_of_the_plain_computation(smoothing, weight, bias, monkeypatch):
    monkeypatch.setitem(projection._LOGITS, "cpu", 10 * 23)  # several chunks
    generator = torch.Generator().manual_seed(5)

    def parameter(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()

    inputs = [parameter(2, 17, 8), parameter(23, 8), *([parameter(23)] if bias else [])]
    labels = torch.randint(23, (17,), generator=generator).repeat(2, 1)
    criterion = Agreement(SmoothedCrossEntropy(smoothing), weight / 2)
    total, surprise = projected(*inputs[:2], inputs[2] if bias else None, labels, criterion)
    logits = F.linear(*inputs)
    expected = plainly(logits, labels, smoothing, weight)
    torch.testing.assert_close(total, expected)
    torch.testing.assert_close(surprise, plainly(logits, labels, 0.0, 0.0))
    made, wanted = torch.autograd.grad(3 * total, inputs), torch.autograd.grad(3 * expected, inputs)
    torch.testing.assert_close(made, wanted)
    with torch.no_grad():
        torch.testing.assert_close(projected(*inputs[:2], None if not bias else inputs[2], labels, criterion)[0], total)


@every_layout
def test_the_objective_is_half_of_the_papers_loss_of_two_passes_with_dropout_of_their_own(packed):
    model, given = build(dropout=0.3).double(), batch(packed)
    torch.manual_seed(7)
    loss = ConsistentLikelihood(0.1, 5.0)(model, given)
    loss.total.backward()
    found = gradients(model)
    torch.manual_seed(7)
    twice = given.repeated(2)
    cells = twice.target.present
    logits = model.output(model(twice.source, twice.target)[cells]).unflatten(0, (2, -1))
    labels = twice.labels[cells].unflatten(0, (2, -1))
    assert not torch.equal(logits[0], logits[1])
    expected = plainly(logits, labels, 0.1, 5.0) / 2
    expected.backward()
    torch.testing.assert_close(loss.total, expected)
    torch.testing.assert_close(loss.surprise, plainly(logits, labels, 0.0, 0.0) / 2)
    assert loss.units == given.units
    torch.testing.assert_close(found, gradients(model))


@every_layout
@pytest.mark.parametrize("weight", [0.0, 5.0])
def test_without_dropout_it_is_the_likelihood(packed, weight):
    model, given = build().double(), batch(packed)
    ours, theirs = ConsistentLikelihood(0.1, weight)(model, given), LabelSmoothedLikelihood(0.1)(model, given)
    assert ours.units == theirs.units
    torch.testing.assert_close((ours.total, ours.surprise), (theirs.total, theirs.surprise))
    ours.total.backward()
    found = gradients(model)
    theirs.total.backward()
    torch.testing.assert_close(found, gradients(model))


def test_passes_that_agree_diverge_by_exactly_nothing():
    torch.manual_seed(0)
    logits, labels = (30 * torch.randn(1, 6, 50)).repeat(2, 1, 1), torch.zeros(2, 6, dtype=torch.int64)
    alone = SmoothedCrossEntropy(0.1)
    plain, _ = alone(logits.clone(), labels, differentiate=False)
    both, _ = Agreement(alone, 100.0)(logits.clone(), labels, differentiate=False)
    assert torch.equal(plain, both)


def test_autocast_changes_the_products_and_neither_the_type_of_the_loss_nor_of_the_gradients(monkeypatch):
    monkeypatch.setitem(projection._LOGITS, "cpu", 10 * 23)  # several chunks
    torch.manual_seed(5)
    inputs = [torch.randn(*shape).div_(2).requires_grad_() for shape in [(2, 17, 8), (23, 8), (23,)]]
    labels = torch.randint(23, (17,)).repeat(2, 1)
    with torch.autocast("cpu", torch.bfloat16):
        total, _ = projected(*inputs, labels, Agreement(SmoothedCrossEntropy(0.1), 1.0))
    expected = plainly(F.linear(*inputs), labels, 0.1, 2.0)
    assert total.dtype == torch.float32
    torch.testing.assert_close(total, expected, rtol=1e-2, atol=1e-2)
    for one, other in zip(torch.autograd.grad(total, inputs), torch.autograd.grad(expected, inputs), strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one, other, rtol=5e-2, atol=1e-1)


def test_a_batch_of_no_tokens_costs_nothing():
    none = Batch(Sequences.pad([], 0), Sequences.pad([], 0), Sequences.pad([], 0).tokens, 0)
    states = torch.zeros(0, 0, 8)
    model = build()
    model.forward = lambda source, target: states
    assert ConsistentLikelihood(0.1, 5.0)(model, none).total.item() == 0.0


def divergence(model, given):
    """What 1 of weight adds to the loss, over many draws of dropout."""
    found = []
    for seed in range(10):
        for weight in (0.0, 1.0):
            torch.manual_seed(seed)
            with torch.no_grad():
                found.append(float(ConsistentLikelihood(0.0, weight)(model, given).total))
    return sum(found[1::2]) - sum(found[::2])


def test_training_with_it_brings_the_passes_together():
    given, left = batch(packed=False), {}
    for weight in (0.0, 5.0):
        model = build(dropout=0.3)
        optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
        for step in range(40):
            (ConsistentLikelihood(0.1, weight)(model, given, step).total / given.units).backward()
            optimiser.step()
            optimiser.zero_grad()
        left[weight] = divergence(model, given)
    assert 0 < left[5.0] < 0.5 * left[0.0]


def test_every_objective_is_one():
    assert all(isinstance(each(0.1), Objective) for each in (LabelSmoothedLikelihood, ConsistentLikelihood))

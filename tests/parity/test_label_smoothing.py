"""The objective against its definition, computed by hand in double precision."""

import math

import pytest
import torch

from headway.data.batches import Batch
from headway.models.transformer import Transformer, TransformerConfig
from headway.objectives import LabelSmoothedLikelihood
from headway.sequences import Sequences

SOURCES, LABELS = [[4, 5, 2], [6, 2], [7, 8, 9, 2]], [[5, 6, 7, 2], [8, 2], [9, 2]]
VOCABULARY, START = 11, 1


def batch(packed):
    def layout(sentences):
        return Sequences.pack(sentences) if packed else Sequences.pad(sentences, 0)

    targets = [[START, *label[:-1]] for label in LABELS]
    return Batch(layout(SOURCES), layout(targets), layout(LABELS).tokens, sum(map(len, LABELS)))


def by_hand(model, smoothing):
    """Sums over every label of every sentence alone: -log p and its mix with the uniform distribution."""
    total = surprise = 0.0
    for source, label in zip(SOURCES, LABELS, strict=True):
        states = model(Sequences.pad([source], 0), Sequences.pad([[START, *label[:-1]]], 0))
        for row, wanted in zip(model.output(states)[0].tolist(), label, strict=True):
            normaliser = math.log(math.fsum(math.exp(logit) for logit in row))
            losses = [normaliser - logit for logit in row]
            total += (1 - smoothing) * losses[wanted] + smoothing * math.fsum(losses) / VOCABULARY
            surprise += losses[wanted]
    return total, surprise


every_layout = pytest.mark.parametrize("packed", [False, True])
every_smoothing = pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])


def build():
    torch.manual_seed(1)
    config = TransformerConfig(dim=8, heads=2, hidden=16, encoder_layers=1, decoder_layers=1, longest=8)
    return Transformer(config, VOCABULARY, VOCABULARY).double().eval()


@every_layout
@every_smoothing
def test_the_loss_is_the_exact_definition_of_label_smoothing_summed_over_tokens(packed, smoothing):
    model = build()
    loss = LabelSmoothedLikelihood(smoothing)(model, batch(packed))
    total, surprise = by_hand(model, smoothing)
    assert loss.total.item() == pytest.approx(total, rel=1e-6)
    assert loss.surprise.item() == pytest.approx(surprise, rel=1e-6)
    assert loss.units == sum(map(len, LABELS))
    assert not loss.surprise.requires_grad


@every_layout
@every_smoothing
def test_the_gradient_of_every_parameter_is_that_of_the_definition(packed, smoothing):
    model, given = build(), batch(packed)
    LabelSmoothedLikelihood(smoothing)(model, given).total.backward()
    found = {name: parameter.grad for name, parameter in model.named_parameters()}
    model.zero_grad(set_to_none=True)
    cells = given.target.present
    losses = -model.output(model(given.source, given.target)[cells]).log_softmax(-1)
    wanted = torch.full_like(losses, smoothing / VOCABULARY)
    wanted[torch.arange(len(losses)), given.labels[cells]] += 1 - smoothing
    (wanted * losses).sum().backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad, rtol=1e-5, atol=1e-6)

"""The loss of connectionist temporal classification, against every path there is."""

import math

import numpy as np
import pytest
import torch

from headway.data.batches import Batch
from headway.errors import ConfigError
from headway.models.ctc import Ctc, CtcConfig
from headway.models.transformer import TransformerConfig
from headway.objectives import AlignmentLikelihood, without_path
from headway.sequences import Sequences
from paths import all_outputs

PADDING, START, END = 0, 1, 2
VOCABULARY = 6
SHAPE = {"dim": 16, "heads": 2, "hidden": 16, "encoder_layers": 1, "decoder_layers": 1, "longest": 16, "dropout": 0.0}


def model_of(**settings):
    torch.manual_seed(1)
    return Ctc(CtcConfig(**{**SHAPE, **settings}), VOCABULARY, VOCABULARY)


def batch_of(pairs, packed=False):
    def laid_out(rows):
        return Sequences.pack(rows) if packed else Sequences.pad(rows, PADDING)

    labels = laid_out([[*target, END] for _, target in pairs]).tokens
    shifted = laid_out([[START, *target] for _, target in pairs])
    sources = laid_out([[*source, END] for source, _ in pairs])
    return Batch(sources, shifted, labels, sum(len(target) + 1 for _, target in pairs))


PAIRS = [([3, 4], [5, 5, 3]), ([5], [4]), ([4, 4], []), ([3], [3, 3])]


def spelled(model, source):
    """The log-probabilities of the slots of one source."""
    slots = model.slots(Sequences.pad([[*source, END]], PADDING))
    return model.output(slots.states)[0].double().log_softmax(-1)


def test_the_loss_is_the_sum_over_all_paths_of_all_pairs():
    model = model_of(upsample=2)
    with torch.no_grad():
        loss = AlignmentLikelihood()(model, batch_of(PAIRS))
        wanted = -sum(
            all_outputs(spelled(model, source).tolist(), model.blank)[tuple(target)] for source, target in PAIRS
        )
    assert float(loss.total.detach()) == pytest.approx(wanted, rel=1e-5)
    assert float(loss.surprise) == pytest.approx(wanted, rel=1e-5)
    assert loss.units == sum(len(target) + 1 for _, target in PAIRS)


def test_the_gradient_is_that_of_the_sum_over_all_paths():
    model = model_of(upsample=2, encoder_layers=1, decoder_layers=0)
    source, target = [3], [5, 5]
    loss = AlignmentLikelihood()(model, batch_of([(source, target)])).total
    (got,) = torch.autograd.grad(loss, model.upsample.weight)
    rows = spelled(model, source)
    values = []
    for path in np.ndindex(*[model.blank + 1] * len(rows)):
        kept = [label for place, label in enumerate(path) if place == 0 or path[place - 1] != label]
        if [label for label in kept if label != model.blank] == target:
            values.append(sum(row[label] for row, label in zip(rows, path, strict=True)))
    (wanted,) = torch.autograd.grad(-torch.stack(values).logsumexp(0), model.upsample.weight)
    torch.testing.assert_close(got, wanted.float(), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("encoder", ["transformer", "recurrent", "convolutional"])
def test_a_batch_loses_as_much_as_its_pairs(encoder):
    model, objective = model_of(encoder=encoder), AlignmentLikelihood(0.1)
    whole = objective(model, batch_of(PAIRS))
    parts = [objective(model, batch_of([pair])) for pair in PAIRS]
    assert float(whole.total.detach()) == pytest.approx(sum(float(part.total.detach()) for part in parts), rel=1e-5)
    assert whole.units == sum(part.units for part in parts)


def test_packed_sentences_lose_as_much_as_padded_ones():
    model, objective = model_of(), AlignmentLikelihood(0.1)
    padded, packed = (objective(model, batch_of(PAIRS, packed=packed)) for packed in (False, True))
    assert float(packed.total.detach()) == pytest.approx(float(padded.total.detach()), rel=1e-5)
    assert packed.units == padded.units


def test_a_pair_without_a_path_counts_nowhere_and_leaves_no_gradient():
    model, objective = model_of(upsample=1), AlignmentLikelihood(0.1)
    long, twice = ([3], [3, 4, 5, 3]), ([3, 4], [5, 5, 5])
    fine = ([3, 4], [5, 3])
    loss, alone = objective(model, batch_of([long, fine, twice])), objective(model, batch_of([fine]))
    assert float(loss.total.detach()) == pytest.approx(float(alone.total.detach()), rel=1e-5)
    assert loss.units == alone.units == 3
    nothing = objective(model, batch_of([long]))
    nothing.total.backward()
    assert (float(nothing.total.detach()), float(nothing.surprise), nothing.units) == (0.0, 0.0, 0)
    assert all(not weight.grad.any() for weight in model.parameters() if weight.grad is not None)


def test_smoothing_mixes_in_the_mean_over_all_labels():
    model, (source, target) = model_of(), PAIRS[0]
    batch = batch_of([(source, target)])
    plain, smoothed = AlignmentLikelihood()(model, batch), AlignmentLikelihood(0.25)(model, batch)
    even = -float(spelled(model, source).mean(-1).sum().detach())
    assert float(smoothed.total.detach()) == pytest.approx(0.75 * float(plain.total.detach()) + 0.25 * even, rel=1e-5)
    assert float(smoothed.surprise) == float(plain.surprise)


def test_a_fresh_model_is_about_as_surprised_as_a_blind_guess():
    torch.manual_seed(1)
    for upsample in (1, 2, 3):
        model = Ctc(CtcConfig(**{**SHAPE, "dim": 64, "upsample": upsample}), 500, 500)
        pairs = [(list(range(3 + seed, 13 + seed)), list(range(20 + seed, 28 + seed))) for seed in range(8)]
        loss = AlignmentLikelihood()(model, batch_of(pairs))
        assert 0.6 < float(loss.surprise) / loss.units / math.log(500) < 1.6


def test_pairs_without_a_path_are_counted_before_training_and_refused_where_they_are_most():
    config = CtcConfig(upsample=2)
    source = np.array([1, 2, 3], dtype=np.int32)
    assert without_path(config, source, np.array([4, 6, 9], dtype=np.int32)) == 1
    assert without_path(TransformerConfig(), source, np.array([90, 90, 90], dtype=np.int32)) == 0
    with pytest.raises(ConfigError, match=r"model.upsample: 2 .* too few slots for 2 of 3 pairs; 6 would do"):
        without_path(config, source, np.array([12, 12, 3], dtype=np.int32))

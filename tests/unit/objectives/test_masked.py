from collections import Counter

import pytest
import torch

from headway.data.batches import Batch
from headway.models.maskpredict import MaskPredict, MaskPredictConfig
from headway.objectives import MaskedLikelihood, Objective
from headway.objectives.masked import SEED, drawn_hidden
from headway.sequences import Sequences

SOURCES, TARGETS = [[4, 5, 6, 2], [7, 2], [8, 9, 2]], [[5, 6, 7, 7, 8, 3, 4], [9, 9], [3]]
VOCABULARY, START, END, REACH = 11, 1, 2, 3
SIZES = {"dim": 8, "heads": 2, "hidden": 16, "encoder_layers": 1, "decoder_layers": 2, "longest": 12}


@pytest.fixture
def batch():
    read, given = (Sequences.pad(rows, 0) for rows in (SOURCES, [[START, *target] for target in TARGETS]))
    labels = Sequences.pad([[*target, END] for target in TARGETS], 0).tokens
    return Batch(read, given, labels, sum(len(target) + 1 for target in TARGETS))


@pytest.fixture
def model():
    torch.manual_seed(1)
    return MaskPredict(MaskPredictConfig(**SIZES, length_reach=REACH, dropout=0.0), VOCABULARY, VOCABULARY).double()


def by_loops(model, hidden, smoothing):
    total = surprise = 0.0
    for source, target, covered in zip(SOURCES, TARGETS, hidden.tolist(), strict=True):
        encoded = model.encode(Sequences.pad([source], 0))
        longer = max(-REACH, min(REACH, len(target) - (len(source) - 1)))
        missed = -model.length(encoded.length)[0].log_softmax(-1)[longer + REACH].item()
        own = torch.tensor([covered[: len(target)]])
        states = model.decode(Sequences.pad([target], 0), own, encoded).states[0]
        for state, token, out in zip(states, target, covered, strict=False):
            if out:
                levels = model.output(state).log_softmax(-1)
                surprise -= 2 * levels[token].item()
                total -= 2 * ((1 - smoothing) * levels[token].item() + smoothing * levels.mean().item())
        total, surprise = total + missed, surprise + missed
    return total, surprise


@pytest.mark.parametrize("training", [True, False])
def test_the_loss_is_twice_that_of_the_hidden_tokens_and_that_of_the_length(model, batch, training):
    model.train(training)
    torch.manual_seed(5)
    generator = None if training else torch.Generator().manual_seed(SEED)
    hidden = drawn_hidden(batch.written, generator)
    total, surprise = by_loops(model, hidden, 0.1)
    torch.manual_seed(5)
    loss = MaskedLikelihood(0.1)(model, batch)
    assert isinstance(MaskedLikelihood(), Objective)
    assert loss.total.item() == pytest.approx(total, rel=1e-5)
    assert loss.surprise.item() == pytest.approx(surprise, rel=1e-5)
    assert loss.units == batch.units


def test_as_many_are_hidden_as_a_number_drawn_from_one_to_all_says():
    torch.manual_seed(1)
    written = Sequences.pad([[3] * 4, [3]] * 3000, 0)
    hidden = drawn_hidden(written)
    assert not (hidden & ~written.present).any()
    assert hidden[1::2].sum(1).unique().tolist() == [1]
    counts = Counter(hidden[::2].sum(1).tolist())
    assert sorted(counts) == [1, 2, 3, 4]
    assert all(abs(count / 3000 - 0.25) < 0.03 for count in counts.values())
    shares = hidden[::2].float().mean(0)  # and no place more often than another
    assert (shares - 2.5 / 4).abs().max() < 0.03


def test_training_draws_from_torch_and_validation_always_hides_the_same(model, batch):
    model.train()
    torch.manual_seed(1)
    losses = [MaskedLikelihood()(model, batch).total.item() for _ in range(3)]
    torch.manual_seed(1)
    assert [MaskedLikelihood()(model, batch).total.item() for _ in range(3)] == losses
    assert len(set(losses)) > 1
    model.eval()
    before = torch.get_rng_state()
    assert len({MaskedLikelihood()(model, batch).total.item() for _ in range(3)}) == 1
    assert torch.equal(before, torch.get_rng_state())


def test_every_weight_learns(model, batch):
    MaskedLikelihood()(model.train(), batch).total.backward()
    assert all(weight.grad is not None for weight in model.parameters())

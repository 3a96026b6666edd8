from dataclasses import replace

import pytest
import torch

from headway.data.batches import Batch
from headway.models.transformer import Transformer, TransformerConfig
from headway.objectives import LabelSmoothedLikelihood, Objective, ScheduledSampling, projection
from headway.objectives.sampling import guesses
from headway.sequences import Sequences

SOURCES, LABELS = [[4, 5, 2], [6, 2], [7, 8, 9, 2]], [[5, 6, 7, 2], [8, 2], [9, 2]]
VOCABULARY, START = 11, 1

every_layout = pytest.mark.parametrize("packed", [False, True])


def batch(packed):
    def layout(sentences):
        return Sequences.pack(sentences) if packed else Sequences.pad(sentences, 0)

    targets = [[START, *label[:-1]] for label in LABELS]
    return Batch(layout(SOURCES), layout(targets), layout(LABELS).tokens, sum(map(len, LABELS)))


@pytest.fixture
def model():
    torch.manual_seed(1)
    sizes = {"dim": 8, "heads": 2, "hidden": 16, "encoder_layers": 1, "decoder_layers": 1, "longest": 8}
    return Transformer(TransformerConfig(**sizes, dropout=0.2), VOCABULARY, VOCABULARY)


@pytest.fixture
def seen(model, monkeypatch):
    """The targets the model reads, in order, and whether it is in training."""
    read, forward = [], model.forward

    def reading(source, target):
        read.append((target, model.decoder.training))
        return forward(source, target)

    monkeypatch.setattr(model, "forward", reading)
    return read


def rows(sequences):
    """The sentences without padding."""
    if sequences.packed:
        return [part.tolist() for part in sequences.tokens.split(sequences.lengths.tolist())]
    return [row[:size].tolist() for row, size in zip(sequences.tokens, sequences.lengths.tolist(), strict=True)]


@every_layout
@pytest.mark.parametrize(("most", "step"), [(0.5, 0), (0.0, 10)])
def test_while_nothing_is_replaced_it_is_the_likelihood_at_its_cost(model, seen, packed, most, step):
    torch.manual_seed(3)
    ours = ScheduledSampling(0.1, most, 10)(model, batch(packed), step)
    assert len(seen) == 1
    torch.manual_seed(3)
    theirs = LabelSmoothedLikelihood(0.1)(model, batch(packed))
    assert torch.equal(ours.total, theirs.total)
    assert torch.equal(ours.surprise, theirs.surprise)
    assert ours.units == theirs.units


@every_layout
def test_guesses_are_those_of_decoding_one_position_after_the_gold_ones(model, packed, monkeypatch):
    monkeypatch.setitem(projection._LOGITS, "cpu", 2 * VOCABULARY)  # several chunks
    found = guesses(model, batch(packed))
    assert model.training
    assert all(module.training for module in model.modules())
    model.eval()
    for given, source, label in zip(rows(replace(batch(packed).target, tokens=found)), SOURCES, LABELS, strict=True):
        state = model.start(model.encode(Sequences.pad([source], 0)))
        expected = []
        for token in [START, *label[:-1]]:
            logits, state = model.step(torch.tensor([[token]]), None, state)
            expected.append(int(logits.argmax()))
        assert given == expected


@every_layout
def test_replaced_inputs_are_the_guesses_for_that_place_and_the_start_stays(model, seen, packed):
    given = batch(packed)
    guessed = rows(replace(given.target, tokens=guesses(model, given)))
    seen.clear()
    loss = ScheduledSampling(0.1, 0.999999, 1)(model, given, 5)
    (first, training), (second, training_again) = seen
    assert not training
    assert training_again
    assert first is given.target
    for row, guess in zip(rows(second), guessed, strict=True):
        assert row == [START, *guess[:-1]]
    assert (second.tokens == given.target.tokens)[~given.target.present].all()
    assert loss.units == given.units
    assert given.target.tokens.tolist() == batch(packed).target.tokens.tolist()


@every_layout
def test_the_labels_stay_gold(model, packed):
    torch.manual_seed(4)
    ours = ScheduledSampling(0.0, 0.5, 1)(model.eval(), batch(packed), 1)
    torch.manual_seed(4)
    chosen = torch.rand(batch(packed).labels.shape) < 0.5
    target = batch(packed).target
    chosen &= target.present & (target.positions > 0)
    mixed = torch.where(chosen, guesses(model, batch(packed)).roll(1, -1), target.tokens)
    given = replace(batch(packed), target=replace(target, tokens=mixed))
    assert not torch.equal(mixed, target.tokens)
    torch.testing.assert_close(ours.surprise, LabelSmoothedLikelihood()(model, given).surprise)


def test_the_share_rises_in_a_straight_line_and_stays():
    objective = ScheduledSampling(0.1, 0.4, 100)
    assert [objective.share(step) for step in (0, 25, 50, 100, 1000)] == pytest.approx([0.0, 0.1, 0.2, 0.4, 0.4])
    assert ScheduledSampling(0.1, 0.4, 0).share(1) == 0.4


def test_about_the_share_is_replaced(model, seen):
    target = Sequences.pad([[START, *([3] * 7)]] * 200, 0)  # a guess of 3 cannot be told from the gold one
    given = Batch(Sequences.pad([[4, 2]] * 200, 0), target, target.tokens, 1600)
    with torch.no_grad():
        model.output.bias[5] = 100.0
        ScheduledSampling(0.1, 0.3, 1)(model, given, 1)
    replaced = (seen[-1][0].tokens == 5).float().mean(0).tolist()
    assert replaced[0] == 0.0
    assert sum(replaced[1:]) / 7 == pytest.approx(0.3, abs=0.06)


def test_autocast_does_not_take_the_gradient_away(model):
    with torch.backends.mkldnn.flags(enabled=False, allow_tf32=None), torch.autocast("cpu", torch.bfloat16):
        loss = ScheduledSampling(0.1, 0.5, 1)(model, batch(packed=False), 1)
        loss.total.backward()
    assert [name for name, weight in model.named_parameters() if weight.grad is None] == []
    assert model.encoder.layers[0].attention.inputs.weight.grad.abs().max() > 0


def test_it_is_an_objective():
    assert isinstance(ScheduledSampling(), Objective)

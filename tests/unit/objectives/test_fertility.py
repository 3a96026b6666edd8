from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
import torch

from headway.data.batches import Batch
from headway.data.config import DataConfig
from headway.data.tokenizer import TokenizerConfig
from headway.errors import ConfigError
from headway.models.fertility import FertilityConfig, FertilityTransformer
from headway.objectives import FertilityLikelihood, Objective, check_alignable
from headway.objectives.fertility import origins, true_fertilities
from headway.sequences import Sequences
from headway.training.memory import halves

SOURCES, TARGETS = [[4, 5, 6, 2], [7, 2], [8, 9, 2]], [[5, 6, 7, 7, 8], [9, 9], [3]]
LINKS = [{(0, 2), (1, 2), (2, 0), (4, 1), (4, 2)}, set(), {(0, 1)}]
VOCABULARY, START, END = 11, 1, 2
SIZES = {"dim": 8, "heads": 2, "hidden": 16, "encoder_layers": 1, "decoder_layers": 2, "longest": 12}


@pytest.fixture
def batch():
    read, given = (Sequences.pad(rows, 0) for rows in (SOURCES, [[START, *target] for target in TARGETS]))
    labels = Sequences.pad([[*target, END] for target in TARGETS], 0).tokens
    alignment = torch.zeros(3, given.longest, read.longest, dtype=torch.bool)
    for row, links in enumerate(LINKS):
        for target, source in links:
            alignment[row, target, source] = True
    return Batch(read, given, labels, sum(len(target) + 1 for target in TARGETS), alignment)


@pytest.fixture
def model():
    torch.manual_seed(1)
    return FertilityTransformer(FertilityConfig(**SIZES, largest_fertility=3), VOCABULARY, VOCABULARY).double().eval()


def origins_by_loops(links, sources, targets):
    """The same, token by token: linked tokens first, then each other one as its nearest neighbour."""
    found = {}
    for target in range(targets):
        own = [source for linked, source in links if linked == target]
        if own:
            place = Fraction(2 * target + 1, 2 * targets)
            found[target] = min(own, key=lambda source: (abs(place - Fraction(2 * source + 1, 2 * sources)), source))
    if not found:
        return [min((2 * target + 1) * sources // (2 * targets), sources - 1) for target in range(targets)]
    return [found[min(found, key=lambda other: (abs(other - target), other))] for target in range(targets)]


@pytest.mark.parametrize("seed", range(5))
def test_every_target_token_comes_from_exactly_one_source_token(seed):
    torch.manual_seed(seed)
    read, made = torch.randint(1, 7, (20,)), torch.randint(1, 9, (20,))
    source = Sequences.pad([[4] * int(size) + [END] for size in read], 0)
    written = Sequences.pad([[5] * int(size) for size in made], 0)
    links = torch.rand(20, written.longest, source.longest) < 0.2
    links &= written.present[:, :, None] & (torch.arange(source.longest) < read[:, None])[:, None]
    found, counts = origins(links, source, written), true_fertilities(links, source, written)
    for row, (sources, targets) in enumerate(zip(read.tolist(), made.tolist(), strict=True)):
        wanted = origins_by_loops(set(map(tuple, links[row].nonzero().tolist())), sources, targets)
        assert found[row, :targets].tolist() == wanted
        assert counts[row].tolist() == [wanted.count(place) for place in range(source.longest)]
    assert counts.sum(1).tolist() == made.tolist()


def test_the_loss_is_that_of_the_tokens_given_the_fertilities_and_of_these(model, batch):
    smoothing, total, surprise = 0.1, 0.0, 0.0
    for source, target, links in zip(SOURCES, TARGETS, LINKS, strict=True):
        places = origins_by_loops(links, len(source) - 1, len(target))
        counts = [places.count(place) for place in range(len(source))]
        encoded = model.encode(Sequences.pad([source], 0))
        chances = model.fertility(encoded.states)[0].softmax(-1)
        for place, count in enumerate(counts):
            missed = -chances[place, min(count, 3)].log().item()
            total, surprise = total + missed, surprise + missed
        copies = [token for token, count in zip(source, counts, strict=True) for _ in range(count)]
        states = model.decode(Sequences.pad([copies], 0), encoded).states[0]
        for state, token in zip(states, target, strict=True):
            levels = model.output(state).log_softmax(-1)
            surprise -= levels[token].item()
            total -= (1 - smoothing) * levels[token].item() + smoothing * levels.mean().item()
    loss = FertilityLikelihood(smoothing)(model, batch)
    assert isinstance(FertilityLikelihood(), Objective)
    assert loss.total.item() == pytest.approx(total, rel=1e-5)
    assert loss.surprise.item() == pytest.approx(surprise, rel=1e-5)
    assert loss.units == batch.units
    assert not loss.surprise.requires_grad


def test_splitting_a_batch_never_changes_the_gradient(model, batch):
    FertilityLikelihood(0.1)(model, batch).total.backward()
    whole = [weight.grad.clone() for weight in model.parameters()]
    model.zero_grad()
    for half in halves(batch):
        FertilityLikelihood(0.1)(model, half).total.backward()
    for weight, wanted in zip(model.parameters(), whole, strict=True):
        assert torch.allclose(weight.grad, wanted, atol=1e-6)


def test_every_weight_learns(model, batch):
    FertilityLikelihood()(model, batch).total.backward()
    still = [name for name, weight in model.named_parameters() if not weight.grad.abs().max() > 0]
    assert still == []


def test_without_alignments_it_cannot_be_had(model, batch):
    with pytest.raises(ConfigError, match="needs word alignments"):
        FertilityLikelihood()(model, replace(batch, alignment=None))


def test_settings_that_move_aligned_tokens_are_refused():
    data, config = DataConfig(source=Path("a"), target=Path("b")), FertilityConfig()
    check_alignable(config, data, TokenizerConfig())
    with pytest.raises(ConfigError, match="dropout: moves the tokens"):
        check_alignable(config, data, TokenizerConfig(dropout=0.1))
    with pytest.raises(ConfigError, match="word_dropout: moves the tokens"):
        check_alignable(config, data.model_copy(update={"word_dropout": 0.1}), TokenizerConfig())

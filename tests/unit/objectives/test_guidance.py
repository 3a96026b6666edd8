import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from headway.data.batches import Batch
from headway.data.config import DataConfig
from headway.data.tokenizer import TokenizerConfig
from headway.errors import ConfigError
from headway.models.bytenet import ByteNetConfig
from headway.models.recurrent import RecurrentConfig
from headway.models.transformer import Transformer, TransformerConfig
from headway.objectives import GuidedLikelihood, LabelSmoothedLikelihood, Objective, check_guidance
from headway.objectives.guidance import misalignment
from headway.sequences import Sequences

SOURCES, LABELS = [[4, 5, 2], [6, 2], [7, 8, 9, 2]], [[5, 6, 7, 2], [8, 2], [9, 2]]
LINKS = [{(0, 0), (1, 0), (1, 1)}, set(), {(0, 2)}]
VOCABULARY, START = 11, 1


@pytest.fixture
def batch():
    def padded(sentences):
        return Sequences.pad(sentences, 0)

    alignment = torch.zeros(3, 4, 4, dtype=torch.bool)
    for row, links in enumerate(LINKS):
        for target, source in links:
            alignment[row, target, source] = True
    targets = padded([[START, *label[:-1]] for label in LABELS])
    return Batch(padded(SOURCES), targets, padded(LABELS).tokens, sum(map(len, LABELS)), alignment)


def build(layers=1):
    torch.manual_seed(1)
    sizes = {"dim": 8, "heads": 2, "hidden": 16, "encoder_layers": 1, "decoder_layers": layers, "longest": 8}
    return Transformer(TransformerConfig(**sizes), VOCABULARY, VOCABULARY).double().eval()


@pytest.mark.parametrize(("layers", "layer"), [(1, 0), (2, 0), (3, 1)])
def test_what_is_added_is_the_cross_entropy_of_the_first_head_of_the_last_layer_but_one(batch, layers, layer):
    model = build(layers)
    plain, guided = LabelSmoothedLikelihood(0.1)(model, batch), GuidedLikelihood(0.1, 3.0)(model, batch)
    weights = (
        model.decode(batch.target, model.encode(batch.source), need_weights=True).cross_weights[layer][:, 0].tolist()
    )
    missed = 0.0
    for row, links in enumerate(LINKS):
        for target in {target for target, _ in links}:
            sources = [source for linked, source in links if linked == target]
            missed -= sum(math.log(weights[row][target][source]) for source in sources) / len(sources)
    assert guided.total.item() == pytest.approx(plain.total.item() + 3.0 * missed)
    assert guided.surprise.item() == pytest.approx(plain.surprise.item())
    assert guided.units == plain.units


def test_its_gradient_moves_the_attention_of_that_head_alone(batch):
    model = build(3)
    decoded = model.decode(batch.target, model.encode(batch.source), need_weights=True)
    misalignment(decoded.cross_weights[1][:, 0], batch.alignment).backward()
    slope = model.decoder.layers[1].cross.inputs.weight.grad.view(3, 2, 4, 8)  # query, key and value of two heads
    moved = slope.abs().amax((2, 3)) > 1e-9
    assert moved.tolist() == [[True, False], [True, False], [False, False]]
    assert model.decoder.layers[2].cross.inputs.weight.grad is None
    assert model.encoder.layers[0].attention.inputs.weight.grad.abs().max() > 0


def test_the_gradient_is_that_of_the_definition():
    torch.manual_seed(0)
    scores = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    linked = torch.rand(2, 3, 4) < 0.4
    assert torch.autograd.gradcheck(lambda x: misalignment(x.softmax(-1), linked), scores)


def test_attention_of_exactly_nothing_gives_no_infinity():
    scores = torch.tensor([[[0.0, 200.0, -math.inf]]], requires_grad=True)
    missed = misalignment(scores.softmax(-1), torch.tensor([[[True, False, False]]]))
    missed.backward()
    assert missed.isfinite()
    assert scores.grad.isfinite().all()


def test_without_weight_it_is_the_likelihood(batch):
    model = build(2)
    ours, theirs = GuidedLikelihood(0.1, 0.0)(model, batch), LabelSmoothedLikelihood(0.1)(model, batch)
    torch.testing.assert_close((ours.total, ours.surprise), (theirs.total, theirs.surprise))


def test_a_batch_without_alignment_is_refused_in_one_line(batch):
    with pytest.raises(ConfigError, match=r"set data\.alignment"):
        GuidedLikelihood(0.1, 1.0)(build(), replace(batch, alignment=None))


@pytest.mark.parametrize(
    ("alignment", "dropout", "layout", "told"),
    [
        (None, 0.0, "padded", r"there are no word alignments; set data\.alignment"),
        (Path("a"), 0.0, "packed", r"set training\.layout to padded"),
        (Path("a"), 0.1, "padded", r"tokenizer\.dropout moves the tokens"),
    ],
)
def test_settings_it_cannot_be_trained_with_are_refused(alignment, dropout, layout, told):
    data, tokenizer = DataConfig(source=Path("s"), alignment=alignment), TokenizerConfig(dropout=dropout)
    with pytest.raises(ConfigError, match=told):
        check_guidance(0.05, data, tokenizer, layout, TransformerConfig())
    check_guidance(0.0, data, tokenizer, layout, TransformerConfig())


def test_settings_it_can_be_trained_with_are_not():
    for layout in ("padded", None):
        check_guidance(
            0.05,
            DataConfig(source=Path("s"), alignment=Path("a")),
            TokenizerConfig(),
            layout,
            TransformerConfig(),
        )


def test_it_is_an_objective():
    assert isinstance(GuidedLikelihood(), Objective)


@pytest.mark.parametrize("model", [ByteNetConfig(), RecurrentConfig(attention="none")])
def test_a_model_that_looks_at_no_source_token_cannot_be_guided(model):
    data = DataConfig(source=Path("s"), alignment=Path("a"))
    with pytest.raises(ConfigError, match="has no attention to the source; leave"):
        check_guidance(0.05, data, TokenizerConfig(), "padded", model)

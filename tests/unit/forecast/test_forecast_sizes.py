"""Parameters, bytes, operations and traffic by formula, against real models."""

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from headway.data.batches import Batch
from headway.data.plan import Plan
from headway.forecast.sizes import Shapes, memory_by_part, outline, parameters, traffic
from headway.models.transformer import Transformer, TransformerConfig
from headway.nn.recomputing import recomputing
from headway.objectives import LabelSmoothedLikelihood
from headway.sequences import Sequences
from headway.training.config import TrainingConfig

SMALL = {"dim": 16, "heads": 2, "hidden": 24, "encoder_layers": 2, "decoder_layers": 1, "dropout": 0.0, "longest": 32}


@pytest.mark.parametrize("tie", ["three-way", "two-way", "none"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_the_parts_add_up_to_the_model_itself(tie, positions):
    config = TransformerConfig(**SMALL, tie=tie, positions=positions)
    counts = parameters(outline(config, 40, 40))
    assert sum(counts.values()) == sum(weight.numel() for weight in Transformer(config, 40, 40).parameters())
    matrices = {"three-way": 1, "two-way": 2, "none": 2}[tie]
    assert counts["embeddings"] == (40 * matrices + (32 if positions == "learned" else 0)) * 16
    assert counts["output"] == 40 + (40 * 16 if tie == "none" else 0)


def test_an_outline_takes_no_memory():
    assert {weight.device.type for weight in outline(TransformerConfig(preset="big"), 32_000, 32_000).parameters()} == {
        "meta"
    }


def kept(processes=1, **training):
    model = outline(TransformerConfig(**SMALL), 40, 40)
    return memory_by_part(model, TrainingConfig(**training), processes), 4 * sum(w.numel() for w in model.parameters())


def test_adam_keeps_two_moments_of_every_weight_and_a_checkpoint_all_but_gradients():
    parts, weights = kept()
    assert parts == {
        "weights": weights,
        "gradients": weights,
        "moments": 2 * weights,
        "moving average": 0,
        "copy for validation": 0,
        "copy for saving": 3 * weights,
    }


def test_an_average_costs_two_more_copies_and_is_saved_too():
    parts, weights = kept(ema=0.999)
    assert (parts["moving average"], parts["copy for validation"]) == (weights, weights)
    assert parts["copy for saving"] == 4 * weights


def test_muon_keeps_one_momentum_of_each_matrix():
    parts, weights = kept(optimiser="muon")
    model = outline(TransformerConfig(**SMALL), 40, 40)
    inner = sum(w.numel() for name, w in model.named_parameters() if w.dim() == 2 and "embedding" not in name)
    assert inner > 0
    assert parts["moments"] == 2 * weights - 4 * inner


def test_what_is_frozen_has_neither_gradients_nor_moments():
    parts, weights = kept(freeze=("encoder",))
    encoder = 4 * parameters(outline(TransformerConfig(**SMALL), 40, 40))["encoder"]
    assert parts["gradients"] == weights - encoder
    assert parts["moments"] == 2 * (weights - encoder)


def test_sharding_divides_what_copies_would_multiply():
    copied, weights = kept(processes=4)
    divided, _ = kept(processes=4, sharded=True)
    assert copied["gradients"] == weights  # what is exchanged is the gradients themselves
    assert [divided[name] for name in ("weights", "gradients", "moments")] == [weights // 4, weights // 4, weights // 2]
    assert divided["copy for saving"] == copied["copy for saving"]  # whole in the first process


def test_traffic_is_that_of_a_ring():
    model = outline(TransformerConfig(**SMALL), 40, 40)
    weights = 4 * sum(weight.numel() for weight in model.parameters())
    assert traffic(model, TrainingConfig(accumulate=3), 1) == 0
    assert traffic(model, TrainingConfig(accumulate=3), 4) == 2 * weights * 3 // 4
    assert traffic(model, TrainingConfig(accumulate=3, sharded=True), 4) == 3 * (3 * weights * 3 // 4)


@pytest.mark.parametrize("recompute", [False, True], ids=["once", "again"])
@pytest.mark.parametrize("kind", ["relu", "gelu", "gated", "convolutional"])
def test_operations_are_those_that_torch_counts(kind, recompute):
    config = TransformerConfig(**SMALL, feedforward=kind)
    model = Transformer(config, 40, 40)
    sources, targets = [[5] * 7, [6] * 7, [7] * 7], [[8] * 5, [9] * 5, [4] * 5]  # no padding, which kernels may skip
    batch = Batch(Sequences.pad(sources, 0), Sequences.pad(targets, 0), torch.tensor(targets), 15)
    counter = FlopCounterMode(display=False)
    with counter, recomputing(recompute), torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        LabelSmoothedLikelihood(0.1)(model, batch).total.backward()
    plan = Plan(np.arange(3), np.array([0, 3]), "padded", 100)
    shapes = Shapes.of(plan, np.full(3, 6, np.int32), np.full(3, 4, np.int32))
    (expected,) = shapes.operations(config, 40, TrainingConfig(recompute=recompute))
    summed_in_place = 2 * 15 * 16 * 40  # the gradient of the output matrix, which torch does not count
    assert counter.get_total_flops() + summed_in_place == expected


def test_padding_costs_and_packing_does_not():
    lengths = np.array([3, 9, 3, 9], np.int32)
    for layout, cells, squares in (("padded", [20, 20], [200, 200]), ("packed", [14, 14], [116, 116])):
        plan = Plan(np.array([0, 1, 3, 2]), np.array([0, 2, 4]), layout, 100)
        shapes = Shapes.of(plan, lengths, lengths)
        assert shapes.source.tolist() == shapes.target.tolist() == cells
        assert [each.tolist() for each in shapes.squares] == [squares] * 3
        assert shapes.tokens.tolist() == [14, 14]


def test_two_passes_cost_twice():
    plan = Plan(np.arange(2), np.array([0, 2]), "packed", 100)
    shapes, config = Shapes.of(plan, np.full(2, 6, np.int32), np.full(2, 4, np.int32)), TransformerConfig(**SMALL)
    plain, doubled = (shapes.operations(config, 40, TrainingConfig(r_drop=weight)) for weight in (0.0, 1.0))
    assert doubled.tolist() == (2 * plain).tolist()

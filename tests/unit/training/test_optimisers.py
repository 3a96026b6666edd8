import pytest
import torch
from torch import nn

from headway.errors import ConfigError
from headway.models.recurrent import Recurrent, RecurrentConfig
from headway.models.transformer import Transformer, TransformerConfig
from headway.training.config import TrainingConfig
from headway.training.muon import Muon
from headway.training.optimiser import Optimiser, freeze, matrices


@pytest.fixture
def model():
    torch.manual_seed(5)
    shape = {"dim": 16, "heads": 2, "hidden": 32, "encoder_layers": 1, "decoder_layers": 1}
    return Transformer(TransformerConfig(**shape, positions="learned", feedforward="convolutional"), 12, 12)


def moved(model, kind, *, decay=0.0, gradient=0.0):
    """By how much one update moves each weight, relative to itself, under a constant gradient."""
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    for weight in model.parameters():
        weight.grad = torch.full_like(weight, gradient)
    Optimiser(model, kind, (0.9, 0.98), decay).step(0.1)
    return {name: weight.detach() - before[name] for name, weight in model.named_parameters()}, before


def test_matrices_decay_and_biases_norms_embeddings_and_positions_do_not(model):
    changes, before = moved(model, "adamw", decay=0.5)
    inner = matrices(model)
    names = {name for name, weight in model.named_parameters() if weight in inner}
    assert names == {name for name in before if name.startswith(("encoder", "decoder")) and before[name].dim() > 1}
    for name, change in changes.items():
        torch.testing.assert_close(change, -0.05 * before[name] if name in names else torch.zeros_like(change))


def test_the_matrices_of_recurrent_layers_decay_too():
    model = Recurrent(RecurrentConfig(dim=8), 12, 12)
    names = {name for name, weight in model.named_parameters() if any(weight is each for each in matrices(model))}
    assert {"encoder.forwards.0.weights.weight_ih_l0", "decoder.layers.1.weights.weight_hh_l0"} <= names
    assert not any("bias" in name or "embedding" in name for name in names)


def test_adam_without_decay_leaves_weights_without_gradient_alone(model):
    changes, _ = moved(model, "adam")
    assert all(change.abs().max() == 0 for change in changes.values())


def test_muon_moves_matrices_by_an_orthogonal_update_and_the_rest_as_adamw(model):
    torch.manual_seed(6)
    weight = model.decoder.layers[0].cross.output.weight
    for each in model.parameters():
        each.grad = torch.randn_like(each)
    before = {name: each.detach().clone() for name, each in model.named_parameters()}
    optimiser = Optimiser(model, "muon", (0.9, 0.98))
    optimiser.step(0.1)
    change = weight.detach() - before["decoder.layers.0.cross.output.weight"]
    values = torch.linalg.svdvals(change)
    assert values.max() / values.min() < 3  # a random gradient's are hundreds of times apart
    assert set(optimiser.state(weight)) == {"momentum_buffer"}
    bias = model.output.bias
    torch.testing.assert_close((bias - before["output.bias"]).abs(), torch.full_like(bias, 0.1), atol=1e-4, rtol=1e-3)
    assert "exp_avg" in optimiser.state(bias)


@pytest.mark.parametrize("shape", [(16, 48), (48, 16), (8, 8)])
def test_muon_is_torch_s_muon(shape):
    torch.manual_seed(7)
    ours, theirs = (nn.Parameter(torch.randn(shape, generator=torch.manual_seed(1))) for _ in range(2))
    mine = Muon([ours], weight_decay=0.1)
    reference = torch.optim.Muon([theirs], lr=0.02, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    for group in mine.param_groups:
        group["lr"] = 0.02
    with torch.backends.mkldnn.flags(
        enabled=False, allow_tf32=None
    ):  # torch's computes in bfloat16, which some CPUs' library dies of
        for _ in range(4):
            ours.grad = torch.randn(shape)
            theirs.grad = ours.grad.clone()
            mine.step()
            reference.step()
    torch.testing.assert_close(ours, theirs, atol=2e-3, rtol=2e-2)


def test_the_state_of_every_weight_can_be_read_and_set(model):
    for weight in model.parameters():
        weight.grad = torch.randn_like(weight)
    first, second = (Optimiser(model, "muon", (0.9, 0.98)) for _ in range(2))
    first.step(0.0)
    for weight in model.parameters():
        second.remember(weight, first.state(weight))
        assert second.state(weight).keys() == first.state(weight).keys() != set()


def test_frozen_parts_do_not_move_and_unknown_ones_are_refused_with_the_known(model):
    freeze(model, ("encoder", "target_embedding"))
    frozen = {name for name, weight in model.named_parameters() if not weight.requires_grad}
    assert frozen == {
        name for name, _ in model.named_parameters() if name.startswith(("encoder.", "target_embedding."))
    }
    with pytest.raises(ConfigError, match=r"no part of the model is called encode;.*encoder, decoder"):
        freeze(model, ("encode",))
    with pytest.raises(ConfigError, match="nothing is left to learn"):
        freeze(nn.Sequential(nn.Linear(2, 2)), ("0",))


def test_a_frozen_encoder_stays_as_it_was_while_the_rest_learns(trainer):
    made = trainer(freeze=["encoder"])
    before = {name: weight.detach().clone() for name, weight in made.model.named_parameters()}
    _, batches = made.feed.epoch(0, 0)
    made.update([next(batches)])
    moved = {name for name, weight in made.model.named_parameters() if not torch.equal(weight, before[name])}
    assert moved == {name for name in before if not name.startswith("encoder.")}


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_other_optimisers_resume_exactly(kind, recipe, run, tmp_path, interrupted_at):
    settings = recipe(optimiser=kind, weight_decay=0.01, ema=0.9)
    interrupted_at(settings, tmp_path, 6)


def test_settings_that_do_not_go_together_are_refused():
    for wrong, told in (
        ({"weight_decay": 0.1}, "not Adam's"),
        ({"optimiser": "muon", "sharded": True}, "whole matrices"),
        ({"r_drop": 1.0, "scheduled_sampling": 0.2}, "cannot be combined"),
        ({"schedule": "cosine", "curriculum": 2}, "epochs of unequal length"),
    ):
        with pytest.raises(ValueError, match=told):
            TrainingConfig(**wrong)

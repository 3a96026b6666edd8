"""Layers computed again backwards against layers that keep all they made."""

import threading

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from headway.data.batches import Batch
from headway.models.transformer import Transformer, TransformerConfig
from headway.nn import dropout as doors
from headway.nn import recomputing as place
from headway.nn.linear import Linear, as_lowered, lowered
from headway.nn.recomputing import recomputing
from headway.objectives import ConsistentLikelihood, GuidedLikelihood, LabelSmoothedLikelihood, ScheduledSampling
from headway.sequences import Sequences
from headway.training.passes import Pass

CPU = torch.device("cpu")
SOURCES, TARGETS = [[5, 6, 7, 8, 9], [4, 9], [8, 5, 4, 6, 6, 7, 9]], [[1, 6, 7], [1, 9, 8, 7, 6, 5], [1, 4, 4, 5]]
DROPPING = {"dropout": 0.2, "attention_dropout": 0.2, "activation_dropout": 0.2}
SHAPES = [
    {},
    {"norm": "pre", "feedforward": "gated", "positions": "rotary"},
    {"norm": "pre", "feedforward": "gelu", "positions": "alibi"},
    {"feedforward": "convolutional", "positions": "relative"},
]
shapes = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "-".join(shape.values()) or "plain")
layouts = pytest.mark.parametrize("layout", ["padded", "packed"])


def build(layers=2, dim=16, **shape):
    torch.manual_seed(1)
    sizes = {"dim": dim, "heads": 1, "hidden": 2 * dim, "encoder_layers": layers, "decoder_layers": layers}
    return Transformer(TransformerConfig(**sizes, longest=16, **{**DROPPING, **shape}), 20, 20).train()


def batch_of(layout):
    source, target = (
        Sequences.pack(each) if layout == "packed" else Sequences.pad(each, 0) for each in (SOURCES, TARGETS)
    )
    linked = None if layout == "packed" else torch.ones(3, target.longest, source.longest, dtype=torch.bool)
    return Batch(source, target, target.tokens.roll(-1), int(target.lengths.sum()), linked)


def learnt(model, objective, batch, recompute, step=1):
    """The loss, all gradients, and where torch's generator then is."""
    torch.manual_seed(7)
    model.zero_grad(set_to_none=True)
    loss = Pass(model, objective, recompute=recompute)(batch, step)
    loss.total.backward()
    return loss.total, {name: weight.grad for name, weight in model.named_parameters()}, torch.get_rng_state()


def assert_same(mine, other):
    assert torch.equal(mine[0], other[0])
    assert all(torch.equal(gradient, other[1][name]) for name, gradient in mine[1].items())
    assert torch.equal(mine[2], other[2])


@shapes
@layouts
@pytest.mark.parametrize(
    "objective", [LabelSmoothedLikelihood(0.1), ConsistentLikelihood(0.1, 5.0)], ids=["one", "two"]
)
def test_loss_and_gradients_are_those_of_layers_that_keep_everything(shape, layout, objective):
    model, batch = build(**shape), batch_of(layout)
    assert_same(*(learnt(model, objective, batch, recompute) for recompute in (True, False)))


@pytest.mark.parametrize(
    "objective", [GuidedLikelihood(0.1, 0.5), ScheduledSampling(0.1, 0.5)], ids=["guided", "mixed"]
)
def test_weights_that_are_asked_for_and_passes_without_gradients_change_nothing(objective):
    model, batch = build(), batch_of("padded")
    assert_same(*(learnt(model, objective, batch, recompute, step=5) for recompute in (True, False)))


@layouts
def test_under_autocast_the_second_pass_has_the_precision_of_the_first(layout):
    model, batch = build(), batch_of(layout)
    with torch.autocast("cpu", torch.bfloat16):
        found = [learnt(model, LabelSmoothedLikelihood(), batch, recompute) for recompute in (True, False)]
    assert_same(*found)


def test_what_does_not_learn_may_stand_below_what_does():
    model, batch = build(), batch_of("padded")
    for part in (model.target_embedding, model.encoder):
        part.requires_grad_(False)
    mine, other = (learnt(model, LabelSmoothedLikelihood(), batch, recompute) for recompute in (True, False))
    assert mine[1]["encoder.layers.0.attention.inputs.weight"] is None
    learns = {name: gradient for name, gradient in mine[1].items() if gradient is not None}
    assert any(name.startswith("decoder") for name in learns)
    assert all(torch.equal(gradient, other[1][name]) for name, gradient in learns.items())


def test_layers_run_twice_where_gradients_are_wanted_and_once_elsewhere():
    model, batch = build(), batch_of("padded")
    calls = []
    for layer in (*model.encoder.layers, *model.decoder.layers):
        layer.register_forward_pre_hook(lambda module, _: calls.append(module))
    forward = Pass(model, LabelSmoothedLikelihood(), recompute=True)
    forward(batch, 1).total.backward()
    assert len(calls) == 8
    assert calls[4:] == calls[3::-1]  # the last layer's gradients come first
    calls.clear()
    with torch.no_grad():
        forward(batch, 1)
    Pass(model, LabelSmoothedLikelihood())(batch, 1).total.backward()
    assert len(calls) == 8


def kept(model, recompute):
    """Bytes that are kept for the backward pass, each storage once, weights left out."""
    sentences = Sequences.pad([[4 + (row + cell) % 16 for cell in range(12)] for row in range(40)], 0)
    known = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    storages = {}

    def pack(tensor):
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor  # which keeps it, so that no other storage takes its place

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), recomputing(recompute):
        states = model(sentences, sentences)
    assert states.requires_grad
    return sum(size for place, size in storages.items() if place not in known)


def test_less_than_a_fifth_is_kept_by_a_model_of_six_layers():
    model = build(layers=6, dim=32)
    assert kept(model, recompute=True) < kept(model, recompute=False) / 5


def test_a_seed_drawn_once_is_drawn_again_and_new_ones_join_it():
    chance = pytest.importorskip("headway.nn.chance")
    seeds = []
    with chance.ahead(CPU, count=2), chance.again(seeds, CPU):
        drawn = [int(chance.new_seed(CPU)) for _ in range(3)]  # one more than were drawn ahead
    assert [int(seed) for seed in seeds] == drawn
    for _ in range(2):
        with chance.again(seeds, CPU):
            assert [int(chance.new_seed(CPU)) for _ in range(3)] == drawn
    assert len(seeds) == 3
    assert int(chance.new_seed(CPU)) not in drawn


def test_maps_multiply_again_as_they_did_and_are_left_as_they_were_found():
    layer = torch.nn.Sequential(Linear(4, 6), Linear(6, 4))
    x = torch.randn(3, 4)
    with lowered(layer, torch.bfloat16):
        low, again = layer(x), as_lowered(layer)
    with again():
        assert layer(x).dtype == torch.bfloat16 and torch.equal(layer(x), low)
        layer[0](x, slice(3))  # which remembers halves
        assert layer[0]._halves is not None
    assert all(module._low is None and module._halves is None for module in layer)
    assert layer(x).dtype == torch.float32


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """Open the doors to our kernels, interpreted, and let nothing turn torch's generator back, as in a graph."""
    pytest.importorskip("triton")
    from headway.nn import chance, elements
    from headway.nn.attention import short

    monkeypatch.setattr(doors, "fused_here", lambda x, probability, training: training and probability < 1.0)
    monkeypatch.setattr(doors, "element_kernels", lambda: elements)
    monkeypatch.setattr(doors, "_chance", lambda device: chance)
    monkeypatch.setattr(short, "ON_CPU", True)
    unturned = lambda *given, **more: checkpoint(*given, **{**more, "preserve_rng_state": False})  # noqa: E731
    monkeypatch.setattr(place, "checkpoint", unturned)


@pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are interpreted only where there is no GPU")
@pytest.mark.parametrize("shape", [{}, {"norm": "pre", "feedforward": "gated"}], ids=["post", "pre"])
def test_kernels_draw_the_same_masks_again_without_torchs_generator_and_in_another_thread(as_on_a_gpu, shape):
    """As the backward pass of a GPU, which runs in a thread of its own, after the weights' copies are gone."""
    model, batch = build(layers=1, **shape), batch_of("packed")
    found = []
    for recompute in (True, False):
        torch.manual_seed(7)
        model.zero_grad(set_to_none=True)
        with recomputing(recompute), lowered(model, torch.float32), doors.seeds_ahead(CPU):
            loss = LabelSmoothedLikelihood(0.1)(model, batch)
        torch.manual_seed(8)
        thread = threading.Thread(target=loss.total.backward)
        thread.start()
        thread.join()
        found.append((loss.total, {name: weight.grad for name, weight in model.named_parameters()}, torch.zeros(1)))
    assert_same(*found)

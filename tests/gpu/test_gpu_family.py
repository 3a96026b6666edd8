"""Every architecture on a GPU: it computes what the CPU computes, learns in half precision, and writes by graphs."""

import random
from copy import deepcopy
from itertools import product

import pytest
import torch

from headway.assemble import train
from headway.config import validated
from headway.engine import Engine
from headway.engine.readiness import ready
from headway.models.catalog import CATALOG, read_model_config
from headway.recipe import Recipe
from headway.screen import Silent
from headway.search import DecodingConfig, Request, Symbols, graphs
from headway.sequences import Sequences
from headway.translator import load

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]
GPU = torch.device("cuda")
SYMBOLS = Symbols(1, 2, (0, 1))
VOCABULARY = 3000
LAYERED = {"dim": 64, "heads": 4, "hidden": 128, "encoder_layers": 2, "decoder_layers": 2}
SHAPES = {
    "transformer": LAYERED,
    "restricted": {"architecture": "transformer", "window": 4, **LAYERED},
    "recurrent": {"dim": 64},
    "local": {"architecture": "recurrent", "dim": 64, "attention": "multiplicative", "window": "local-p"},
    "bottleneck": {"architecture": "recurrent", "dim": 64, "attention": "none", "cell": "lstm"},
    "convolutional": {"dim": 64, "encoder_layers": 2, "decoder_layers": 2},
    "bytenet": {"dim": 64, "encoder_layers": 2, "decoder_layers": 2},
    "hierarchical": {"dim": 64},
    "fertility": LAYERED,
    "mask-predict": LAYERED,
    "ctc": LAYERED,
    "slots of states": {"architecture": "ctc", "encoder": "recurrent", **LAYERED},
}
WAYS = [
    ("fertility", {"fertilities": "argmax"}),
    ("fertility", {"fertilities": "average"}),
    ("fertility", {"fertilities": "noisy", "beam": 5, "nbest": 3}),
    ("mask-predict", {"beam": 1, "iterations": 1}),
    ("mask-predict", {"beam": 3, "nbest": 3, "iterations": 5}),
    ("ctc", {"beam": 1}),
    ("ctc", {"beam": 3, "nbest": 2}),
]


def config_of(name, **settings):
    return read_model_config({"architecture": name, "longest": 128, **SHAPES[name], **settings}, name)


def built(name):
    torch.manual_seed(3)
    config = config_of(name, dropout=0.0)
    model = CATALOG[config.architecture][1](config, VOCABULARY, VOCABULARY)
    model.prepare([f"w{place}" for place in range(VOCABULARY)])
    with torch.no_grad():
        for each, weight in model.named_parameters():
            if each in ("fertility.weight", "length.weight"):
                weight.mul_(20.0)
    return model.eval()


def drawn(count, seed=1):
    chance = random.Random(seed)
    return [tuple(chance.randrange(3, VOCABULARY) for _ in range(chance.randint(1, 30))) for _ in range(count)]


def asked(count, seed=1):
    return [Request(source, seed=place) for place, source in enumerate(drawn(count, seed))]


@pytest.mark.parametrize("name", SHAPES)
def test_states_and_gradients_are_those_of_the_cpu(name):
    here = built(name)
    there = deepcopy(here).cuda()
    source = Sequences.pad([[*row, 2] for row in drawn(5)], 0)
    target = Sequences.pad([[1, *row] for row in drawn(5, seed=2)], 0)
    found = []
    for model, device in ((here, "cpu"), (there, "cuda")):
        states = model(source.to(device), target.to(device))
        states.float().square().mean().backward()
        gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
        found.append((states.detach().cpu(), torch.cat([each.flatten().cpu() for each in gradients])))
    for mine, right in zip(found[1], found[0], strict=True):
        assert ((mine - right).norm() / right.norm()).item() < 1e-3


@pytest.mark.parametrize("name", SHAPES)
def test_it_learns_in_half_precision_and_writes_what_it_learnt(name, tmp_path):
    chance = random.Random(1)
    lines = [" ".join(chance.choice("abcdefgh") for _ in range(chance.randint(2, 9))) for _ in range(2000)]
    (tmp_path / "source").write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "target").write_text("".join(f"{line.upper()}\n" for line in lines))
    tree = {
        "data": {"folder": str(tmp_path), "source": "source", "target": "target"},
        "tokenizer": {"kind": "words"},
        "model": config_of(name, longest=32).model_dump(),
        "training": {"steps": 600, "batch_tokens": 1024, "validate_every": 200, "average": 1, "samples": 0,
                     "warmup": 50, "learning_rate": 0.004, "precision": "bf16", "layout": "padded"},
    }  # fmt: skip
    recipe = validated(Recipe, tree, "test")
    train(recipe, tmp_path / "run", device=GPU, screen=Silent())
    translator = load(tmp_path / "run", device=GPU)
    outputs = [str(each) for each in translator(lines[:200])]
    right = sum(output == line.upper() for output, line in zip(outputs, lines, strict=False))
    assert right > (20 if name == "bottleneck" else 140), right


@pytest.mark.parametrize(("way", "count"), list(product(WAYS, [1, 5])))
def test_graphs_write_what_kernel_after_kernel_writes_and_the_cpu(way, count, monkeypatch):
    kind, settings = way
    model, config = built(kind).cuda(), DecodingConfig(**settings)
    host = Engine(ready(deepcopy(model).cpu()), SYMBOLS)
    straight = Engine(ready(deepcopy(model)), SYMBOLS)
    engine = Engine(model, SYMBOLS)
    with torch.no_grad():  # a graph reads the weights anew
        for weight in model.parameters():
            weight.mul_(2.0)
    engine.search(asked(count, seed=4), config)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(0.5)
    straight.search(asked(count, seed=4), config)
    answers = [each.search(asked(count), config) for each in (engine, straight, host)]
    monkeypatch.setattr(graphs, "SMALL", 0)
    answers += [each.search(asked(count), config) for each in (engine, straight)]
    for other in answers[1:]:
        for found, expected in zip(answers[0], other, strict=True):
            assert [each.tokens for each in found] == [each.tokens for each in expected]
            assert [each.score for each in found] == pytest.approx([each.score for each in expected], abs=2e-3)


def test_a_model_is_forgotten_with_its_graphs():
    from gc import collect
    from weakref import ref

    for name in ("transformer", "fertility"):
        model = built(name).cuda()
        Engine(model, SYMBOLS).search(asked(2), DecodingConfig())
        gone = ref(model)
        del model
        collect()
        assert gone() is None, name

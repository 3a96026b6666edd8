"""`headway reproduce bottleneck` in very small: what is asked of the models, and what is told of them."""

import random

import pytest
import torch

from headway.data.demos import Pair
from headway.models.catalog import CATALOG, read_model_config
from headway.reproduce import bottleneck
from headway.reproduce.experiment import Scale

KNOWN = [Pair("un deux", "one two"), Pair("un deux trois", "one two three")]


@pytest.fixture
def scale(tmp_path, monkeypatch):
    monkeypatch.setattr(bottleneck, "PHRASES", 100)
    return Scale(tmp_path, torch.device("cpu"), (1,), 0.01)


@pytest.mark.parametrize("words", [2, 5, 6, 7, 12])
def test_sentences_are_phrases_in_order_of_exactly_so_many_words(words):
    source, target = bottleneck._joined(random.Random(1), KNOWN, words)
    assert len(source.split()) == words
    names = {pair.source: pair.target for pair in KNOWN}
    assert target == " , ".join(names[phrase] for phrase in source.split(" , "))


def test_the_models_are_about_equally_large():
    sizes = []
    for settings in bottleneck.MODELS.values():
        config = read_model_config(settings, "model")
        model = CATALOG[config.architecture][1](config, 770, 350)
        sizes.append(sum(weight.numel() for weight in model.parameters()))
    assert max(sizes) < 1.1 * min(sizes)


def test_quality_is_told_by_model_and_length(scale, monkeypatch):
    def reached(work, tasks, scale):
        for name, _ in tasks:
            lost = 2.0 if name == "fixed context" else 0.0
            share = {length: 90.0 - lost * length for length in bottleneck.LENGTHS}
            yield bottleneck.Reached(share, share, 1000)

    monkeypatch.setattr(bottleneck, "TRAINED", 10)
    monkeypatch.setattr(bottleneck, "each", reached)
    told = []
    report = bottleneck.run(scale, told.append)
    assert len(told) == len(bottleneck.MODELS)
    assert report.tables[0].rows[0] == ("fixed context", 1000, "80.0", "70.0", "60.0", "50.0", "40.0", "30.0")
    assert "fixed context from 80 to 30; attention from 90 to 90" in report.answer
    assert report.plots[0].lines["fixed context"][-1] == (30.0, 30.0)


def test_a_model_is_trained_and_judged_at_every_length(scale, monkeypatch):
    monkeypatch.setattr(bottleneck, "TRAINED", 100)
    monkeypatch.setattr(bottleneck, "EACH", 3)
    monkeypatch.setattr(bottleneck, "MODELS", {"attention": {**bottleneck.RECURRENT, "dim": 16}})
    report = bottleneck.run(scale, lambda line: None)
    (row,) = report.tables[0].rows
    assert len(row) == 2 + len(bottleneck.LENGTHS)
    assert report.tables[1].rows[0][2] == "0.0"

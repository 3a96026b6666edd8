"""A run small enough to be trained in a second."""

import random
from pathlib import Path

import pytest
import torch

from headway.assemble import train
from headway.config import validated
from headway.recipe import Recipe


class Quiet:
    """A screen that remembers what it was shown."""

    def __init__(self):
        self.lines, self.updates, self.hook = [], [], lambda update: None

    def say(self, line):
        self.lines.append(line)

    def working(self, what, done, total):
        pass

    def updated(self, update):
        self.updates.append(update)
        self.hook(update)


@pytest.fixture
def screen():
    return Quiet()


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    chance = random.Random(3)
    words = ["un", "deux", "trois", "quatre", "cinq", "six", "sept", "huit"]
    sentences = [[chance.choice(words) for _ in range(chance.randint(2, 7))] for _ in range(300)]
    (folder / "source").write_text("".join(" ".join(each) + "\n" for each in sentences))
    (folder / "target").write_text("".join(" ".join(reversed(each)).upper() + "\n" for each in sentences))
    return folder


@pytest.fixture
def recipe(corpus):
    def build(**training):
        tree = {
            "data": {"folder": str(corpus), "source": "source", "target": "target", "held_out": 20},
            "tokenizer": {"vocabulary": 300},
            "model": {"dim": 16, "heads": 2, "hidden": 32, "encoder_layers": 1, "decoder_layers": 1, "longest": 64,
                      "dropout": 0.1, "attention_dropout": 0.1, "activation_dropout": 0.1},
            "training": {"steps": 12, "batch_tokens": 256, "validate_every": 4, "average": 2, "samples": 1,
                         "validation_sentences": 4, "learning_rate": 0.003, "log_every": 1} | training,
        }  # fmt: skip
        return validated(Recipe, tree, "test")

    return build


@pytest.fixture
def run(screen):
    def start(recipe, out: Path, **options):
        return train(recipe, out, device=torch.device("cpu"), screen=screen, **options)

    return start

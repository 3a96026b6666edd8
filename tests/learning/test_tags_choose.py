"""Two corpora with one source language: the tags alone say what is wanted."""

import random

import torch

from headway.assemble import train
from headway.config import validated
from headway.recipe import Recipe
from headway.translator import load


class Quiet:
    def say(self, line):
        pass

    def working(self, what, done, total):
        pass

    def updated(self, update):
        pass


def test_a_model_of_two_corpora_does_what_the_tag_says(tmp_path):
    chance = random.Random(1)
    words = ["un", "deux", "trois", "quatre", "cinq", "six"]
    tasks = {
        "capitals": (400, str.upper),
        "digits": (100, lambda line: " ".join(str(words.index(word)) for word in line.split())),
    }
    for name, (count, task) in tasks.items():
        lines = [" ".join(chance.choices(words, k=chance.randint(2, 5))) for _ in range(count)]
        (tmp_path / f"{name}.tsv").write_text("".join(f"{line}\t{task(line)}\n" for line in lines))
    corpora = [{"source": f"{name}.tsv", "tags": [name]} for name in tasks]
    model = {"dim": 64, "heads": 2, "hidden": 128, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.0}
    training = {"steps": 200, "batch_tokens": 512, "learning_rate": 0.004, "curriculum": 2, "samples": 0}
    recipe = {
        "data": {"folder": str(tmp_path), "corpora": corpora, "temperature": 5.0},
        "tokenizer": {"kind": "words"},
        "model": {**model, "longest": 32},
        "training": {**training, "validate_every": 100, "validation_sentences": 1},
    }
    folder = tmp_path / "run"
    train(validated(Recipe, recipe, "test"), folder, device=torch.device("cpu"), screen=Quiet())
    translator = load(folder)
    fresh = ["un deux trois", "six cinq", "quatre un six deux"]
    for name, (_, task) in tasks.items():
        assert translator(fresh, tags=[name]) == [task(line) for line in fresh]

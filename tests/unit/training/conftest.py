"""A run small enough to be trained in a second."""

import itertools
import json
import os
import random
import signal
from pathlib import Path

import pytest
import torch

from headway.assemble import train, trainer_of
from headway.beginning import begin, resumed
from headway.config import validated
from headway.errors import Interrupted
from headway.folders import sha256
from headway.recipe import Recipe
from headway.training.parallel import ALONE
from headway.training.signals import Stopper
from headway.training.trainer import Trainer


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
def ticking(monkeypatch):
    """A clock that goes on whenever a trainer looks at it, however fast the machine is."""
    clock, fit = (0.05 * looks for looks in itertools.count()), Trainer.fit

    def fitted(trainer):
        trainer.clock = clock.__next__
        return fit(trainer)

    monkeypatch.setattr(Trainer, "fit", fitted)


@pytest.fixture
def run(screen):
    def start(recipe, out: Path, **options):
        return train(recipe, out, device=torch.device("cpu"), screen=screen, **options)

    return start


@pytest.fixture
def trainer(recipe, tmp_path, screen):
    """A run that was begun but has not taken a step."""

    def build(settings=None, **training):
        out, device = tmp_path / f"trainer{len(made)}", torch.device("cpu")
        settings = settings or recipe(**training)
        begin(settings, out, device=device, screen=screen)
        made.append(trainer_of(*resumed(settings, out, screen), out, device, screen, ALONE, Stopper()))
        return made[-1]

    made = []
    yield build
    for each in made:
        each.journal.close()


@pytest.fixture
def state_of():
    """Gives the digests of everything a checkpoint holds, but for what clocks say."""

    def state(out, step):
        folder = out / "checkpoints" / f"step-{step:09d}"
        progress = json.loads((folder / "progress.json").read_text())
        for clock in ("seconds", "validating"):
            progress.pop(clock)
        return {path.name: sha256(path) for path in folder.glob("*.safetensors")} | {"progress": progress}

    return state


@pytest.fixture
def interrupted_at(run, screen, state_of):
    """Trains unbroken, and again with a signal at some step and a resume: both must end alike to the last bit."""

    def compare(settings, folder, step):
        def interrupt(update):
            if update.step == step:
                os.kill(os.getpid(), signal.SIGTERM)

        run(settings, folder / "whole")
        screen.hook = interrupt
        with pytest.raises(Interrupted) as stopped:
            run(settings, folder / "broken")
        assert stopped.value.exit_code == 143
        assert f"step {step}" in str(stopped.value)
        screen.hook = lambda update: None
        run(settings, folder / "broken", resume=True)
        last = settings.training.steps
        assert state_of(folder / "broken", last) == state_of(folder / "whole", last)
        models = [sha256(folder / name / "best/model.safetensors") for name in ("broken", "whole")]
        assert models[0] == models[1]

    return compare

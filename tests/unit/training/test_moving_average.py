import torch
from safetensors.torch import load_file
from torch import nn

from headway.training.average import MovingAverage
from headway.training.checkpoint import parameters
from headway.training.trainer import Trainer, Validation
from headway.validation import Validator


def test_the_average_follows_the_weights_and_forgets_faster_at_first():
    model = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(0.0)
    average = MovingAverage(model, 0.9)
    expected = 0.0
    for step in range(1, 200):
        with torch.no_grad():
            model.weight.fill_(float(step))
        average.update(step)
        decay = min(0.9, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * step
        assert abs(float(average.weights["weight"]) - expected) < 1e-2
    assert 185 < expected < 195  # some ten steps behind


def test_what_is_validated_and_kept_is_the_average(recipe, run, tmp_path, monkeypatch):
    expected, found, fit = {}, [], Trainer.fit

    def followed(trainer):
        """Works the average out beside the trainer, from the weights after every update."""
        expected.update({name: weight.clone() for name, weight in parameters(trainer.model).items()})

        def updated(update):
            decay = min(0.5, (1 + update.step) / (10 + update.step))
            for name, weight in parameters(trainer.model).items():
                expected[name].mul_(decay).add_(weight, alpha=1 - decay)

        trainer.on_update = updated
        return fit(trainer)

    def validated(_, model, check):
        torch.testing.assert_close(parameters(model), expected)
        found.append(parameters(model)["output.bias"].clone())
        return Validation({"loss": 1.0 / len(found)}, [])

    monkeypatch.setattr(Trainer, "fit", followed)
    monkeypatch.setattr(Validator, "__call__", validated)
    run(recipe(ema=0.5, steps=8, average=1), tmp_path / "run")
    assert len(found) == 3  # of two checkpoints, and of the model in the end
    torch.testing.assert_close(load_file(tmp_path / "run/best/model.safetensors"), expected)
    weights = load_file(tmp_path / "run/checkpoints/step-000000008/model.safetensors")
    assert not torch.allclose(weights["output.bias"], expected["output.bias"], atol=1e-4)


def test_the_average_goes_on_exactly_after_a_resume(recipe, tmp_path, interrupted_at):
    interrupted_at(recipe(ema=0.7), tmp_path, 5)

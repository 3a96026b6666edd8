import torch
from safetensors.torch import load_file
from torch import nn

from headway.training.average import MovingAverage


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


def test_what_is_validated_and_kept_is_the_average(recipe, run, tmp_path):
    """At a decay of nearly one the average hardly leaves the start, while the weights move."""
    run(recipe(ema=0.5, steps=8, average=1), tmp_path / "run")
    folder = max((tmp_path / "run/checkpoints").iterdir())
    weights, averages = load_file(folder / "model.safetensors"), load_file(folder / "average.safetensors")
    kept = load_file(tmp_path / "run/best/model.safetensors")
    best = [path for path in (tmp_path / "run/checkpoints").iterdir() if (path / "average.safetensors").exists()]
    candidates = [load_file(path / "average.safetensors") for path in best]
    assert any(all(torch.equal(kept[name], each[name]) for name in kept) for each in candidates)
    assert any(not torch.equal(weights[name], averages[name]) for name in weights)


def test_the_average_goes_on_exactly_after_a_resume(recipe, tmp_path, interrupted_at):
    interrupted_at(recipe(ema=0.7), tmp_path, 5)

"""`model.window` in a recipe, from training to what one looks at."""

import torch

from headway.translator import load


def test_a_model_with_a_window_is_trained_asked_and_looked_at_but_not_exported(headway, train, tmp_path):
    train(model__window=3, model__longest=32).lines  # noqa: B018  # raises unless it went well
    folder = tmp_path / "run" / "best"
    config = load(folder).model.config
    assert config.window == 3
    assert headway("translate", folder, stdin=b"le chat voit la pomme .\n").code == 0
    assert headway("attention", folder, "le chat voit la pomme .", "--out", tmp_path / "page.html").code == 0
    attention = load(folder)("le chat voit la pomme .").attention
    for weights, side in ((torch.as_tensor(attention.encoder), 1), (torch.as_tensor(attention.decoder), 2)):
        apart = torch.arange(weights.shape[-1]) - torch.arange(weights.shape[-2])[:, None]
        assert (weights[..., apart.abs() > side] == 0).all()
        assert (weights[..., apart == 0] > 0).all()
    told = headway("export", folder, "--to", "ctranslate2", "--output", tmp_path / "out").only_complaint
    assert "window" in told


def test_a_dry_run_reckons_with_a_window(train):
    assert train("--dry-run", model__window=3).code == 0


def test_a_window_that_sees_nothing_is_refused_in_one_line(train):
    assert "model.window" in train(model__window=0).only_complaint

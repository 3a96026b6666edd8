import json

import pytest
import torch

from headway import beginning
from headway.errors import ConfigError, HeadwayError, out_of_memory
from headway.sequences import Sequences
from headway.training.memory import cells, halves, largest_budget, parts

LAYOUTS = pytest.mark.parametrize("layout", ["padded", "packed"])


class Small:
    """An objective for which every batch of this many cells is too large, forward or backward."""

    def __init__(self, objective, room, where):
        self.objective, self.room, self.where, self.met = objective, room, where, []

    def __call__(self, model, batch, step):
        self.met.append(cells(batch))
        if cells(batch) >= self.room and self.where == "forward":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        loss = self.objective(model, batch, step)
        if cells(batch) >= self.room:
            loss = loss._replace(total=_Fails.apply(loss.total))
        return loss


class _Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 GB")


@LAYOUTS
@pytest.mark.parametrize("where", ["forward", "backward"])
def test_a_batch_that_does_not_fit_is_split_and_the_gradient_is_the_same(trainer, screen, layout, where):
    made = trainer(layout=layout, accumulate=2)
    _, batches = made.feed.epoch(0, 0)
    group = [next(batches), next(batches)]
    made.model.eval()  # dropout off
    units = sum(batch.units for batch in group)
    whole = made.gradients(group, units, 1)
    expected = [weight.grad.clone() for weight in made.model.parameters()]
    made.gradients.forward.objective = Small(
        made.gradients.forward.objective, room=max(map(cells, group)) // 3, where=where
    )
    split = made.gradients(group, units, 1)
    assert (
        min(made.gradients.forward.objective.met)
        < made.gradients.forward.objective.room
        <= max(made.gradients.forward.objective.met)
    )
    torch.testing.assert_close(split, whole)
    for weight, gradient in zip(made.model.parameters(), expected, strict=True):
        torch.testing.assert_close(weight.grad, gradient, atol=1e-6, rtol=1e-4)
    assert any("does not fit into memory; such batches are split" in line for line in screen.lines)


def test_what_was_too_large_once_is_split_at_once_from_then_on_and_after_a_resume(trainer):
    made = trainer()
    _, batches = made.feed.epoch(0, 0)
    batch = next(batches)
    made.gradients.forward.objective = small = Small(
        made.gradients.forward.objective, room=cells(batch), where="forward"
    )
    made.update([batch])
    assert made.progress.cells == cells(batch)
    small.met.clear()
    made.update([batch])
    assert max(small.met) < cells(batch)
    assert type(made.progress).from_json(made.progress.to_json()).cells == cells(batch)


def test_one_pair_that_does_not_fit_ends_the_run_with_one_line(trainer):
    made = trainer()
    _, batches = made.feed.epoch(0, 0)
    made.gradients.forward.objective = Small(made.gradients.forward.objective, room=1, where="forward")
    with pytest.raises(HeadwayError, match=r"step 1: a batch of \d+ cells does not fit into memory and is one pair"):
        made.update([next(batches)])


@LAYOUTS
def test_halves_hold_every_pair_once(trainer, layout):
    made = trainer(layout=layout)
    _, batches = made.feed.epoch(0, 0)
    batch = next(batches)
    pieces = list(parts(batch, cells(batch) // 4))
    assert len(pieces) >= 4
    assert sum(piece.pairs for piece in pieces) == batch.pairs
    assert sum(piece.units for piece in pieces) == batch.units
    assert [row for piece in pieces for row in rows(piece.source)] == rows(batch.source)
    assert [row for piece in pieces for row in rows(piece.target)] == rows(batch.target)
    assert all(piece.labels.shape == piece.target.tokens.shape for piece in pieces)
    first, second = halves(batch)
    assert abs(first.pairs - second.pairs) <= 1


def rows(sequences: Sequences) -> list[list[int]]:
    if sequences.packed:
        return [part.tolist() for part in sequences.tokens.split(sequences.lengths.tolist())]
    return [row[:length].tolist() for row, length in zip(sequences.tokens, sequences.lengths.tolist(), strict=True)]


def test_other_errors_are_not_taken_for_missing_memory():
    assert out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert not out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


@pytest.mark.parametrize(("room", "found"), [(10_000, 900), (10**9, 5000), (1_600, 57), (0, 20)])
def test_the_largest_budget_is_the_one_that_still_fits(room, found):
    tried = []

    def peak(count):
        tried.append(count)
        return 1000 + 10 * count

    assert largest_budget(peak, smallest=20, most=5000, room=room) == found
    assert tried[-1] == found or found == 20


def test_the_largest_budget_is_made_smaller_where_memory_runs_out_all_the_same():
    def peak(count):
        if count > 700:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return 1000 + 10 * count

    found = largest_budget(peak, smallest=20, most=5000, room=10_000)
    assert 600 < found <= 700


def test_auto_finds_a_budget_writes_it_down_and_resumes_with_it(recipe, run, tmp_path, screen):
    settings = recipe(batch_tokens="auto", steps=4)
    run(settings, tmp_path / "run")
    (line,) = [line for line in screen.lines if line.startswith("batch_tokens auto: ")]
    assert f"batch_tokens = {int(line.split()[-1])}\n" in (tmp_path / "run/config.toml").read_text()
    run(recipe(batch_tokens="auto", steps=6), tmp_path / "run", resume=True)
    assert screen.updates[-1].step == 6


def test_auto_leaves_twenty_batches_to_an_epoch(recipe, run, tmp_path, monkeypatch):
    """A batch holds at most a twentieth of the tokens of the longer side, each sentence with its end symbol."""
    asked = {}
    monkeypatch.setattr(beginning, "largest_budget", lambda probe, **given: asked.update(given) or 64)
    run(recipe(batch_tokens="auto", steps=1), tmp_path / "run")
    facts = json.loads((tmp_path / "run/data/store/MANIFEST.json").read_text())
    assert asked["most"] == (max(facts["tokens"]) + facts["pairs"]) // 20


@pytest.mark.parametrize("wrong", ["many", 0, -5, True, 2.5])
def test_a_budget_is_a_positive_integer_or_auto(wrong, recipe):
    with pytest.raises(ConfigError, match=r'training\.batch_tokens: should be a positive integer or "auto"'):
        recipe(batch_tokens=wrong)

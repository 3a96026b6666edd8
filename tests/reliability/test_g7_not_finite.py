"""G7: a number that is not finite is noticed at its step; weights and optimiser stay as they were, and so do files."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from runs import checkpoint
from safetensors.torch import load_file

EVERY_STEP = {"training__save_every": 1, "training__accumulate": 3, "training__validate_every": 100}


@dataclass(frozen=True)
class Case:
    """A bad number: where, which, in which updates and in which batch of them; and whether the run ends by it."""

    place: str
    number: str
    steps: tuple[int, ...]
    part: int | None = None
    ends: bool = False
    last: int = 6


CASES = {
    "the loss is NaN": Case("loss", "nan", (4,)),
    "the loss is infinite": Case("loss", "inf", (4,)),
    "the loss is minus infinity": Case("loss", "-inf", (4,)),
    "a gradient is NaN": Case("gradient", "nan", (4,)),
    "a gradient is infinite": Case("gradient", "inf", (4,)),
    "a gradient is finite, its square is not": Case("gradient", "huge", (4,)),
    "the first batch of three": Case("loss", "nan", (4,), part=0),
    "the second batch of three": Case("gradient", "nan", (4,), part=1),
    "the last batch of three": Case("loss", "nan", (4,), part=2),
    "the first step": Case("loss", "nan", (1,)),
    "the last step": Case("loss", "nan", (6,)),
    "nine in a row, and one more later": Case("gradient", "inf", (*range(1, 10), 11), last=12),
    "ten in a row": Case("loss", "nan", tuple(range(2, 12)), ends=True, last=12),
    "a weight is NaN": Case("weight", "nan", (2,), ends=True, last=12),
    "a weight is infinite": Case("weight", "inf", (2,), ends=True, last=12),
    "the optimiser leaves NaN": Case("step", "nan", (3,), ends=True),
}


def saved(out: Path) -> dict[int, dict]:
    """Every checkpoint of a run, none of which may hold a number that is not finite."""
    found = {}
    for path in sorted((out / "checkpoints").iterdir()):
        assert re.fullmatch(r"step-\d+", path.name)
        found[int(path.name[5:])] = checkpoint(path)
        for file in path.glob("*.safetensors"):
            assert all(bool(torch.isfinite(tensor).all()) for tensor in load_file(file).values()), file
        assert not re.search("NaN|Infinity", (path / "progress.json").read_text()), path
    return found


def test_a_number_that_is_not_finite_leaves_weights_and_optimiser_bit_for_bit_as_they_were(runs, tally, tmp_path):
    tally.expect(len(CASES))
    for number, (name, case) in enumerate(CASES.items()):
        out = tmp_path / f"run-{number}"
        given = {"place": case.place, "number": case.number, "steps": case.steps, "part": case.part}
        arguments = runs.arguments(out, **EVERY_STEP, training__steps=case.last)
        ended = runs.forks.run("poisons.poisoned", tmp_path / f"log-{number}", arguments=arguments, **given)
        try:
            (check_end if case.ends else check_skip)(out, case, ended)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}\n{ended.err[-3000:]}") from error
        tally.passed += 1


def check_skip(out, case, ended):
    """The updates were skipped, said and counted, and nothing else."""
    assert ended.code == 0
    said = [int(step) for step in re.findall(r"step (\d+): .*not finite; update skipped", ended.err)]
    assert tuple(said) == case.steps
    states = saved(out)
    assert set(states) == set(range(1, case.last + 1))
    row = 0
    for step, state in states.items():
        row = row + 1 if step in case.steps else 0
        assert state["progress"]["skipped"] == row
        if step > 1:
            for file in ("model.safetensors", "optimiser.safetensors"):
                assert (state[file] == states[step - 1][file]) == (step in case.steps), (step, file)
    assert (out / "best" / "MANIFEST.json").exists()


def check_end(out, case, ended):
    """The run ended in one line, and what it left goes on well."""
    assert ended.code == 1
    *before, last = ended.lines
    assert last.startswith("headway: step ") and "not finite" in last
    assert not any(line.startswith(("Traceback", "headway: ")) for line in before)
    assert not (out / "best").exists()
    good = min(case.steps) - 1
    states = saved(out)
    assert good in states
    if case.place == "loss":  # the weights were never touched
        assert states[max(states)]["model.safetensors"] == states[good]["model.safetensors"]
    else:
        assert max(states) == good


def test_a_run_that_ended_by_bad_weights_resumes_from_the_last_good_ones(runs, tmp_path):
    whole, out = tmp_path / "whole", tmp_path / "run"
    assert runs.train(whole, **EVERY_STEP).code == 0
    given = {"place": "weight", "number": "nan", "steps": [4]}
    arguments = runs.arguments(out, **EVERY_STEP)
    assert runs.forks.run("poisons.poisoned", tmp_path / "log", arguments=arguments, **given).code == 1
    resumed = runs.train(out, **EVERY_STEP)
    assert resumed.code == 0, resumed.err
    assert "resuming at step 3" in resumed.err
    assert checkpoint(out / "checkpoints/step-000000012") == checkpoint(whole / "checkpoints/step-000000012")


@pytest.mark.parametrize(("number", "which"), [("nan", 1), ("nan", 2), ("-inf", 1), ("inf", 3)])
def test_a_validation_that_is_not_finite_is_never_the_best(number, which, runs, tmp_path):
    out = tmp_path / "run"
    given = {"place": "validation", "number": number, "steps": [which]}
    ended = runs.forks.run("poisons.poisoned", tmp_path / "log", arguments=runs.arguments(out), **given)
    assert ended.code == 0, ended.err
    states = saved(out)
    best = [step for _, step in states[12]["progress"]["best"]]
    assert best == [step for step in (12, 8, 4) if step != 4 * which][:2]


def test_vectors_that_are_not_finite_are_refused_where_they_are_read(runs, tmp_path):
    (tmp_path / "vectors").write_text("2 8\nun 1 1 1 1 1 1 1 1\ndeux 1 1 inf 1 1 1 1 1\n")
    ended = runs.train(tmp_path / "run", tokenizer__kind="words", data__source_vectors=tmp_path / "vectors")
    assert ended.code == 2
    assert "line 3" in ended.lines[-1] and str(tmp_path / "vectors") in ended.lines[-1]
    assert not (tmp_path / "run").exists()


def test_a_loss_that_is_not_finite_in_one_of_two_processes_is_skipped_in_both(runs, tmp_path):
    out = tmp_path / "run"
    arguments = runs.arguments(out, **EVERY_STEP | {"training__accumulate": 1, "training__steps": 6})
    ended = runs.train_by_two(arguments, "poisons.poisoned_rank", place="loss", steps=[4])
    assert [each.code for each in ended] == [0, 0], ended
    check_skip(out, Case("loss", "nan", (4,)), ended[0])

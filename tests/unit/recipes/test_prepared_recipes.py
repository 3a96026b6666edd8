import json
from argparse import Namespace

import pytest
import run
from tasks import RECIPES, named, prepared, read_sample

from headway.config import read_toml, validated
from headway.recipe import Recipe

NAMES = sorted(path.parent.name for path in RECIPES.glob("*/recipe.toml"))


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_is_whole(name):
    task = named(name)
    recipe = validated(Recipe, read_toml(RECIPES / name / "recipe.toml"), name)
    assert {"validation", task.headline[0]} <= task.tests.keys()
    assert (RECIPES / name / "README.md").is_file()
    assert set(task.tags) <= set(recipe.data.every_tag())
    (valid,) = recipe.data.validation()
    assert tuple(valid.paths) == task.tests["validation"]


def test_there_are_recipes():
    assert len(NAMES) >= 13


def lines(folder, name):
    return (folder / name).read_text(encoding="utf-8").splitlines()


def test_cmudict_loses_its_stress_and_keeps_every_pronunciation(tmp_path):
    for part in ("train", "dev", "test"):
        (tmp_path / f"{part}.tsv").write_text("ab\tAH0 B\nab\tAE1 B\nab\tAH1 B\ncat\tK AE1 T\n", encoding="utf-8")
    out = prepared("cmudict", tmp_path, tmp_path / "out")
    assert lines(out, "train.source") == ["a b", "a b", "c a t"]
    assert lines(out, "train.target") == ["AH B", "AE B", "K AE T"]
    sample = read_sample(out, named("cmudict").tests["test"])
    assert sample.sources == ["a b", "c a t"]
    assert sample.references == [("AH B", "AE B"), ("K AE T",)]
    assert sample.lists == [["AH B", "K AE T"], ["AE B", "K AE T"]]


def test_words_of_sigmorphon_are_spelled(tmp_path):
    for part in ("train", "dev", "test"):
        (tmp_path / f"eng_us_{part}.tsv").write_text("abb\tæ b\n", encoding="utf-8")
    out = prepared("sigmorphon2021-english", tmp_path, tmp_path / "out")
    assert (lines(out, "valid.source"), lines(out, "valid.target")) == (["a b b"], ["æ b"])


def test_a_lemma_always_begins_at_the_same_place(tmp_path):
    rows = "dimmen\tdimmt\tV;IMP;2;PL\naufbauen\tbaust auf\tV;IND;PRS;2;SG\n"
    for part in ("train-high", "dev", "test"):
        (tmp_path / f"german-{part}").write_text(rows, encoding="utf-8")
    out = prepared("sigmorphon2017-german", tmp_path, tmp_path / "out")
    assert lines(out, "train.source") == ["+V +IMP +2 +PL +- d i m m e n", "+V +IND +PRS +2 +SG a u f b a u e n"]
    assert lines(out, "train.target") == ["d i m m t", "b a u s t ␣ a u f"]


@pytest.mark.parametrize("split", ["simple", "length"])
def test_some_commands_of_scan_are_held_out(split, tmp_path):
    folder = tmp_path / f"{split}_split"
    folder.mkdir()
    rows = "".join(f"IN: walk {number} OUT: I_WALK I_{number}\n" for number in range(2500))
    for part in ("train", "test"):
        (folder / f"tasks_{part}_{split}.txt").write_text(rows, encoding="utf-8")
    out = prepared(f"scan-{split}", tmp_path, tmp_path / "out")
    training, held = (set(lines(out, f"{part}.source")) for part in ("train", "valid"))
    assert (len(training), len(held), len(lines(out, "test.source"))) == (1500, 1000, 2500)
    assert not training & held
    assert lines(out, "test.target")[1] == "I_WALK I_1"


def test_mails_become_lines_and_what_is_marked_follows_the_mark(tmp_path):
    mail = {"body": "Hello  Bob,\nthe\tplan is " + "long " * 200, "subject": "The  Plan"}
    for part in ("train", "dev", "test"):
        (tmp_path / f"{part}.jsonl").write_text(json.dumps(mail) + "\n", encoding="utf-8")
    out = prepared("aeslc", tmp_path, tmp_path / "out")
    assert lines(out, "test.source")[0].startswith("hello bob, the plan is long")
    assert len(lines(out, "test.source")[0].split()) == 120
    assert lines(out, "test.target") == ["the plan"]
    marked, copied = lines(out, "marked.source")[0], lines(out, "marked.target")[0]
    assert marked.partition("▸ ")[2].startswith(copied)
    assert len(copied.split()) == 4


def measured():
    return [name for name in NAMES if (RECIPES / name / "result.json").is_file()]


@pytest.mark.parametrize("name", measured())
def test_a_committed_result_is_of_the_recipe_as_it_stands(name):
    result = json.loads((RECIPES / name / "result.json").read_text(encoding="utf-8"))
    runner = run.Runner.__new__(run.Runner)  # whose construction would want the data
    runner.name, runner.tests = name, named(name).tests
    runner.options = Namespace(set=[])
    assert result["fingerprint"] == runner.fingerprint()
    assert {key: result[key] for key in ("mean", "deviation")} == run.summed(result["runs"])
    seeds = [each["seed"] for each in result["runs"]]
    assert result["command"].endswith(f"--seeds {' '.join(map(str, seeds))}")
    assert ("seconds_of_preparation" in result) == any(each["beside"] == 0 for each in result["runs"])

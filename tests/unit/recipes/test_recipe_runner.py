import json
import tarfile

import pytest
import run
import tasks

RECIPE = """
[data]
source = "train.tsv"
valid_source = "dev.tsv"

[tokenizer]
kind = "characters"

[model]
dim = 8
heads = 2
hidden = 16
encoder_layers = 1
decoder_layers = 1
longest = 16

[training]
steps = 4
validate_every = 2
batch_tokens = 64
validation_sentences = 2

[decoding]
beam = 2
nbest = 2
"""
TASK = """
title = "Spelling"
archive = "letters"
measure = "spelling"
baselines = ["copy", "nearest word"]
headline = ["test", "exact match"]

[tests]
validation = ["dev.tsv"]
test = ["test.tsv"]
"""


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    recipe = tmp_path / "recipes" / "spell"
    recipe.mkdir(parents=True)
    (recipe / "recipe.toml").write_text(RECIPE)
    (recipe / "task.toml").write_text(TASK)
    folder = tmp_path / "data" / "letters"
    folder.mkdir(parents=True)
    for part, letters in (("train", "abcdefghij"), ("dev", "klm"), ("test", "nop")):
        (folder / f"{part}.tsv").write_text("".join(f"{letter}xx\tx{letter}x\n" for letter in letters))
    for module in (run, tasks):
        monkeypatch.setattr(module, "RECIPES", tmp_path / "recipes")
    return tmp_path


def called(corpus, *more, out="runs"):
    given = ["--data", str(corpus / "data"), "--out", str(corpus / out), "--results", str(corpus / "found")]
    return run.main(["spell", *given, "--device", "cpu", *more])


def found(corpus):
    return json.loads((corpus / "found" / "spell" / "result.json").read_text(encoding="utf-8"))


def test_seeds_are_trained_scored_and_summed_and_none_is_run_twice(corpus, capsys):
    assert called(corpus, "--seeds", "1", "2") == 0
    result, lines = found(corpus), capsys.readouterr().out.splitlines()
    assert [json.loads(line)["seed"] for line in lines] == [1, 2]
    assert [run["seed"] for run in result["runs"]] == [1, 2]
    assert result["mean"]["test"].keys() == result["deviation"]["test"].keys()
    assert result["baselines"]["copy"]["test"]["exact match"] == 0.0
    assert result["baselines"]["nearest word"]["test"]["exact match"] == 100.0  # one swap away
    for each in result["runs"]:
        assert [point["step"] for point in each["curve"]] == [2, 4]
        assert 0 < each["curve"][0]["seconds"] <= each["seconds"]["loop"] + 0.01
        assert 0 < each["seconds"]["to_first_update"] <= each["seconds"]["loop"]
        assert each["chosen_on"]["loss"] > 0
        assert each["parameters"] > 1000
    assert result["runs"][0]["chosen_on"] != result["runs"][1]["chosen_on"]  # other seeds, other models
    assert str(corpus) not in json.dumps(result)
    assert called(corpus, "--seeds", "1", "2", "3", out="later") == 0
    assert [json.loads(line)["seed"] for line in capsys.readouterr().out.splitlines()] == [3]
    assert found(corpus)["runs"][:2] == result["runs"]


def test_seeds_share_the_tokens_that_were_prepared_once(corpus):
    assert called(corpus, "--seeds", "1", "2") == 0
    (first,) = {path.name for path in (corpus / "runs" / "spell" / "begun" / "data").glob("tokenizer*")}
    places = {
        (corpus / "runs" / "spell" / name / "data" / first).stat().st_ino for name in ("begun", "seed-1", "seed-2")
    }
    assert len(places) == 1


def test_all_seeds_decode_together_where_that_is_asked_for(corpus, capsys):
    assert called(corpus, "--seeds", "1", "2", "--ensemble") == 0
    result = found(corpus)
    assert result["ensemble"].keys() == {"validation", "test"}
    assert result["command"].endswith("--seeds 1 2 --ensemble")
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["ensemble"] == 2


def test_other_settings_begin_anew_and_are_told(corpus):
    assert called(corpus, "--seeds", "1", "--only", "validation") == 0
    assert found(corpus)["mean"].keys() == {"validation"}
    assert called(corpus, "--seeds", "2", "--set", "training.steps=2", out="later") == 0
    result = found(corpus)
    assert [run["seed"] for run in result["runs"]] == [2]
    assert "--set training.steps=2" in result["command"]


def test_seconds_beside_other_processes_are_marked(corpus):
    assert called(corpus, "--seeds", "1", "--beside", "8") == 0
    assert "seconds_of_preparation" not in found(corpus)
    assert called(corpus, "--seeds", "1", "2", out="later") == 0
    assert [each["beside"] for each in found(corpus)["runs"]] == [8, 0]
    assert found(corpus)["seconds_of_preparation"] > 0


def test_missing_corpora_are_unpacked_from_archives(corpus):
    folder, packed = corpus / "data" / "letters", corpus / "packed"
    packed.mkdir()
    with tarfile.open(packed / "letters.tar.xz", "w:xz") as archive:
        for path in folder.iterdir():
            archive.add(path, path.name)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    assert called(corpus, "--seeds", "1", "--archives", str(packed)) == 0
    assert found(corpus)["runs"]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--only", "tomorrow"], "--only tomorrow: no such test set; spell has validation, test"),
        (["--set", "training.speed=2"], "training.speed"),
        (["--device", "nonsense"], "--device nonsense"),
    ],
    ids=str,
)
def test_a_mistake_is_one_line_and_exit_2(more, told, corpus, capsys):
    assert called(corpus, *more) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line


def test_an_unknown_recipe_and_missing_data_are_one_line_each(corpus, capsys):
    assert run.main(["spelling", "--data", str(corpus), "--out", str(corpus / "runs")]) == 2
    assert "no such recipe; there are spell" in capsys.readouterr().err
    assert run.main(["spell", "--data", str(corpus / "none"), "--out", str(corpus / "runs")]) == 2
    assert "unpack letters.tar.xz there" in capsys.readouterr().err

"""The benchmarks of what is chosen where the user sets nothing, at a tiny setting."""

import importlib.util
import json
import math
import random
import sys
import tarfile
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import defaults
import first_model
import stability
from peers import marian, trials
from peers.corpora import prepare_texts
from peers.trials import Trial

WORDS = {"the": "der", "cat": "Kater", "dog": "Hund", "sees": "sieht", "hears": "hört", "old": "alte", "and": "und"}


def lines_of(capsys):
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert all(line.keys() >= {"commit", "date", "machine", "command"} for line in lines)
    assert all({"seed", "seeds"} & line.keys() for line in lines)
    return lines


@pytest.fixture
def data(tmp_path):
    """A made-up corpus under the names of Tatoeba."""
    folder, chance = tmp_path / "data" / "tatoeba_en_de", random.Random(1)
    folder.mkdir(parents=True)
    for part, count in (("train", 120), ("dev", 4), ("test", 5)):
        english = [chance.choices(list(WORDS), k=chance.randint(2, 6)) for _ in range(count)]
        for side, sentences in (("en", english), ("de", [[WORDS[word] for word in each] for each in english])):
            text = "".join(" ".join(sentence) + "\n" for sentence in sentences)
            (folder / f"{part}.{side}").write_text(text, encoding="utf-8")
    return folder.parent


@pytest.fixture
def quiet(monkeypatch):
    """Leave the signals of the tests alone."""
    monkeypatch.setattr(trials.signal, "signal", lambda *_: None)


def trial(folder, script="", **request):
    script = f"import pathlib; pathlib.Path({str(folder / 'run' / 'best')!r}).mkdir(parents=True); {script}"
    return Trial(folder, {"seed": 1, **request}, [sys.executable, "-S", "-c", script])


def test_a_corpus_is_cut_down_by_a_seeded_sample_and_read_from_a_folder_or_an_archive(data, tmp_path):
    texts = prepare_texts("tatoeba-20k", data, tmp_path / "first", pairs=20)
    packed = tmp_path / "packed"
    packed.mkdir()
    with tarfile.open(packed / "tatoeba_en_de.tar.xz", "w:xz") as archive:
        for path in (data / "tatoeba_en_de").iterdir():
            archive.add(path, path.name)
    same = prepare_texts("tatoeba-20k", packed, tmp_path / "second", pairs=20)
    sample = texts.sample("train")
    assert sample == same.sample("train") and len(sample.sources) == 20
    assert sample.sources != (data / "tatoeba_en_de" / "train.en").read_text("utf-8").splitlines()[:20]
    assert all(
        [WORDS[word] for word in source.split()] == target.split()
        for source, (target,) in zip(sample.sources, sample.references, strict=True)
    )
    assert len(texts.sample("valid").sources) == 4 and len(texts.sample("test", 3).sources) == 3


def test_a_trial_is_trained_again_only_if_its_request_has_changed_or_its_folder_is_needed(tmp_path):
    first = trial(tmp_path / "a")
    assert first.lacks(["valid"])
    trials.train_together([first], 1, pin=True)
    assert first.trained and not first.lacks(["valid"])  # it can be scored from its folder
    first.keep(first.result() | {"valid": 1.0})
    trials.shutil.rmtree(first.run)
    assert not first.lacks(["valid"]) and first.lacks(["valid", "test"])
    assert trial(tmp_path / "a", seed=2).lacks(["valid"])


def test_a_trial_that_fails_says_why_and_is_not_tried_again(tmp_path):
    failing, fine = trial(tmp_path / "a", "raise SystemExit('out of luck')"), trial(tmp_path / "b")
    trials.train_together([failing, fine], 1, pin=False)
    assert failing.result()["failed"] == "out of luck" and "failed" not in fine.result()
    failing.run.rename(tmp_path / "gone")
    assert not failing.lacks(["valid"])


def test_the_table_shows_the_default_beside_the_setting_chosen_and_takes_the_latest_lines(tmp_path):
    where = {"corpus": "cmudict", "machine": "a CPU", "time": "6m", "side_by_side": 1}
    scores = {"default": (9.0, 30.0, 32.0), "wide-pre": (33.0, 33.0, 35.0)}
    lines = [
        {**where, "setting": name, "seed": max(seed, 1)}
        | {part: {"word error rate": score + plus} for part, plus in (("valid", 1.0), ("test", 0.0))}
        for name, each in scores.items()
        for seed, score in enumerate(each)
    ]
    lines += [{**where, "setting": "tiny-pre", "seed": 1, "failed": "no memory"}]
    lines += [{**where, "summary": "choice", "best": "wide-pre"}]
    path = tmp_path / "results.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    rows = defaults.table(path).splitlines()
    assert rows[2] == ("| cmudict | a CPU | 6m | word error rate | 31.00 ± 1.41 | wide-pre | 34.00 ± 1.41 | +3.00 |")
    assert rows[-6:-2] == ["| --- | --- |", "| default | 31.00 |", "| wide-pre | 34.00 |", "| tiny-pre | failed |"]


def test_every_setting_of_the_grids_is_one_the_library_takes():
    from headway.cli.recipes import read_recipe

    assert len(defaults.CPU) >= 8 and len(defaults.GPU) >= 8
    for settings in (defaults.CPU | defaults.GPU).values():
        changes = [f"{name}={json.dumps(value)}" for name, value in settings.items()]
        recipe = read_recipe(None, ['data.source="a"', 'data.target="b"', *changes])
        assert recipe.model.norm == settings["model.norm"]
        assert recipe.training.batch_tokens == settings["training.batch_tokens"]


def test_the_default_is_compared_with_a_setting_and_nothing_is_trained_twice(
    data, tmp_path, capsys, monkeypatch, quiet
):
    words = f"defaults.py --data {data} --out {tmp_path / 'runs'} --corpora tatoeba-20k --time 1s --seeds 1 2 --best 1"
    words += " --side-by-side 2 --threads 1 --device cpu --settings tiny-pre"
    monkeypatch.setattr(sys, "argv", words.split())
    assert defaults.main() == 0
    *results, choice = lines_of(capsys)
    assert [(line["setting"], line["seed"]) for line in results] == [
        (name, seed) for seed in (1, 2) for name in ("default", "tiny-pre")
    ]
    assert all("failed" not in line and line["updates"] > 0 for line in results)
    assert all({"BLEU", "chrF"} == line["test"].keys() == line["valid"].keys() for line in results)
    assert results[0]["settings"] == {} and results[1]["model"]["norm"] == "pre"
    assert choice["best"] == "tiny-pre"
    monkeypatch.setattr(defaults, "train_together", None)
    assert defaults.main() == 0
    assert lines_of(capsys) == [*results, choice]


def test_marians_batches_hold_every_pair_once_an_epoch_and_keep_to_their_tokens():
    rng = random.Random(1)
    pairs = [([5 + place] * rng.randint(1, 30), [5 + place] * rng.randint(1, 30)) for place in range(200)]
    seen, cells, tokens = [], 0, 0
    for source, target in marian.batches(pairs, 128, seed=1):
        seen += source[:, 0].tolist()
        assert max(source.numel(), target.numel()) <= 128 and source[:, 0].equal(target[:, 0])
        cells, tokens = cells + target.numel(), tokens + int((target != marian.PADDING).sum())
        if len(seen) == 200:
            break
    assert sorted(seen) == list(range(5, 205))
    assert tokens > 0.8 * cells


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed")
def test_a_first_model_is_trained_by_both_systems_and_scored_on_the_test_set(
    data, tmp_path, capsys, monkeypatch, quiet
):
    words = f"first_model.py --data {data} --out {tmp_path / 'runs'} --corpora tatoeba-20k --time 1s --seeds 1"
    monkeypatch.setattr(sys, "argv", [*words.split(), "--threads", "1", "--marian-settings", "tiny-4000"])
    assert first_model.main() == 0
    headway, tried, chosen, summary = lines_of(capsys)
    assert (headway["system"], chosen["system"]) == ("headway", "marian")
    assert headway["updates"] > 0 and chosen["updates"] > 0
    assert "test" not in tried and {"BLEU", "chrF"} == headway["test"].keys() == chosen["test"].keys()
    assert summary["headway_BLEU"]["mean"] == round(headway["test"]["BLEU"], 2)


def test_a_first_model_needs_an_interpreter_that_has_transformers(data, tmp_path, capsys, monkeypatch, quiet):
    words = f"first_model.py --data {data} --out {tmp_path / 'runs'} --python false"
    monkeypatch.setattr(sys, "argv", words.split())
    assert first_model.main() == 2
    assert "install" in capsys.readouterr().err


def test_the_plans_of_stability_are_sixty_trainings_of_every_preset_norm_and_batch():
    for device in ("cpu", "cuda"):
        found = list(stability.cells(stability.parser().parse_args(["--device", device])))
        assert len(found) == len(set(found)) == 60
        assert {cell.preset for cell in found} == set(stability.PRESETS)
        assert {cell.norm for cell in found} == {"pre", "post"}
        assert {cell.batch_tokens for cell in found} == set(stability.BATCHES)


def test_stability_compares_a_short_training_with_a_unigram_model(capsys, monkeypatch):
    words = "stability.py --presets tiny --norms pre --batches 1024 --steps 2 --seeds 1 --pairs 200 --device cpu"
    monkeypatch.setattr(sys, "argv", [*words.split(), "--threads", str(torch.get_num_threads())])
    rc = stability.main()
    line, summary = lines_of(capsys)
    assert line["below"] == (line["loss"] < line["unigram"])
    assert 2 < line["unigram"] < math.log(1000) and (summary["trainings"], summary["below_unigram"]) == (1, 1 - rc)


def test_the_unigram_model_knows_the_end_symbol_and_counts_every_token_once_more(tmp_path):
    for part, texts in (("train", ["a a b"] * 9), ("valid", ["a"])):
        for side in ("source", "target"):
            (tmp_path / f"{part}.{side}").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    files = {f"{prefix}{side}": f"{part}.{side}" for part, prefix in (("train", ""), ("valid", "valid_"))
             for side in ("source", "target")}  # fmt: skip
    tree = {"data": {"folder": str(tmp_path), **files}, "tokenizer": {"kind": "words"}}
    tree |= {"model": {"preset": "tiny"}, "training": {"steps": 1, "validate_every": 1, "samples": 0}}
    recipe = stability.validated(stability.Recipe, tree, "test")
    stability.train(recipe, tmp_path / "run", device=torch.device("cpu"), screen=stability.Silent())
    *_, unigram = stability.losses(tmp_path / "run")
    size = 4 + 2  # padding, start, end, unknown; a, b
    total = 9 * 4 + size  # a a b and the end, nine times, and one for every token
    assert unigram == pytest.approx(-(math.log(19 / total) + math.log(10 / total)) / 2)

import importlib.util
import json
import sys

import pytest
from pages import ROOT

TASK = """title = "Letters"
archive = "letters"
measure = "BLEU"
baselines = ["copy"]
headline = ["test", "BLEU"]
goal = 41.5
published = "41.02"
[tests]
"""
ORIGIN = {"commit": "abc1234", "date": "2026-01-31", "machine": "one GPU", "command": "python run"}
ROW = {"name": "one", "what": "speed ([more](page.md#part))", "told": "{mean:.1f} ± {spread:.2f}", "short": True}
PLACE = "<!-- begin: python docs/results.py -->\n\nold\n\n<!-- end: python docs/results.py -->\n"
SPEED = {"device": "a GPU", "tokens_per_step": 8192, "rounds": 5, "peak_gib": 1.5, "share_of_matmul_peak": 0.25}


@pytest.fixture(scope="module")
def results():
    sys.path.append(str(ROOT / "docs"))  # where a script's own modules are found
    found = importlib.util.spec_from_file_location("results", ROOT / "docs" / "results.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def run(seed, bleu, beside=0):
    curve = [{"seconds": 2.0 * step, "step": step, "loss": 3.0 - step, "bleu": 10.0 * step} for step in (1, 2)]
    seconds = {"loop": 20.0 + seed, "to_first_update": 3.0, "closing": 1.0, "testing": 2.0}
    scores = {"test": {"BLEU": bleu, "chrF": 60.0}}
    return {
        "seed": seed,
        "scores": scores,
        "updates": 8000,
        "parameters": 2_600_000,
        "seconds": seconds,
        "beside": beside,
        "curve": curve,
    }


@pytest.fixture
def root(tmp_path):
    """A project with one measured recipe, one that is not, and lines of speed."""
    for name in ("letters", "numbers"):
        folder = tmp_path / "recipes" / name
        folder.mkdir(parents=True)
        (folder / "task.toml").write_text(TASK, encoding="utf-8")
        (folder / "README.md").write_text(f"# Letters\n\n{PLACE}", encoding="utf-8")
    (tmp_path / "README.md").write_text(f"# Headway\n\n{PLACE}", encoding="utf-8")
    scores = {"test": {"BLEU": 41.7, "chrF": 60.0}}
    result = {**ORIGIN, "hardware": "one GPU", "versions": {"torch": "2.11"}}
    result |= {"seconds_of_preparation": 4.2, "baselines": {"copy": {"test": {"BLEU": 0.6, "chrF": 18.0}}}}
    result |= {"ensemble": {"test": {"BLEU": 42.5, "chrF": 61.0}}}
    result |= {"runs": [run(1, 41.6), run(2, 41.8)], "mean": scores, "deviation": {"test": {"BLEU": 0.14, "chrF": 0.0}}}
    (tmp_path / "recipes" / "letters" / "result.json").write_text(json.dumps(result), encoding="utf-8")
    (tmp_path / "docs" / "results").mkdir(parents=True)
    lines = [{"system": "marian", "model": "tiny", "tokens_per_second": 90_000, "spread": [80_000, 91_000]}]
    lines += [{"system": "headway", "model": "tiny", "tokens_per_second": 3_000_000, "spread": [2_900_000, 3_100_000]}]
    lines = [SPEED | line | {"steps_per_second": 10.5, "ratio_to_best_peer": 33.333} for line in lines]
    lines += [{"system": "headway", "model": "base", "largest_batch_tokens": 400_000}, {"summary": "training"}]
    for value, kernel in ((64, "short"), (8192, "flash")):
        lines += [{"growth": "length", "value": value, "ms_per_step": 2.5, "theory_ms": 1.25, "peak_bytes": 3 * 2**30}]
        lines[-1] |= {"theory_bytes": 2**30, "attention": [kernel], "split": False, "captured": True, "spread": [2, 3]}
    lines += [{"growth": "length", "value": 16384, "failed": "OutOfMemoryError: of 139 GiB. Tried"}]
    lines += [{"about": "growth", "remark": "Measured in a hurry."}]
    lines += [{"system": "headway", "model": "small", "seed": 1, "fraction": 1.0, "seconds": 20.02, "steps": 5020}]
    lines[-1] |= {"bleu": 44.59, "chrf": 63.36, "device": "a GPU", "sentences": 2000, "parameters": 7_600_000}
    lines[-1] |= {"warm_up_seconds": 3.9}
    lines = [line if "about" in line else {"seeds": [], **ORIGIN, **line} for line in lines]
    write(tmp_path, "gpu", lines)
    figures = {"mean": 2.25, "spread": 0.5}
    write(tmp_path, "figures", [ROW | ORIGIN | {"seeds": [1, 2], "figures": figures, "recorded": True}])
    return tmp_path


def write(root, name, lines):
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    (root / "docs" / "results" / f"{name}.jsonl").write_text(text, encoding="utf-8")


def test_the_page_is_the_generated_one(results):
    assert (ROOT / "docs" / "results.md").read_text(encoding="utf-8") == results.page(ROOT)
    for path, text in results.readmes(ROOT).items():
        assert path.read_text(encoding="utf-8") == text
    assert ROOT / "README.md" in results.readmes(ROOT)


def test_every_stored_line_says_where_it_comes_from(results):
    assert results.lacking(ROOT) == []


@pytest.mark.parametrize("key", [*ORIGIN, "seeds"])
def test_a_stored_line_without_an_origin_is_named(key, results, root):
    line = {**ORIGIN, "seeds": []}
    line.pop(key)
    write(root, "other", [{**ORIGIN, "seed": 1}, line])
    assert results.lacking(root) == [f"other.jsonl, line 2: no {key}"]


@pytest.mark.parametrize(("key", "named"), [("commit", "commit"), ("hardware", "machine"), ("command", "command")])
def test_a_recipes_result_without_an_origin_is_named(key, named, results, root):
    altered(root, lambda result: result.pop(key))
    assert results.lacking(root) == [f"letters/result.json: no {named}"]


def test_a_stored_figure_stands_in_the_readme_and_with_its_origin_on_the_page(results, root):
    readme = results.readmes(root)[root / "README.md"]
    assert (
        "| speed ([more](docs/page.md#part)) | 2.2 ± 0.50 | one GPU | `python run` |" in readme and "old" not in readme
    )
    row = (
        "| speed ([more](page.md#part)) | 2.2 ± 0.50 | one GPU | 1, 2 | abc1234 or before, 2026-01-31 | `python run` |"
    )
    assert row in results.page(root)


def test_a_figure_follows_the_raw_lines_it_is_made_of(results, root):
    row = ROW | {"name": "r-drop", "told": "{plain[0]:.1f}, {r_drop[0]:.1f} ± {r_drop[1]:.1f}", "from": "raw.jsonl"}
    write(root, "figures", [row | {"short": False}])
    scores = {"plain": (1.0, 2.0), "r_drop": (3.0, 6.0)}
    raw = [
        {"method": name, "seed": 1 + place, "bleu": bleu} for name in scores for place, bleu in enumerate(scores[name])
    ]
    raw[-1] |= {"commit": "def5678", "date": "2026-02-01"}
    write(root, "raw", [ORIGIN | line for line in raw])
    told = "| 1.5, 4.5 ± 2.1 | one GPU | 1, 2 | abc1234; def5678, 2026-02-01 | `python run` |"
    assert told in results.page(root)
    assert "1.5, 4.5" not in results.readmes(root)[root / "README.md"]


def test_a_row_is_made_of_those_lines_alone_that_it_chooses(results, root):
    told = "{speed:,}, {best}: {marian_captured:.2f}"
    write(root, "figures", [ROW | {"name": "train-gpu", "told": told, "from": "raw.jsonl", "only": {"model": "tiny"}}])
    speeds = {"headway": 3000, "marian": 200, "marian-captured": 750}
    raw = [{"system": name, "tokens_per_second": speed, "model": "tiny"} for name, speed in speeds.items()]
    raw = [SPEED | ORIGIN | line | {"spread": [1, 2], "steps_per_second": 1.0, "seeds": []} for line in raw]
    other = raw[-1] | {"model": "base", "tokens_per_second": 2500, "commit": "def5678"}
    write(root, "raw", [*raw, other | {"command": "python other"}])
    assert "3,000, marian-captured: 4.00 | one GPU | the script's | abc1234, 2026-01-31 |" in results.page(root)
    assert "tiny: `python run` on one GPU" in results.page(root)
    assert "base: `python other` on one GPU" in results.page(root)


def test_of_decoding_and_of_students_every_way_and_batch_has_its_figure(results):
    figures = sys.modules["figures"]
    raw = [{"system": "headway", "beam": 4, "batch": 32, "tokens_per_second": 600}]
    raw += [{"system": "marian", "beam": 4, "batch": 32, "tokens_per_second": 40}, {"beam": 4, "ratio_to_marian": 15.0}]
    assert figures.decode_gpu(raw) == {"beam_32": 15.0}
    line = {"model": "transformer, 4+1 layers", "decoding": "beam 4", "batch": 1, "times_faster": 1.5, "bleu": 40.0}
    assert figures.parallel([line]) == {"shallow_beam_4_1": 1.5}
    assert figures.parallel_quality([line]) == {"shallow_beam_4": 40.0}


def test_every_row_made_of_raw_lines_has_its_function_and_its_file(results):
    figures = sys.modules["figures"]
    made = [line for line in figures.read(ROOT / "docs" / "results" / "figures.jsonl") if "from" in line]
    assert {line["name"] for line in made} == figures.LINES.keys() | figures.RECIPES.keys()
    assert len(made) == len({line["name"] for line in made})


def test_a_text_that_differs_from_the_stored_lines_fails_the_check(results, root, monkeypatch, capsys):
    monkeypatch.setattr(results, "ROOT", root)
    monkeypatch.setattr(results, "draw", lambda _: None)
    assert results.main([]) == 0 and results.main(["--check"]) == 0
    path = root / "README.md"
    path.write_text(path.read_text(encoding="utf-8").replace("2.2 ±", "2.3 ±"), encoding="utf-8")
    assert results.main(["--check"]) == 1
    assert capsys.readouterr().err.startswith("README.md: ")
    assert results.main([]) == 0 and results.main(["--check"]) == 0
    write(root, "other", [{"seed": 1}])
    assert results.main(["--check"]) == 1
    assert "other.jsonl, line 1: no commit" in capsys.readouterr().err


def test_every_picture_of_the_page_is_there(results):
    for name in results.pictures(results.measured(ROOT), results.bench_lines(ROOT)):
        assert (ROOT / "docs" / "images" / f"{name}.svg").is_file()


def test_a_result_stands_beside_goal_baseline_and_time(results, root):
    page = results.page(root)
    assert "| BLEU, test | 41.02 | ≥ 41.5 | **41.70 ± 0.14** | 2 | yes | 0.60 (the source itself) | 22 |" in page
    assert "Alone on the device (seeds 1, 2): preparation 4.2 s; loop 21.5 s" in page
    assert "Without a result of `recipes/run.py` so far: [numbers](../recipes/numbers/README.md)." in page
    assert "| test | chrF | **60.00 ± 0.00** | 60.00 | 60.00 | 61.00 | 18.00 |" in page
    assert "| tiny | headway | 3,000,000 | 2,900,000, 3,100,000 | 10.5 | 25.0% | 1.5 | 33.33 |" in page
    assert "| base | headway | 400,000 |" in page
    assert "| tokens of a sentence | 8,192 | 2.50 | 1.25 | 3.00 | 1.00 | flash | captured |" in page
    assert "| tokens of a sentence | 16,384 | failed: OutOfMemoryError: of 139 GiB |" in page
    assert page.index("| tiny | headway") < page.index("| tiny | marian")


def altered(root, change):
    path = root / "recipes" / "letters" / "result.json"
    result = json.loads(path.read_text(encoding="utf-8"))
    change(result)
    path.write_text(json.dumps(result), encoding="utf-8")


def test_seconds_of_a_run_beside_others_are_no_times(results, root):
    altered(root, lambda result: result.update(runs=[run(1, 41.6), run(2, 41.8, beside=8)]))
    page = results.page(root)
    assert "| 0.60 (the source itself) | 21 |" in page
    assert "Beside up to 8 other processes on the device, and so without times: seed 2." in page
    found, lines = results.measured(root), results.bench_lines(root)
    _, drawn = results.pictures(found, lines)["results-time"]
    assert [each["seed"] for each in drawn.keywords["found"]["letters"]] == [1]

    def share(result):
        result.update(runs=[run(1, 41.6, beside=8), run(2, 41.8, beside=8)])
        result.pop("seconds_of_preparation")

    altered(root, share)
    assert "| 0.60 (the source itself) |  |" in results.page(root)
    assert "loop 2" not in results.page(root)
    assert "results-time" not in results.pictures(results.measured(root), lines)


@pytest.mark.parametrize(("task", "told"), [("", "no"), ("lower_is_better = true", "yes")])
def test_a_goal_that_is_missed_is_said_to_be(task, told, results, root):
    altered(root, lambda result: result["mean"]["test"].update(BLEU=41.4))
    path = root / "recipes" / "letters" / "task.toml"
    path.write_text(path.read_text(encoding="utf-8").replace("goal = ", f"{task}\ngoal = "), encoding="utf-8")
    assert f"**41.40 ± 0.14** | 2 | {told} |" in results.page(root)


def test_what_cannot_be_seen_in_measurements_is_said_beside_them(results, root):
    page = results.page(root)
    assert "Measured in a hurry." in page
    assert "Not measured yet: base, small." in page
    assert "Attention was served by short up to 64 tokens of a sentence, by flash from 8,192 on" in page
    assert "| headway | 1 | 20 | 5,020 | 44.59 | 63.36 |" in page
    assert "no result of the recipe. No other system was measured beside it" in page


def test_only_the_readme_of_a_measured_recipe_has_a_table(results, root):
    _, letters, numbers = results.readmes(root).values()
    assert "| test | BLEU | **41.70 ± 0.14** | 41.60 | 41.80 | 42.50 | 0.60 |" in letters
    assert "Not measured yet." in numbers
    assert "old" not in letters + numbers


def test_what_was_measured_is_drawn_the_same_way_every_time(results, root):
    results.draw(root)
    pictures = {path.name: path.read_bytes() for path in (root / "docs" / "images").iterdir()}
    assert pictures.keys() == {f"results-{name}.svg" for name in ("bleu", "growth", "loss", "speed", "time")}
    results.draw(root)
    assert pictures == {path.name: path.read_bytes() for path in (root / "docs" / "images").iterdir()}


def test_sizes_are_written_in_few_letters(results):
    sizes = [64, 8192, 16_000, 856_064, 26_116_096]
    assert [sys.modules["results_pictures"].brief(size) for size in sizes] == ["64", "8,192", "16 k", "0.86 M", "26 M"]


def test_without_results_there_is_a_page_all_the_same(results, tmp_path):
    assert "No recipe has been measured yet." in results.page(tmp_path)

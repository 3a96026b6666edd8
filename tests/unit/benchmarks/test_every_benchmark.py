"""Every script in `benchmarks/` at a tiny setting; what needs a GPU or another library is stood in for."""

import ast
import io
import json
import random
import re
import shlex
import stat
import subprocess
import sys
import textwrap
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks" / "peers"))
sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import data_scale
import decode_cpu
import decode_engines
import decode_gpu
import decode_growth
import family
import forecast
import methods_cpu
import parallel_decoding
import processes
import quality_gpu
import restricted_attention
import soak
import train_cpu
import train_growth
import training_costs
import translate_many
from headway import cli
from peers import gpu_work, origin, quality

TINY = ["--set", "training.batch_tokens=256", "--set", "training.validation_sentences=2"]
WORDS = [f"w{number}" for number in range(20)]


def test_a_measurement_says_where_it_comes_from(monkeypatch, tmp_path):
    assert origin.stamped({"seed": 3, "commit": "abc"})["commit"] == "abc"  # kept from when it was measured
    assert "seeds" not in origin.stamped({"seed": 3}) and origin.stamped({})["seeds"] == []
    monkeypatch.setattr(origin, "ROOT", tmp_path)
    assert origin._commit() == ""
    monkeypatch.setenv("HEADWAY_COMMIT", "1234567")
    assert origin._commit() == "1234567"
    for words in (["init"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=b", "commit", "-m", "c"]):
        (tmp_path / "file").write_text("one\n")
        subprocess.run(["git", "-C", tmp_path, *words], check=True, capture_output=True)
    monkeypatch.delenv("HEADWAY_COMMIT")
    assert re.fullmatch("[0-9a-f]{7,}", origin._commit())
    (tmp_path / "file").write_text("two\n")
    assert re.fullmatch(r"[0-9a-f]{7,}\+", origin._commit())


def test_every_script_is_run_by_a_test():
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in Path(__file__).parent.glob("test_*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Import)]
    imported = {alias.name for node in nodes for alias in node.names}
    assert {path.stem for path in Path(forecast.__file__).parent.glob("*.py")} <= imported


def in_process(words, *, stdout=None, capture_output=False, **_):
    """What `subprocess.run` does with a command of this interpreter, without starting another."""
    name, *arguments = words[2:] if words[1] == "-m" else words[1:]
    said, code = io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(said):
        patch.setattr(sys, "argv", [name, *map(str, arguments)])
        try:
            if name == "headway":
                cli.main([str(word) for word in arguments])
            else:
                sys.modules[Path(name).stem].main()
        except SystemExit as ended:
            code = ended.code or 0
    if stdout is None and not capture_output:
        print(said.getvalue(), end="")
    assert not code, (words, code)
    return SimpleNamespace(stdout=said.getvalue(), returncode=code)


@pytest.fixture
def called(monkeypatch, capfd):
    """Calls a script's main with options, its children in this process; gives the JSON lines it printed."""

    def call(script, *options):
        monkeypatch.setattr(sys, "argv", [script.__file__, *map(str, options)])
        capfd.readouterr()
        script.main()
        lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
        told = shlex.join(["python", f"benchmarks/{Path(script.__file__).name}", *map(str, options)])
        for line in lines:
            assert line["commit"] == origin.COMMIT and line["date"] == origin.today(), line
            assert line["command"] == told and line["machine"], line
            assert {"seed", "seeds"} & line.keys(), line
        return lines

    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    yield call
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(deterministic)


@pytest.fixture
def one_process(monkeypatch):
    monkeypatch.setattr(subprocess, "run", in_process)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A made-up corpus under the names of Multi30k, and under those of `quality_gpu`."""
    folder, chance = tmp_path_factory.mktemp("data"), random.Random(1)
    (folder / "tok").mkdir()
    for part, count in (("train", 150), ("val", 4), ("test_2016_flickr", 3)):
        lines = [" ".join(chance.choices(WORDS, k=chance.randint(2, 6))) for _ in range(count)]
        for side, texts in (("en", lines), ("de", [line.upper() for line in lines])):
            text = "".join(f"{line}\n" for line in texts)
            (folder / "tok" / f"{part}.lc.norm.tok.{side}").write_text(text, encoding="utf-8")
            (folder / f"{part.partition('_')[0]}.{side}").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def stub(tmp_path):
    """Makes an interpreter that answers whatever a worker is sent, with which script it was started not mattering."""

    def make(answers):
        path = tmp_path / "stub"
        text = f"#!{sys.executable} -S\nimport json, sys\n{textwrap.dedent(answers)}"
        path.write_text(text, encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    return make


def test_a_plan_is_compared_with_a_real_run(called, one_process, monkeypatch):
    from headway.forecast import measurement

    for name, value in (("WARM_UP", 0.01), ("MEASURED", 0.01), ("VALIDATED", 0.01), ("CHOSEN", 2)):
        monkeypatch.setattr(measurement, name, value)
    words = "--pairs 100 --presets mini --steps 4 --repeats 1 --device cpu --set training.validate_every=2"
    (line,) = called(forecast, *words.split(), *TINY)
    for name in ("seconds_per_update", "tokens_per_second", "seconds_per_validation", "seconds", "peak"):
        assert line[name]["real"] > 0 and line[name]["ratio"] > 0, name


def test_preparing_a_corpus_is_measured_stage_by_stage(called, one_process, monkeypatch, tmp_path):
    monkeypatch.setattr(data_scale, "SAMPLE", 200)
    lines = called(data_scale, "--pairs", 400, "--folder", tmp_path)
    stages = [(name, pairs) for pairs in (40, 400) for name in ("build", "start", "write", "prepare", "resume")]
    assert [(line["stage"], line["pairs"]) for line in lines] == [("tokenizer", 200), *stages]
    assert all(line["peak_megabytes"] > 0 for line in lines)


def test_systems_that_decode_take_turns_behind_pipes(called, stub, tmp_path):
    peer = stub("""
        print(json.dumps({"version": "1"}), flush=True)
        for line in sys.stdin:
            print(json.dumps({"sentences": 2, "tokens": 6, "processor_seconds": 0.1}), flush=True)
    """)
    words = ["--systems", "headway", "marian", "--python", f"headway={peer}", "--python", f"marian={peer}"]
    words += ["--beams", 1, "--batches", 1, "--turns", 2, "--repeats", 1]
    *lines, ratios = called(decode_cpu, *words, "--logs", tmp_path, "--models", tmp_path / "models")
    assert len(lines) == 4 and ratios["headway_over"].keys() == {"marian"}


def test_systems_that_train_take_turns_behind_pipes(called, stub, tmp_path):
    peer = stub("""
        for line in sys.stdin:
            print(json.dumps({"seconds": 0.1, "tokens": 10, "loss": 1.0}), flush=True)
    """)
    words = ["--systems", "headway", "torch", "--python", f"headway={peer}", "--python", f"torch={peer}"]
    lines = called(train_cpu, *words, "--repeats", 1, "--batches", 3, "--logs", tmp_path)
    assert [(line["system"], line["target_tokens_per_second"]) for line in lines] == [("headway", 100), ("torch", 100)]


def test_the_workers_behind_those_pipes_train_and_decode():
    from peers import decoding, training

    torch.manual_seed(1)
    (batch,) = training.workload.batches(1, target_tokens=40, corpus=20)
    losses = [float(training.SYSTEMS[name]()[1](batch).detach()) for name in ("headway", "torch")]
    assert all(6 < loss < 14 for loss in losses)
    with torch.no_grad():
        assert decoding.headway(SimpleNamespace())([decoding.Load([[5, 6, 7], [8, 9]], 3)], 2) == [3, 3]


def test_both_ways_through_ctranslate2_take_turns(called, model_folder, data):
    pytest.importorskip("ctranslate2")
    words = ["--model", model_folder, "--text", data / "test.en", "--repeats", 1, "--beams", 1, "--workers", 1]
    assert [line["precision"] for line in called(decode_engines, *words)] == ["fp32", "int8"]


def test_what_a_gpu_decodes_is_told_as_speeds_and_a_ratio(called, monkeypatch):
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    for name in ("headway", "marian"):
        monkeypatch.setattr(decode_gpu, name, lambda beam, captured=True: lambda sources: [[5] * 30 for _ in sources])
    *lines, ratio = called(decode_gpu, "--batches", 2, "--beams", 1, "--repeats", 1, "--eager")
    assert {line["system"] for line in lines} == {"headway", "marian", "headway-uncaptured"}
    assert ratio["ratio_to_marian"] > 0


def test_a_trained_model_is_decoded_in_every_precision(called, monkeypatch, model_folder, data, tmp_path):
    from headway import translator

    load = translator.load
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(translator, "load", lambda folder, device: load(folder))
    monkeypatch.setattr(decode_gpu, "ready", lambda model, precision: model)
    lines = called(decode_gpu, "--model", model_folder, "--text", data / "test.en", "--output", tmp_path)
    assert len(lines) == 18 and all(line["same_as_fp32_captured"] == 1.0 for line in lines)
    assert len(list(tmp_path.glob("*.txt"))) == 6


def test_the_growth_of_decoding_is_measured(called, one_process, monkeypatch, tmp_path):
    sweeps = {axis: {**sweep, "sizes": [2, 3]} for axis, sweep in decode_growth.SWEEPS.items()}
    sweeps["vocabulary"]["sizes"] = [50, 60]
    drawn = []
    monkeypatch.setattr(decode_growth, "SWEEPS", sweeps)
    monkeypatch.setattr(decode_growth, "USUAL", {"source": 3, "beam": 1, "batch": 1, "vocabulary": 50})
    monkeypatch.setattr(decode_growth, "ENOUGH", 0.0)
    monkeypatch.setattr(decode_growth, "draw", lambda lines, paths: drawn.append(paths))
    lines = called(decode_growth, "--tokens", 2, "--threads", 1, "--output", tmp_path / "growth.svg")
    assert len(lines) == 8 and all(line["seconds"] > 0 for line in lines)
    assert drawn == [[tmp_path / "growth.svg"]]


def test_growth_is_drawn_from_lines(called, tmp_path):
    pytest.importorskip("matplotlib")
    found = {"device": "CPU", **decode_growth.USUAL, "tokens": 2}
    lines = [
        {**found, "axis": axis, axis: size, "bytes": 1e6 * size, **dict.fromkeys(("seconds", "least", "most"), size)}
        for axis, sweep in decode_growth.SWEEPS.items()
        for size in sweep["sizes"]
    ]
    (tmp_path / "lines").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    called(decode_growth, "--lines", tmp_path / "lines", "--output", tmp_path / "growth.svg")
    assert (tmp_path / "growth.svg").stat().st_size > 1000


def test_a_model_of_the_family_is_trained_scored_and_timed(called, monkeypatch, data, tmp_path):
    size = {"dim": 16, "heads": 2, "hidden": 16, "encoder_layers": 1, "decoder_layers": 1}
    monkeypatch.setitem(family.MODELS, "transformer", size)
    words = ["--data", data, "--out", tmp_path, "--only", "transformer", "--steps", 8, "--device", "cpu", "--set"]
    changes = ["training.batch_tokens=128", "tokenizer.vocabulary=300", "decoding.beam=1", "decoding.longest=8"]
    changes += ["training.validation_sentences=2", "training.validate_every=8", "training.log_every=1"]
    (line,) = called(family, *words, *changes)
    assert line["training_tokens_per_second"] > 0 and line["sentences_per_second"] > 0


def test_the_models_of_the_family_are_about_equally_large(called):
    counts = {line["model"]: line["parameters"] for line in called(family, "--sizes")}
    assert counts.keys() == family.MODELS.keys()
    assert all(0.75 < count / counts["transformer"] < 1.1 for count in counts.values())


def test_the_cost_of_every_method_is_a_ratio_to_likelihood(called, monkeypatch):
    small = {"dim": 16, "heads": 2, "hidden": 16, "encoder_layers": 1, "decoder_layers": 1}
    config = methods_cpu.TransformerConfig(**small)
    monkeypatch.setattr(methods_cpu, "TransformerConfig", lambda preset: config)
    lines = called(methods_cpu, "--rounds", 1, "--sentences", 2)
    assert [line["method"] for line in lines] == list(methods_cpu.OBJECTIVES)
    assert lines[0]["ratio"] == 1.0


def test_models_that_write_at_once_are_timed_beside_a_transformer(called, monkeypatch):
    monkeypatch.setattr(parallel_decoding, "VOCABULARY", 40)
    monkeypatch.setattr(parallel_decoding, "BATCHES", (2,))
    lines = called(parallel_decoding, "--preset", "mini", "--turns", 1, "--sentences", 2)
    ways = {(kind, name) for kind, each in parallel_decoding.WAYS.items() for name in each}
    assert {(line["model"], line["decoding"]) for line in lines} > ways
    assert all(line["sentences_per_second"] > 0 for line in lines)


def test_one_process_is_timed_beside_several(called, monkeypatch, data):
    launched = []

    def alone(words, **how):
        """The same command without the launcher, as one process."""
        place = words.index("--processes") if "--processes" in words else len(words)
        launched.append(words[place : place + 2])
        return in_process([*words[:place], *words[place + 2 :], *TINY], **how)

    monkeypatch.setattr(subprocess, "run", alone)
    lines = called(processes, "--data", data, "--preset", "mini", "--steps", 8, "--repeats", 1)
    assert launched == [[], ["--processes", "2"], ["--processes", "2"]]
    assert len(lines) == 3 and all(line["tokens_per_second"] > 0 for line in lines)


def test_quality_in_the_same_time_is_measured_on_a_cpu(called, monkeypatch, data):
    monkeypatch.setattr(quality, "TRIAL", 0.05)
    monkeypatch.setattr(quality, "FREE", 2)
    words = f"--data {data} --device cpu --systems headway --seconds 0.2 --preset tiny --tokens 256 --vocabulary 300"
    line, summary = called(quality_gpu, *words.split(), "--fractions", 1.0)
    assert line["steps"] > 0 and line["sentences"] == 3
    assert summary["headway_bleu"] == {"1.0": line["bleu"]}


def test_restricted_attention_is_timed_and_weighed_beside_others(called, one_process):
    words = "--lengths 32 --window 8 --heads 1 --width 8 --rounds 1 --threads 1 --causal"
    lines = called(restricted_attention, *words.split())
    assert [line["implementation"] for line in lines] == list(restricted_attention.IMPLEMENTATIONS)
    assert all(line["seconds"]["median"] > 0 and line["peak_bytes"] >= 0 for line in lines)


def test_a_soak_hands_on_what_the_tests_of_its_goals_measure(called, monkeypatch, tmp_path):
    assert all(soak.files([goal]) for goal in soak.GOALS)
    (tmp_path / "test_g1_kills.py").write_text(
        "import os, pathlib\n"
        "def test_kills():\n"
        "    line = '{\"goal\": \"G1\", \"seed\": ' + os.environ['HEADWAY_SEED'] + '}\\n'\n"
        "    pathlib.Path(os.environ['HEADWAY_FIGURES']).write_text(line)\n",
        encoding="utf-8",
    )
    monkeypatch.setattr(soak, "TESTS", tmp_path)
    monkeypatch.setattr(soak, "ROOT", tmp_path)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    (line,) = called(soak, "--goals", "g1", "--workers", 1, "--seed", 7)
    assert (line["goal"], line["seed"]) == ("G1", 7)


def test_the_growth_of_training_is_measured(called, monkeypatch):
    small = gpu_work.Size("small", 16, 2, 16, 1, vocabulary=20, tokens=32)
    monkeypatch.setattr(train_growth, "points", lambda *_: [train_growth.Point("length", 8, small, 8)])
    monkeypatch.setattr(train_growth, "matrix_peak", lambda *_, **__: 1e9)
    (line,) = called(train_growth, "--device", "cpu", "--seconds", 0.01)
    assert "failed" not in line, line["failed"]
    assert line["ms_per_step"] > 0 and line["theory_ms"] > 0


def test_what_safety_costs_is_measured(called, monkeypatch, data):
    monkeypatch.setattr(training_costs, "UPDATES", 1)
    monkeypatch.setattr(training_costs, "ROUNDS", 1)
    lines = called(training_costs, "--data", data, "--device", "cpu", "--preset", "mini", "--threads", 1)
    assert [line["what"] for line in lines] == ["deterministic", "saving"]


def test_a_file_is_translated_at_once_and_after_a_kill(called):
    (line,) = called(translate_many, 60, 1)
    assert line["lines_in"] == line["lines_out"] == 60
    assert line["identical"]

"""Two processes that train one model, by gloo on the CPU."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

SETTINGS = {
    "tokenizer.vocabulary": 300, "model.dim": 16, "model.heads": 2, "model.hidden": 32, "model.encoder_layers": 1,
    "model.decoder_layers": 1, "model.longest": 64, "model.dropout": 0.0, "training.batch_tokens": 128,
    "training.steps": 14, "training.validate_every": 7, "training.average": 1, "training.log_every": 1,
    "training.samples": 0, "training.validation_sentences": 2, "training.learning_rate": 0.01,
}  # fmt: skip


def command(corpus, out, *options, **settings):
    named = SETTINGS | {name.replace("__", "."): value for name, value in settings.items()}
    sets = [part for name, value in named.items() for part in ("--set", f"{name}={value}")]
    files = ["--source", str(corpus[0]), "--target", str(corpus[1])]
    return ["headway", "train", *files, "--out", str(out), "--device", "cpu", *sets, *map(str, options)]


def environment():
    return {name: value for name, value in os.environ.items() if "RANK" not in name} | {"OMP_NUM_THREADS": "1"}


def run(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", *arguments], check=False, capture_output=True, text=True, env=environment(), timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def journal(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def losses(out):
    return [line["train/loss"] for line in journal(out) if "train/loss" in line]


@pytest.fixture(scope="module")
def parallel_corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parallel")
    lines = [" ".join(f"w{(3 * n + k * k) % 17}" for k in range(2 + n % 7)) for n in range(120)]
    (folder / "source").write_text("".join(f"{line}\n" for line in lines))
    (folder / "target").write_text("".join(f"{line.upper()}\n" for line in lines))
    return folder / "source", folder / "target"


@pytest.fixture(scope="module")
def alone(parallel_corpus, tmp_path_factory):
    """One process that takes two batches to an update."""
    out = tmp_path_factory.mktemp("alone") / "run"
    run(*command(parallel_corpus, out, training__accumulate=2))
    return out


@pytest.mark.parametrize("recompute", ["false", "true"], ids=["once", "again"])
@pytest.mark.parametrize("sharded", ["false", "true"], ids=["copied", "sharded"])
def test_an_update_of_two_processes_is_that_of_one_with_the_same_batches(
    parallel_corpus, alone, tmp_path, sharded, recompute
):
    """DDP and FSDP2 alike; the number of batches of an epoch is odd, so that one process at times has none."""
    ways = {"training__sharded": sharded, "training__recompute": recompute}
    told = run(*command(parallel_corpus, tmp_path / "run", "--processes", 2, **ways))
    assert "2 processes" in told
    ours, theirs = losses(tmp_path / "run"), losses(alone)
    assert len(ours) == 14
    assert max(abs(one - other) for one, other in zip(ours, theirs, strict=True)) < 1e-5
    both = tmp_path / "run", alone
    scores = [[line["valid/loss"] for line in journal(out) if "valid/loss" in line] for out in both]
    assert scores[0] == pytest.approx(scores[1], abs=1e-5)
    weights = [load_file(out / "best/model.safetensors") for out in both]
    for name, weight in weights[0].items():
        if name.endswith("inputs.bias"):  # a third of which, that of the keys, changes nothing: Adam moves it by noise
            continue
        torch.testing.assert_close(weight, weights[1][name], atol=1e-4, rtol=1e-3)


def test_a_run_goes_on_with_another_number_of_processes_and_says_so(parallel_corpus, tmp_path):
    """Begun by torchrun itself with two, resumed by one; no batch of an epoch is left out or met twice."""
    out = tmp_path / "run"
    torchrun = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m")
    run(*torchrun, *command(parallel_corpus, out, training__steps=3, training__schedule="inverse_sqrt"))
    told = run("headway", "train", "--out", str(out), "--device", "cpu", "--resume", "--set", "training.steps=14")
    assert "resuming at step 3" in told
    assert "now with 1 instead of 2 processes" in told and "no pair is lost or repeated" in told
    progress = json.loads((max((out / "checkpoints").iterdir()) / "progress.json").read_text())
    (cuts,) = {int(np.frombuffer(path.read_bytes()[-40:-32], "<i8")[0]) for path in (out / "data/plans").iterdir()}
    assert progress["epoch"] * (cuts - 1) + progress["position"] == 2 * 3 + (14 - 3)


def test_a_signal_to_the_launcher_saves_at_the_current_step_in_all_processes(parallel_corpus, tmp_path):
    out = tmp_path / "run"
    arguments = command(parallel_corpus, out, "--processes", 2, training__steps=100000, training__patience=100000)
    words, apart = [sys.executable, "-m", *arguments], {"env": environment(), "start_new_session": True}
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, **apart) as process:
        for line in process.stderr:
            if line.startswith("step 9"):
                break
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
    assert process.wait(300) == 143, rest
    (said,) = [line for line in rest.splitlines() if line.startswith("headway: ")]
    step = int(said.split("stopped at step ")[1].split(";")[0])
    assert (out / f"checkpoints/step-{step:09d}/MANIFEST.json").is_file()


def test_a_mistake_in_several_processes_is_one_line_and_is_not_tried_again(parallel_corpus, tmp_path):
    out = tmp_path / "run"
    run(*command(parallel_corpus, out, training__steps=2))
    again = ["train", "--out", str(out), "--device", "cpu", "--resume", "--set", "training.seed=2", "--processes", "2"]
    words = [sys.executable, "-m", "headway", *again]
    done = subprocess.run(words, check=False, capture_output=True, text=True, env=environment(), timeout=300)
    assert done.returncode == 2, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("headway: ")]
    assert "training.seed" in line


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="finds the processes in /proc")
def test_torchrun_itself_replaces_a_killed_process_and_the_run_goes_on_by_itself(parallel_corpus, tmp_path):
    """Without --resume, as a user starts it by hand: the restarted processes find the run that was begun."""
    out = tmp_path / "run"
    settings = {"training__steps": 40, "training__validate_every": 40, "training__save_every": 4}
    torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "3", "-m"]
    words = [sys.executable, "-m", *torchrun, *command(parallel_corpus, out, **settings)]
    apart = {"env": environment() | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}, "start_new_session": True}
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, **apart) as process:
        for line in process.stderr:
            if line.startswith("step 9"):
                break
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(children[-1]), signal.SIGKILL)
        rest = process.stderr.read()
    assert process.returncode == 0, rest
    assert "resuming at step" in rest
    assert [line["step"] for line in journal(out) if "train/loss" in line] == list(range(1, 41))

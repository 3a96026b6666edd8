"""What only a process of its own can show: pipes, signals, full disks, locks."""

import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}
COMMAND = [sys.executable, "-m", "headway"]


def shell(script: str, *arguments: object) -> subprocess.CompletedProcess:
    """Run a shell script; `headway` in it is the command, $1 and so on are the arguments."""
    whole = f'headway() {{ "{sys.executable}" -m headway "$@"; }}\n{script}'
    given = ["bash", "-o", "pipefail", "-c", whole, "bash", *map(str, arguments)]
    return subprocess.run(given, capture_output=True, text=True, timeout=600, env=ENVIRONMENT, check=False)


def test_a_reader_that_has_seen_enough_ends_the_command_quietly(model_folder, tmp_path):
    (tmp_path / "in").write_text("le chat\n" * 3000)
    done = shell('headway translate "$1" --input "$2" --buffer 1 --beam 1 | head -1', model_folder, tmp_path / "in")
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1
    assert done.returncode == 1


def test_a_full_disk_behind_either_output_is_told_in_one_line(model_folder):
    done = shell('echo le chat | headway translate "$1" > /dev/full', model_folder)
    assert done.returncode == 1
    assert done.stderr == "headway: standard output: No space left on device; free space, or write elsewhere\n"
    done = shell('echo le chat | headway translate "$1" --output /dev/full', model_folder)
    assert done.returncode == 1
    assert done.stderr == "headway: /dev/full: cannot be written (No space left on device); choose another --output\n"


def test_closed_streams_are_no_reason_for_a_traceback(model_folder):
    done = shell('headway translate "$1" <&-', model_folder)
    assert done.returncode == 2
    assert done.stderr == "headway: standard input: closed; redirect it from a file\n"
    for closed, code in (("2>&-", 0), (">&- 2>&-", 2)):
        done = shell(f"headway --version {closed}")
        assert (done.returncode, bool(done.stdout), done.stderr) == (code, code == 0, "")
    assert shell("headway translate absent 2> /dev/full").returncode == 2


@pytest.mark.parametrize(
    "command",
    ["translate", "score --source in --target in", "embed", "evaluate --reference in", "prove", "attention le"],
)
def test_a_closed_output_is_refused_before_the_work(command, tmp_path):
    name, *options = command.split()
    done = shell(f'cd "$1" && headway {name} absent {" ".join(options)} >&-', tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("headway: standard output: closed")
    assert done.stderr.count("\n") == 1


def test_a_closed_output_is_no_matter_where_a_file_is_named(model_folder, tmp_path):
    script = 'headway translate "$1" --input "$2" --output "$3" >&- <&-'
    (tmp_path / "in").write_text("le chat\n")
    done = shell(script, model_folder, tmp_path / "in", tmp_path / "out")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "out").read_text().count("\n") == 1
    done = shell(script, model_folder, tmp_path / "in", "/dev/stdout")
    assert done.returncode == 2
    assert "/dev/stdout: cannot be written" in done.stderr


@pytest.mark.parametrize("setting", ["PYTHONIOENCODING=ascii", "PYTHONUTF8=0 LC_ALL=C PYTHONCOERCECLOCALE=0"])
def test_results_are_utf8_whatever_the_system_says(setting, model_folder):
    line = '{"source": "é"}'
    done = shell(f'export {setting}; headway translate "$1" --json <<< "$2"', model_folder, line)
    assert done.returncode == 0, done.stderr
    assert "é" in done.stdout
    done = shell(f"export {setting}; headway --help && headway translate é")
    assert done.returncode == 2
    assert "│" in done.stdout
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("columns", ["0", "1", "abc", "-5", "9" * 20, ""])
def test_help_is_shown_whatever_the_width_is_said_to_be(columns):
    done = shell('export COLUMNS="$1"; headway translate --help', columns)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--beam" in done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit address space")
def test_less_memory_than_torch_needs_is_said_before_the_work(model_folder):
    done = shell('ulimit -v 600000; headway translate "$1" <<< "le chat"', model_folder)
    assert done.returncode == 1
    assert done.stderr.startswith("headway: memory: the system allows this process 585 MiB")
    assert done.stderr.count("\n") == 1


def test_standard_input_that_is_the_output_is_refused(model_folder, tmp_path):
    (tmp_path / "in").write_text("le chat\n")
    done = shell('headway translate "$1" --output "$2" < "$2"', model_folder, tmp_path / "in")
    assert done.returncode == 2
    assert "is also the input" in done.stderr
    assert (tmp_path / "in").read_text() == "le chat\n"


def test_an_interrupt_while_translating_ends_in_130_and_leaves_no_half_output(model_folder, tmp_path):
    command = [*COMMAND, "translate", str(model_folder), "--buffer", "1", "--output", str(tmp_path / "out")]
    # A suite started in the background inherits an ignored SIGINT, and would hand it on.
    restore = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, **pipes, text=True, env=ENVIRONMENT, preexec_fn=restore)  # noqa: PLW1509  # no thread holds a lock here
    process.stdin.write("le chat\n")
    process.stdin.flush()
    wait_for(lambda: any(path.stat().st_size for path in tmp_path.rglob("new")), process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 130
    assert errors == "headway: stopped\n"
    assert list(tmp_path.iterdir()) == []


def test_a_stop_while_training_saves_the_step_and_the_run_goes_on_from_it(train, tiny, tmp_path, corpus):
    out = tmp_path / "run"
    settings = tiny | {"training.steps": 1_000_000, "training.validate_every": 1_000_000, "training.log_every": 1}
    sets = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    files = ["--source", str(corpus[0]), "--target", str(corpus[1]), "--out", str(out), "--device", "cpu"]
    process = subprocess.Popen([*COMMAND, "train", *files, *sets], stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    wait_for(lambda: (out / "metrics.jsonl").exists() and (out / "metrics.jsonl").stat().st_size, process)
    assert f"{out}: another process is training there" in train().complaint
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 143
    (step,) = re.findall(r"^headway: stopped at step (\d+); --resume goes on from there$", errors, re.MULTILINE)
    assert "Traceback" not in errors
    assert [path.name for path in (out / "checkpoints").iterdir()] == [f"step-{int(step):09d}"]
    options = {name.replace(".", "__"): value for name, value in settings.items()}
    resumed = train("--resume", **options | {"training__steps": int(step) + 2})
    assert resumed.code == 0, resumed.err
    assert f"resuming at step {step}\n" in resumed.err
    assert f"all {int(step) + 2} steps are done" in resumed.err


def wait_for(condition, process, seconds: float = 600.0) -> None:
    """Wait until something has happened, while the process is still there."""
    until = time.monotonic() + seconds
    while not condition():
        if process.poll() is not None or time.monotonic() > until:
            pytest.fail(f"nothing happened: {process.poll()} {process.stderr.read()}")
        time.sleep(0.05)


def test_a_folder_of_the_current_place_is_never_imported(tmp_path):
    (tmp_path / "torch.py").write_text("raise SystemExit('executed')")
    script = Path(sys.executable).with_name("headway")
    done = subprocess.run([script, "info"], cwd=tmp_path, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert done.returncode == 0, done.stderr

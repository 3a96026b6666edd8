"""G2: Ctrl-C, SIGTERM and a closed terminal end a run within seconds; its step is saved, and the run can go on."""

import os
import re
import signal
import subprocess
import sys
import time
from functools import partial

import pytest
from runs import checkpoint, result, saved_step
from tallies import SOAK

INTERRUPT, TERMINATE, HANG_UP = int(signal.SIGINT), int(signal.SIGTERM), int(signal.SIGHUP)
BEFORE = ["counting", "storing", "planning", "built"]
"""Phases in which there is no step to save yet."""
DURING = ["step 1", "step 6", "validating", "saving", "pruning", "averaging"]
STUCK, PATIENCE = 120.0, 60.0
"""Seconds for which a library does not return, and those to the end where other work keeps the machine busy: the soak,
which has it to itself, holds the run to the seconds that are promised."""
WRITING = "writing"
"""So near the end that a run may as well end well."""
PHASES = [*BEFORE, *DURING, WRITING]


def check(ended, phase, number, watched, out):
    """The right exit code, one line, and the current step on the disk."""
    codes = {128 + number} | ({0} if phase == WRITING else set())
    if "the model is in" in ended.err:  # all was done, and Python itself was ending
        return
    assert ended.code in codes, (ended.code, ended.err)
    assert "Traceback" not in ended.err, ended.err
    complaints = [line for line in ended.lines if line.startswith("headway: ")]
    assert len(complaints) == (ended.code != 0), ended.err
    if ended.code and watched.step:
        assert complaints == [f"headway: stopped at step {watched.step}; --resume goes on from there"]
        assert saved_step(out) == watched.step
        progress = checkpoint(out / "checkpoints" / f"step-{watched.step:09d}")["progress"]
        assert progress["step"] == watched.step


def since_signal(watched, ended) -> float:
    """Seconds from the last signal to the end of the process."""
    sent = [float(phase.split()[1]) for phase in watched.phases if phase.startswith("signalled")]
    return ended.at - sent[-1]


def test_a_signal_in_any_phase_saves_the_step_and_leaves_within_five_seconds(runs, unbroken, chance, tally, tmp_path):
    began = time.monotonic()
    assert runs.train(tmp_path / "timed").code == 0
    length, wanted = time.monotonic() - began, result(unbroken)
    cases = [(phase, number) for phase in PHASES for number in (INTERRUPT, TERMINATE)]
    cases += [("counting", HANG_UP), ("step 6", HANG_UP), ("saving", HANG_UP)]
    for count in range(tally.expect(len(cases) + 4, 200)):
        out = tmp_path / f"run-{count}"
        given = runs.arguments(out)
        if count < len(cases):
            phase, number = cases[count]
            watched = runs.watch("signalled", given, phase=phase, numbers=[number])
            ended = watched.wait()
            tally.saw(seconds_to_exit=since_signal(watched, ended))
        else:  # at any time
            number = chance.choice((INTERRUPT, TERMINATE, HANG_UP))
            watched = runs.watch("signalled", given, phase="", numbers=[])
            sent = time.monotonic() + chance.uniform(0.05, length)
            for _ in watched.hear(sent - time.monotonic()):
                pass
            watched.trial.kill(number)
            ended = watched.wait()
            phase = WRITING if WRITING in watched.phases else "any"
            tally.saw(seconds_to_exit=ended.at - sent)
        check(ended, phase, number, watched, out)
        assert tally.worst["seconds_to_exit"] < (5.0 if SOAK else PATIENCE)
        if SOAK or count % 2 == 0 or count >= len(cases):  # both signals leave the same behind
            goes_on(runs, out, given, ended, wanted)
        tally.passed += 1


def goes_on(runs, out, given, ended, wanted):
    """Do what the last line says; the result is that of the unbroken run."""
    again = [*given, "--resume"] if (out / "best").exists() or "--resume" in ended.lines[-1] else given
    resumed = runs.forks.run("trials.command", out.with_name(f"{out.name}-log"), arguments=again)
    assert resumed.code == 0, (ended.err, resumed.err)
    assert result(out) == wanted


@pytest.mark.parametrize("phase", ["step 6", "validating", "saving"])
def test_a_second_ctrl_c_leaves_within_a_second_and_loses_no_checkpoint(phase, runs, unbroken, tally, tmp_path):
    """Even where the main thread is in a library that does not return."""
    out = tmp_path / "run"
    given, tally.count = runs.arguments(out), 1
    watched = runs.watch("signalled", given, phase=phase, numbers=[INTERRUPT, INTERRUPT], stuck=STUCK)
    ended = watched.wait()
    tally.saw(seconds_to_exit=since_signal(watched, ended))
    assert ended.code == 130, ended.err
    assert ended.lines[-1].startswith("headway: stopped") and "Traceback" not in ended.err
    assert tally.worst["seconds_to_exit"] < (1.0 if SOAK else PATIENCE)
    resumed = runs.train(out)
    assert resumed.code == 0, resumed.err
    assert result(out) == result(unbroken)
    tally.passed = 1


@pytest.mark.parametrize("number", [INTERRUPT, TERMINATE] if SOAK else [INTERRUPT])
def test_a_signal_to_the_whole_group_of_a_real_process_saves_the_step(number, runs, tally, tmp_path):
    out, tally.count = tmp_path / "run", 1
    settings = {"training__steps": 1_000_000, "training__validate_every": 1_000_000}
    # A suite started in the background inherits an ignored SIGINT, and would hand it on.
    restore = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [sys.executable, "-m", "headway", *runs.arguments(out, **settings)],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        start_new_session=True,
        preexec_fn=restore,  # noqa: PLW1509  # no thread holds a lock here
    )
    while not (out / "metrics.jsonl").exists() or not (out / "metrics.jsonl").stat().st_size:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    sent = time.monotonic()
    os.killpg(process.pid, number)
    _, errors = process.communicate(timeout=600)
    tally.saw(seconds_to_exit=time.monotonic() - sent)
    assert process.returncode == 128 + number, errors
    assert tally.worst["seconds_to_exit"] < (5.0 if SOAK else PATIENCE)
    (step,) = re.findall(r"^headway: stopped at step (\d+); --resume goes on from there$", errors, re.MULTILINE)
    assert saved_step(out) == int(step)
    assert "Traceback" not in errors
    tally.passed = 1

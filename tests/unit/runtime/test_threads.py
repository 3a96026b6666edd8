"""The choice of threads and of how they wait, and who makes it."""

import os
import subprocess
import sys

import pytest
import torch

from headway.runtime import threads as module
from headway.runtime.cores import Cores
from headway.runtime.threads import RECORD, WAITING, choose, describe, prepare_environment, share_threads

FREE = Cores(8, 8, 8)
QUOTA = Cores(8, 8, 8, quota=1.5)
AFFINITY = Cores(8, 3, 3)
SPINNING = "waiting threads " + ("spin 10000 times" if sys.platform == "linux" else "spin for a while") + ", then sleep"
NAMES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", RECORD)


@pytest.mark.parametrize(
    ("environment", "cores", "threads", "reason"),
    [
        ({}, FREE, None, "torch"),
        ({}, QUOTA, 2, "quota"),
        ({}, AFFINITY, 3, "affinity"),
        ({}, Cores(8, 3, 3, quota=2.0), 2, "quota"),
        ({"OMP_NUM_THREADS": "7"}, QUOTA, None, "user"),
        ({"MKL_NUM_THREADS": "7"}, AFFINITY, None, "user"),
    ],
)
def test_the_smaller_limit_is_chosen_unless_the_user_has_chosen(environment, cores, threads, reason):
    chosen = choose(environment, cores)
    assert (chosen.threads, chosen.reason) == (threads, reason)
    assert (chosen.waiting, chosen.waiting_by_user) == (WAITING, False)


def test_the_environment_is_set_for_the_runtime_that_torch_loads():
    environment = {"PATH": "/bin"}
    prepare_environment(environment, QUOTA)
    expected = {"PATH": "/bin", "OMP_NUM_THREADS": "2", **WAITING}
    assert {name: value for name, value in environment.items() if name != RECORD} == expected


def test_where_nothing_limits_the_process_the_number_is_left_to_torch():
    environment = {}
    prepare_environment(environment, FREE)
    assert "OMP_NUM_THREADS" not in environment and environment["GOMP_SPINCOUNT"] == "10000"


@pytest.mark.parametrize(
    "given", [{"OMP_WAIT_POLICY": "active"}, {"GOMP_SPINCOUNT": "1000"}, {"KMP_BLOCKTIME": "infinite"}]
)
def test_one_variable_of_the_users_for_waiting_leaves_all_of_them_alone(given):
    environment = dict(given)
    prepare_environment(environment, FREE)
    assert environment == given
    assert choose(environment, FREE).waiting_by_user


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "MKL_NUM_THREADS"])
def test_a_number_of_the_users_is_left_alone(name):
    environment = {name: "5", "OMP_WAIT_POLICY": "active"}
    prepare_environment(environment, QUOTA)
    assert environment == {name: "5", "OMP_WAIT_POLICY": "active"}


def test_a_child_process_keeps_what_its_parent_has_set_and_knows_that_it_is_not_the_users():
    environment = {}
    prepare_environment(environment, QUOTA)
    inherited = dict(environment)
    prepare_environment(inherited, FREE)
    assert inherited == environment
    assert choose(inherited, QUOTA) == choose({}, QUOTA)


def test_a_value_that_somebody_has_changed_since_is_the_users():
    environment = {}
    prepare_environment(environment, QUOTA)
    environment |= {"OMP_NUM_THREADS": "4", "OMP_WAIT_POLICY": "active"}
    chosen = choose(environment, QUOTA)
    assert (chosen.reason, chosen.waiting_by_user) == ("user", True)


def test_several_processes_share_the_threads_unless_the_user_has_chosen():
    environment = {}
    prepare_environment(environment, QUOTA)
    share_threads(environment, 0)
    assert environment["OMP_NUM_THREADS"] == "1"
    inherited = dict(environment)
    prepare_environment(inherited, QUOTA)
    assert inherited == environment
    given = {"OMP_NUM_THREADS": "5"}
    share_threads(given, 2)
    assert given == {"OMP_NUM_THREADS": "5"}


@pytest.mark.parametrize(
    ("cores", "environment", "before", "after"),
    [(QUOTA, {}, 4, 2), (QUOTA, {}, 1, 1), (FREE, {}, 4, 4), (QUOTA, {"OMP_NUM_THREADS": "4"}, 4, 4)],
)
def test_torch_that_is_loaded_already_gets_fewer_threads_but_never_more(cores, environment, before, after, monkeypatch):
    now = [before]
    monkeypatch.setattr(torch, "get_num_threads", lambda: now[0])
    monkeypatch.setattr(torch, "set_num_threads", lambda number: now.__setitem__(0, number))
    monkeypatch.setattr(module, "read_cores", lambda: cores)
    monkeypatch.setattr(module.os, "environ", environment)
    module.limit_torch_threads.__wrapped__()
    assert now == [after]


@pytest.mark.parametrize(
    ("environment", "cores", "lines"),
    [
        (
            {},
            QUOTA,
            [
                "threads 2 (CPU quota of 1.5)",
                f"{SPINNING} (GOMP_SPINCOUNT=10000, KMP_BLOCKTIME=1, chosen by Headway)",
            ],
        ),
        (
            {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "ACTIVE"},
            QUOTA,
            ["threads 2 (OMP_NUM_THREADS=2, set by you)", "waiting threads spin (OMP_WAIT_POLICY=ACTIVE, set by you)"],
        ),
        (
            {"OMP_WAIT_POLICY": "passive"},
            AFFINITY,
            [
                "threads 2 (CPU affinity: 3 of 8 processors)",
                "waiting threads sleep (OMP_WAIT_POLICY=passive, set by you)",
            ],
        ),
    ],
)
def test_the_choice_is_described_with_its_reason(environment, cores, lines):
    prepare_environment(environment, cores)
    assert describe(environment, cores, 2) == lines


def test_an_unlimited_process_and_a_spin_count_are_described(monkeypatch):
    monkeypatch.setattr(module.sys, "platform", "linux")
    threads, waiting = describe({"GOMP_SPINCOUNT": "700"}, FREE, 8)
    assert threads == "threads 8 (torch's own number; no CPU quota or affinity limits this process)"
    assert waiting == "waiting threads spin 700 times, then sleep (GOMP_SPINCOUNT=700, set by you)"


def python(script, **given):
    """What a script prints in a process of its own, which has only these variables for threads."""
    environment = {name: value for name, value in os.environ.items() if name not in NAMES} | given
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done


LOADED = """
import os, sys
from headway import cli
assert "torch" not in sys.modules
seen = []
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch" and not seen:
            seen.append(os.environ.get("GOMP_SPINCOUNT"))
sys.meta_path.insert(0, Watch())
try:
    cli.main(["info"])
except SystemExit as ended:
    print("at load:", *seen)
    sys.exit(ended.code)
"""


@pytest.mark.parametrize(
    ("given", "spins", "line"),
    [
        ({}, "10000", f"{SPINNING} (GOMP_SPINCOUNT=10000, KMP_BLOCKTIME=1, chosen by Headway)"),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, "None", "waiting threads spin (OMP_WAIT_POLICY=ACTIVE, set by you)"),
    ],
)
def test_a_command_sets_the_environment_before_torch_is_loaded_and_the_users_setting_wins(given, spins, line):
    done = python(LOADED, OMP_NUM_THREADS="1", OMP_DISPLAY_ENV="VERBOSE", **given)
    lines = done.stdout.splitlines()
    assert f"at load: {spins}" in lines
    assert line in lines and "threads 1 (OMP_NUM_THREADS=1, set by you)" in lines
    if "GOMP_SPINCOUNT" in done.stderr:  # GNU's runtime tells what it has understood
        assert ("GOMP_SPINCOUNT = '10000'" in done.stderr) is (spins == "10000")


def test_help_loads_no_torch():
    script = "import sys\nfrom headway import cli\ntry: cli.main(['--help'])\nfinally: print('torch' in sys.modules)"
    assert python(script).stdout.splitlines()[-1] == "False"


def test_worker_processes_inherit_the_choice():
    script = (
        "import os\nfrom multiprocessing import get_context\n"
        "from headway.runtime.threads import prepare_environment\nprepare_environment(os.environ)\n"
        "with get_context('spawn').Pool(1) as pool: print(pool.apply(os.getenv, ['GOMP_SPINCOUNT']))"
    )
    assert python(script).stdout == "10000\n"

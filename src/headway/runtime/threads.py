"""How many threads torch computes with, and how they wait for each other; the user's own environment always wins.

The OpenMP runtime reads its environment once, when torch is loaded. So the commands call `prepare_environment` first,
and this module imports torch only inside the functions that need it.
"""

import os
import sys
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from headway.runtime.cores import Cores, read_cores

NUMBER = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Variables by which a user chooses the number of threads."""
WAITING = {"GOMP_SPINCOUNT": "10000", "KMP_BLOCKTIME": "1"}
"""Threads that wait spin for a moment, then sleep: for GNU's runtime, which torch has on Linux, and for Intel's and
LLVM's.

By default they spin for many milliseconds. Where another process needs the core, that is the time in which the thread
they wait for could have run. Threads that sleep at once lose a fifth of the speed of training on a quiet machine and
half of that of decoding, because most waits are shorter than waking up takes.
"""
WAITING_NAMES = (*WAITING, "OMP_WAIT_POLICY")
"""Variables by which a user chooses how threads wait."""
RECORD = "HEADWAY_CHOSEN"
"""Variable that lists what Headway has set itself, so that child processes do not take it for the user's."""

Reason = Literal["user", "quota", "affinity", "torch"]


@dataclass(frozen=True)
class Choice:
    """How many threads compute, how they wait, and who says so."""

    threads: int | None
    """None leaves the number to torch or to the user's variables."""
    reason: Reason
    waiting: Mapping[str, str]
    """The variables in effect; without any, the runtime's default."""
    waiting_by_user: bool


def choose(environment: Mapping[str, str], cores: Cores) -> Choice:
    """Choose for a process with this environment and these cores.

    If the user has set one variable for the number of threads, or one for the waiting, all of that kind stay as they
    are.
    """
    own = _chosen_by_headway(environment)
    given = {name: environment[name] for name in WAITING_NAMES if name in environment and name not in own}
    waiting: Mapping[str, str] = given or WAITING
    if _number_by_user(environment):
        return Choice(None, "user", waiting, bool(given))
    limit = cores.limit
    if limit is None:
        return Choice(None, "torch", waiting, bool(given))
    return Choice(limit, "quota" if limit < cores.physical else "affinity", waiting, bool(given))


def prepare_environment(environment: MutableMapping[str, str], cores: Cores | None = None) -> None:
    """Set the variables that torch's OpenMP runtime reads when it is loaded; child processes inherit them.

    What stands in the environment already stays: it is the user's, or a parent process of Headway has set it.
    """
    chosen = choose(environment, cores or read_cores())
    wanted = {} if chosen.waiting_by_user else dict(chosen.waiting)
    if chosen.threads is not None:
        wanted["OMP_NUM_THREADS"] = str(chosen.threads)
    _set(environment, {name: value for name, value in wanted.items() if name not in environment})


def share_threads(environment: MutableMapping[str, str], threads: int) -> None:
    """Let each of several child processes compute with `threads` threads, unless the user has chosen another number."""
    if not _number_by_user(environment):
        _set(environment, {"OMP_NUM_THREADS": str(max(1, threads))})


@cache
def limit_torch_threads() -> None:
    """Lower torch's number of threads to what this process may use; only the first call does anything.

    For Python programs, in which torch is loaded before Headway can prepare the environment. A number that the program
    sets afterwards stays, and the user's variables win.
    """
    import torch

    threads = choose(os.environ, read_cores()).threads
    if threads is not None and threads < torch.get_num_threads():
        torch.set_num_threads(threads)


def describe(environment: Mapping[str, str], cores: Cores, threads: int) -> list[str]:
    """Two lines for people: the number of threads that torch has, how they wait, and why."""
    chosen = choose(environment, cores)
    reasons = {
        "user": ", ".join(f"{name}={environment[name]}" for name in NUMBER if name in environment) + ", set by you",
        "quota": f"CPU quota of {cores.quota or 0:g}",
        "affinity": f"CPU affinity: {cores.allowed} of {cores.machine} processors",
        "torch": "torch's own number; no CPU quota or affinity limits this process",
    }
    shown = ", ".join(f"{name}={value}" for name, value in chosen.waiting.items())
    by = "set by you" if chosen.waiting_by_user else "chosen by Headway"
    return [f"threads {threads} ({reasons[chosen.reason]})", f"waiting threads {_policy(chosen)} ({shown}, {by})"]


def _policy(chosen: Choice) -> str:
    """What waiting threads do, as far as the variables tell."""
    policy, spins = chosen.waiting.get("OMP_WAIT_POLICY", "").lower(), chosen.waiting.get("GOMP_SPINCOUNT")
    if spins is not None and sys.platform == "linux":
        return f"spin {spins} times, then sleep"
    return {"passive": "sleep", "active": "spin"}.get(policy, "spin for a while, then sleep")


def _number_by_user(environment: Mapping[str, str]) -> bool:
    """Whether the user has chosen the number of threads."""
    return not _chosen_by_headway(environment).issuperset(name for name in NUMBER if name in environment)


def _chosen_by_headway(environment: Mapping[str, str]) -> set[str]:
    """Names that Headway has set here or in a parent process, and nobody has changed since."""
    pairs = [entry.partition("=") for entry in environment.get(RECORD, "").split()]
    return {name for name, _, value in pairs if environment.get(name) == value}


def _set(environment: MutableMapping[str, str], wanted: dict[str, str]) -> None:
    """Set variables, and record that it was Headway."""
    own = {name: environment[name] for name in _chosen_by_headway(environment)}
    environment.update(wanted)
    if own | wanted:
        environment[RECORD] = " ".join(f"{name}={value}" for name, value in sorted((own | wanted).items()))

"""The processor cores this process may use: CPU affinity, and the CPU quota of its control groups."""

import math
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from headway.runtime.groups import ROOT, control_groups, read_text


@dataclass(frozen=True)
class Cores:
    """The processors of a machine, and how much of them one process may use."""

    machine: int
    """Processors of the machine, hardware threads counted one by one."""
    allowed: int
    """Processors this process may run on (CPU affinity)."""
    physical: int
    """Physical cores those belong to: two hardware threads of one core count once."""
    quota: float | None = None
    """Processor time per unit of time that the control group may use, such as 1.5; None where nothing limits it."""

    @property
    def available(self) -> int:
        """Processes that can run at the same time. A fraction of a quota counts as one more; never less than 1."""
        return self._within(self.allowed)

    @property
    def limit(self) -> int | None:
        """Threads that compute at the same time, one per physical core; None where nothing limits this process.

        A quota is rounded up. With a quota of 1.5 two threads compute for three quarters of the time, which is faster
        than one thread all the time, as long as threads that wait sleep.
        """
        limited = self.allowed < self.machine or self._within(self.physical) < self.physical
        return self._within(self.physical) if limited else None

    def _within(self, count: int) -> int:
        return max(1, count if self.quota is None else min(count, math.ceil(self.quota)))


def read_cores(root: Path = ROOT) -> Cores:
    """Ask the system; `root` is where its /proc and /sys are."""
    machine = os.cpu_count() or 1
    if not hasattr(os, "sched_getaffinity"):  # not Linux: nothing can limit the process
        return Cores(machine, machine, machine)
    allowed = os.sched_getaffinity(0)
    return Cores(machine, len(allowed), _count_physical(allowed, root), read_quota(root))


def read_quota(root: Path = ROOT) -> float | None:
    """The smallest CPU quota of this process's control groups and their parents, in cores; None where there is none."""
    quotas = [quota for folder in control_groups(root, "cpu") for quota in _quotas_of(folder)]
    return min(quotas, default=None)


def _quotas_of(folder: Path) -> Iterator[float]:
    """The quota of one control group, in version 2 or version 1."""
    for words in (
        read_text(folder / "cpu.max").split(),
        [*read_text(folder / "cpu.cfs_quota_us").split(), *read_text(folder / "cpu.cfs_period_us").split()],
    ):
        if len(words) == 2 and all(map(str.isdecimal, words)) and int(words[1]):  # otherwise "max", or -1
            yield int(words[0]) / int(words[1])


def _count_physical(processors: Collection[int], root: Path) -> int:
    """Physical cores of these processors; their number where the system does not tell."""
    topology = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    return len({read_text(root / topology.format(each)).strip() or str(each) for each in processors})

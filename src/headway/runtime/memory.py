"""The memory this process may use: the machine's, what its control groups leave, and its own limit of addresses."""

import os
import re
import resource
from collections.abc import Iterator
from pathlib import Path

from headway.runtime.groups import ROOT, control_groups, read_text

LIMITS = {
    "memory.max": "memory.current",
    "memory.high": "memory.current",
    "memory.limit_in_bytes": "memory.usage_in_bytes",
}
"""Files of a control group in version 2 and 1: the bytes it may take, and those it has taken."""


def own_memory(name: str, root: Path = ROOT) -> int | None:
    """Bytes of this process, such as VmRSS in memory now and VmHWM at most; None where the system does not tell."""
    return _bytes(read_text(root / "proc/self/status"), name)


def free_memory(root: Path = ROOT) -> int | None:
    """Bytes this process may still take: the least that system, control groups and limit leave; None where unknown."""
    left = [_bytes(read_text(root / "proc/meminfo"), "MemAvailable")]
    left += [most - taken for most, taken in _groups(root)]
    addresses, taken = _most_addresses(), own_memory("VmSize", root)
    left += [addresses - taken] if addresses is not None and taken is not None else []
    known = [max(0, each) for each in left if each is not None]
    return min(known, default=None)


def all_memory(root: Path = ROOT) -> int:
    """Bytes this process may use at most: those of the machine, or what its control groups or its limit allow."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *(most for most, _ in _groups(root)), _most_addresses() or machine])


def _groups(root: Path) -> Iterator[tuple[int, int]]:
    """What each control group may take and has taken, but for pages of files that it gives back when others need it."""
    for folder in control_groups(root, "memory"):
        stat = read_text(folder / "memory.stat")
        pages = max(map(int, re.findall(r"^(?:total_)?inactive_file (\d+)$", stat, re.MULTILINE)), default=0)
        for limit, usage in LIMITS.items():
            most, taken = read_text(folder / limit).strip(), read_text(folder / usage).strip()
            if most.isdecimal() and taken.isdecimal():
                yield int(most), int(taken) - pages


def _most_addresses() -> int | None:
    """Bytes of addresses this process may have (RLIMIT_AS, `ulimit -v`); None where nothing limits them."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else limit


def _bytes(text: str, name: str) -> int | None:
    """What a table of /proc reckons in kibibytes, in bytes."""
    found = re.search(rf"^{name}:\s+(\d+) kB$", text, re.MULTILINE)
    return 1024 * int(found[1]) if found else None

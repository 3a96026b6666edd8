"""Free memory by the system, by the limits of fake trees of control groups, and by the limit of addresses."""

import resource
from types import SimpleNamespace

import pytest
import torch

from headway.runtime import memory
from headway.runtime.memory import all_memory, free_memory, own_memory
from headway.training.memory import SLACK, Probe
from systems import system

VERSION_2 = "41 31 0:38 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw"
VERSION_1 = "36 31 0:32 {root} /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory"
UNLIMITED = 9223372036854771712
"""What version 1 says where nothing limits a group."""


@pytest.fixture(autouse=True)
def no_limit_of_addresses(monkeypatch):
    monkeypatch.setattr(memory, "_most_addresses", lambda: None)


def machine(folder, available=1000):
    """A system with so many bytes available and a process of 300 bytes, in units of 1024."""
    (folder / "proc/self").mkdir(parents=True, exist_ok=True)
    (folder / "proc/meminfo").write_text(f"MemTotal: 9000 kB\nMemAvailable:   {available} kB\n")
    (folder / "proc/self/status").write_text("Name:\tx\nVmSize:\t  700 kB\nVmHWM:\t  400 kB\nVmRSS:\t  300 kB\n")
    return folder


def version_2(folder, path="/", **files):
    return machine(system(folder, [f"0::{path}"], [VERSION_2], **files))


@pytest.mark.parametrize(
    ("files", "kibibytes"),
    [
        ({}, 1000),
        ({"memory.max": "max", "memory.current": "5"}, 1000),
        ({"memory.max": 500 * 1024, "memory.current": 100 * 1024}, 400),
        ({"memory.max": 5000 * 1024, "memory.current": 100 * 1024}, 1000),  # the system has less
        ({"memory.max": 500 * 1024, "memory.current": 600 * 1024}, 0),
        ({"memory.max": 512_000, "memory.current": 409_600, "memory.stat": "anon 1\ninactive_file 51200"}, 150),
        ({"memory.max": "max", "memory.high": 300 * 1024, "memory.current": 100 * 1024}, 200),
        ({"memory.max": 500 * 1024}, 1000),
        ({"memory.max": "nonsense", "memory.current": "5"}, 1000),
    ],
)  # fmt: skip
def test_version_2_leaves_what_its_group_has_not_taken(files, kibibytes, tmp_path):
    assert free_memory(version_2(tmp_path, **files)) == 1024 * kibibytes


@pytest.mark.parametrize(("most", "kibibytes"), [(UNLIMITED, 1000), (400 * 1024, 300), (50 * 1024, 0)])
@pytest.mark.parametrize("inside", [False, True], ids=["seen whole", "seen from a container"])
def test_version_1_leaves_what_its_group_has_not_taken(most, kibibytes, inside, tmp_path):
    folder = "memory" if inside else "memory/docker/123"
    files = {f"{folder}/memory.limit_in_bytes": most, f"{folder}/memory.usage_in_bytes": 120 * 1024,
             f"{folder}/memory.stat": f"inactive_file 7\ntotal_inactive_file {20 * 1024}"}  # fmt: skip
    mounted = VERSION_1.format(root="/docker/123" if inside else "/")
    made = machine(system(tmp_path, ["4:memory:/docker/123", "2:cpu:/elsewhere"], [mounted], **files))
    assert free_memory(made) == 1024 * kibibytes


def test_the_tightest_parent_wins_and_a_neighbour_does_not_count(tmp_path):
    files = {"a/b/memory.max": 900 * 1024, "a/b/memory.current": 0, "a/memory.max": 800 * 1024,
             "a/memory.current": 600 * 1024, "other/memory.max": 1, "other/memory.current": 0}  # fmt: skip
    assert free_memory(version_2(tmp_path, "/a/b", **files)) == 200 * 1024
    assert all_memory(tmp_path) == 800 * 1024


def test_a_limit_of_addresses_counts_too(tmp_path, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(resource, "getrlimit", lambda which: ({resource.RLIMIT_AS: 900 * 1024}[which], -1))
    assert free_memory(machine(tmp_path)) == 200 * 1024
    assert all_memory(tmp_path) == 900 * 1024


def test_a_system_that_says_nothing_is_not_known(tmp_path):
    assert free_memory(tmp_path) is None and own_memory("VmRSS", tmp_path) is None
    assert all_memory(tmp_path) > 1 << 20


def test_the_room_of_batches_that_are_tried_is_what_the_group_leaves(tmp_path, monkeypatch):
    root = version_2(tmp_path, **{"memory.max": 500 * 1024, "memory.current": 100 * 1024})
    for name, asked in (("free_memory", free_memory), ("own_memory", own_memory)):
        given = lambda *names, asked=asked: asked(*names, root)  # noqa: E731  # one of two
        monkeypatch.setattr(f"headway.training.memory.{name}", given)
    probe = SimpleNamespace(device=torch.device("cpu"))
    assert Probe.room.fget(probe) == 1024 * (300 + SLACK["cpu"] * 400)

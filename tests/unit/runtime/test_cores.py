"""Cores by affinity and by the quotas of fake trees of control groups."""

import os

import pytest

from headway.runtime.cores import Cores, read_cores, read_quota
from systems import system

UNIFIED = "41 31 0:38 {root} /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw"
HYBRID = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw"
VERSION_1 = "32 31 0:29 {root} /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct"
OTHER = "36 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory"


def version_2(folder, path="/", root="/", **files):
    return system(folder, [f"0::{path}"], [UNIFIED.format(root=root)], **files)


@pytest.mark.parametrize(
    ("written", "quota"),
    [("max 100000", None), ("150000 100000", 1.5), ("50000 100000", 0.5), ("400000 100000", 4.0), ("", None),
     ("100000 0", None), ("nonsense", None), ("-1 100000", None)],
)  # fmt: skip
def test_the_quota_of_version_2_is_read(written, quota, tmp_path):
    assert read_quota(version_2(tmp_path, **{"cpu.max": written})) == quota


@pytest.mark.parametrize(("written", "quota"), [("-1", None), ("100000", 1.0), ("250000", 2.5), ("", None)])
def test_the_quota_of_version_1_is_read_in_the_group_of_the_process(written, quota, tmp_path):
    group = "cpu,cpuacct/job/part/"
    files = {f"{group}cpu.cfs_quota_us": written, f"{group}cpu.cfs_period_us": "100000"}
    groups = ["5:memory:/elsewhere", "2:cpu,cpuacct:/job/part", "0::/"]
    assert read_quota(system(tmp_path, groups, [OTHER, VERSION_1.format(root="/"), HYBRID], **files)) == quota


def test_the_smallest_quota_of_all_parents_wins(tmp_path):
    files = {"a/b/c/cpu.max": "max 100000", "a/b/cpu.max": "300000 100000", "a/cpu.max": "200000 100000"}
    assert read_quota(version_2(tmp_path, "/a/b/c", **files, **{"other/cpu.max": "1000 100000"})) == 2.0


def test_a_container_that_sees_only_its_own_group_finds_its_quota(tmp_path):
    files = {"cpu,cpuacct/cpu.cfs_quota_us": "150000", "cpu,cpuacct/cpu.cfs_period_us": "100000"}
    mounted = VERSION_1.format(root="/docker/123")
    assert read_quota(system(tmp_path, ["2:cpu,cpuacct:/docker/123"], [mounted], **files)) == 1.5


@pytest.mark.parametrize("path", ["/../../elsewhere", "/of/the/host"])
def test_a_path_outside_of_what_is_mounted_leaves_the_mounted_group(path, tmp_path):
    assert read_quota(version_2(tmp_path, path, root="/inside", **{"cpu.max": "200000 100000"})) == 2.0


@pytest.mark.parametrize(
    ("groups", "mounts"), [([], []), (["nonsense"], ["nonsense", "1 2 - cgroup2"]), (["0::/"], [OTHER])]
)
def test_a_system_that_says_nothing_has_no_quota(groups, mounts, tmp_path):
    assert read_quota(tmp_path / "missing") is None
    assert read_quota(system(tmp_path, groups, mounts)) is None


@pytest.mark.parametrize(
    ("cores", "available", "limit"),
    [
        (Cores(8, 8, 8), 8, None),
        (Cores(8, 8, 4), 8, None),  # torch computes with one thread per physical core by itself
        (Cores(8, 4, 4), 4, 4),
        (Cores(8, 4, 2), 4, 2),
        (Cores(8, 8, 8, quota=1.0), 1, 1),
        (Cores(8, 8, 8, quota=1.5), 2, 2),
        (Cores(8, 8, 8, quota=0.1), 1, 1),
        (Cores(8, 2, 2, quota=4.0), 2, 2),
        (Cores(8, 8, 8, quota=99.0), 8, None),
        (Cores(8, 8, 4, quota=6.0), 6, None),  # more than one thread per physical core would not be faster
        (Cores(1, 1, 1, quota=0.0), 1, None),
    ],
)
def test_affinity_and_quota_limit_threads_and_processes(cores, available, limit):
    assert (cores.available, cores.limit) == (available, limit)


def test_hardware_threads_of_one_core_count_once(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 4, 5, 6}, raising=False)
    version_2(tmp_path, **{"cpu.max": "300000 100000"})
    for number in range(8):
        topology = tmp_path / f"sys/devices/system/cpu/cpu{number}/topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(f"{number % 4},{number % 4 + 4}\n")
    assert read_cores(tmp_path) == Cores(machine=8, allowed=5, physical=3, quota=3.0)


def test_without_affinity_nothing_limits_the_process(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert read_cores(tmp_path).limit is None
    assert read_cores(tmp_path).available == 4

"""The control groups of this process, where a container's limits stand: version 1, version 2, or both."""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ROOT = Path("/")


def control_groups(root: Path, controller: str) -> Iterator[Path]:
    """The folder of every control group that may limit this process, from its own up to where the tree is mounted.

    `root` is where the system's /proc and /sys are; `controller` is what limits, such as cpu or memory.
    """
    groups = _groups_of_process(root)
    for line in read_text(root / "proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        mount, kind = before.split(), after.split()  # ... root, mount point, options - type, source, options
        if len(mount) < 5 or len(kind) < 3:
            continue
        if kind[0] == "cgroup2":
            group = groups.get("")
        elif kind[0] == "cgroup" and controller in kind[2].split(","):
            group = groups.get(controller)
        else:
            continue
        place = root / mount[4].lstrip("/")
        below = _below(group, mount[3])
        yield from (place / part for part in (below, *below.parents))


def _below(group: str | None, mounted: str) -> PurePosixPath:
    """The path of a group below the one that is mounted; empty where it lies outside, as seen from some containers."""
    path = PurePosixPath(group or "/")
    if ".." in path.parts or not path.is_relative_to(mounted):
        return PurePosixPath()
    return path.relative_to(mounted)


def _groups_of_process(root: Path) -> dict[str, str]:
    """The control group of this process for each controller of version 1, and for version 2 under an empty name."""
    found: dict[str, str] = {}
    for line in read_text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        found |= dict.fromkeys(controllers.split(","), path)
    return found


def read_text(file: Path) -> str:
    """The text of a file; none where it cannot be read."""
    try:
        return file.read_text()
    except (OSError, ValueError):
        return ""

"""Trees of files that say what a system lets a process have."""


def system(folder, groups, mounts, **files):
    """A system whose process is in these control groups, with these files of theirs by path."""
    (folder / "proc/self").mkdir(parents=True)
    (folder / "proc/self/cgroup").write_text("".join(f"{line}\n" for line in groups))
    (folder / "proc/self/mountinfo").write_text("".join(f"{line}\n" for line in mounts))
    for path, text in files.items():
        file = folder / "sys/fs/cgroup" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    return folder

"""What forked processes do: the real command, watched at the places where it can be hit."""

import ctypes
import os
import re
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sacrebleu  # noqa: F401  # imported late by what is tried here
import tensorboardX  # noqa: F401
import torch  # noqa: F401

import headway.assemble
import headway.cli
from headway.cli.terminal import Terminal
from headway.validation import Validator

FILES = {
    "storing": r"/data/\.store\..+\.tmp/new/source\.tokens$",
    "planning": r"/plans/\.plan-.+\.tmp",
    "saving": r"/checkpoints/\.step-\d+\..+\.tmp",
    "pruning": r"/checkpoints/step-\d+$",
    "writing": r"/\.best\..+\.tmp",
}
"""Phases known by the files that are touched in them."""
SAID = {"training on": "built", "training ends:": "averaging"}
"""Phases known by what a person is told, by its first two words."""
TOUCHES = {"open": 0, "os.rename": 0, "os.mkdir": 0, "shutil.rmtree": 0}
"""Audit events and where the path stands in their arguments."""


def command(arguments: list[str]) -> None:
    """Run `headway` as the command line does."""
    headway.cli.main(arguments)


def one_of_two(arguments: list[str], rank: int, store: str) -> None:
    """Run `headway` as one of two processes that train together."""
    become_rank(rank, store)
    headway.cli.main(arguments)


def become_rank(rank: int, store: str) -> None:
    """What torchrun tells a process that it starts."""
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "localhost", "MASTER_PORT": store, "TORCHELASTIC_RUN_ID": "test",
    }  # fmt: skip


def watched(arguments: list[str], pipe: str) -> None:
    """Run `headway` and tell a named pipe of every phase it enters."""
    handle = os.open(pipe, os.O_WRONLY)
    watch(lambda phase: os.write(handle, f"{phase}\n".encode()))
    headway.cli.main(arguments)


def signalled(arguments: list[str], phase: str, numbers: list[int], pipe: str, stuck: float = 0.0) -> None:
    """Run `headway` and send it signals when it first enters a phase; tell a named pipe of every phase, and when.

    `stuck` lets the main thread hang there for so many seconds, as a library may that does not return.
    """
    handle = os.open(pipe, os.O_WRONLY)
    waiting = list(numbers)

    def entered(name: str) -> None:
        os.write(handle, f"{name}\n".encode())
        if name == phase and waiting:
            given, waiting[:] = list(waiting), []
            for number in given:
                os.write(handle, f"signalled {time.monotonic()}\n".encode())
                os.kill(os.getpid(), number)
                time.sleep(0.3 if len(given) > 1 else 0.02)  # what comes at once counts as one
            time.sleep(stuck)

    watch(entered)
    headway.cli.main(arguments)


def watch(tell: Callable[[str], Any]) -> None:
    """Call `tell` with the name of every phase as it is entered; steps are `step N`."""

    def before(owner: type, name: str, phase: Callable[..., str]) -> None:
        original = getattr(owner, name)

        def wrapped(self: Any, *given: Any, **named: Any) -> Any:
            tell(phase(*given))
            return original(self, *given, **named)

        setattr(owner, name, wrapped)

    before(Terminal, "working", lambda what, *_: what)
    before(Terminal, "updated", lambda update: f"step {update.step}")
    before(Validator, "__call__", lambda *_: "validating")
    before(Terminal, "say", lambda line: SAID.get(" ".join(line.split()[:2]), "saying"))
    patterns = {phase: re.compile(pattern) for phase, pattern in FILES.items()}

    def hook(event: str, given: tuple[Any, ...]) -> None:
        place = TOUCHES.get(event)
        if place is None or not isinstance(given[place], str | os.PathLike):
            return
        path = os.fspath(given[place])
        if not isinstance(path, str) or (event == "open" and not writes(given)):
            return
        for phase, pattern in patterns.items():
            if pattern.search(path):
                tell(phase)

    sys.addaudithook(hook)


def writes(given: tuple[Any, ...]) -> bool:
    """Whether the arguments of an `open` event are those of one for writing."""
    return bool(given[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


def with_files_limited(arguments: list[str], most: int) -> None:
    """Run `headway` where no file may grow beyond so many bytes: the system's own error, in every library alike."""
    _let_somebody_else_write_the_log()
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))  # Python ignores the signal
    headway.cli.main(arguments)


def _let_somebody_else_write_the_log() -> None:
    """Send standard error through a process that is not limited."""
    reads, writes_ = os.pipe()
    if os.fork() == 0:
        os.close(writes_)
        while content := os.read(reads, 65536):
            os.write(2, content)
        os._exit(0)
    os.close(reads)
    os.dup2(writes_, 2)
    os.close(writes_)


def on_small_disk(arguments: list[str], out: str, start: str | None, most: int, kept: str) -> None:
    """Run `headway` in a folder on a disk of so many bytes, seen by this process alone, and copy what is left there."""
    own_mounts()
    Path(out).mkdir()
    mount("tmpfs", out, "tmpfs", f"size={most}")
    if start is not None:
        shutil.copytree(start, out, dirs_exist_ok=True)
    _and_keep(arguments, out, kept)


def on_read_only_disk(arguments: list[str], out: str, start: str, kept: str) -> None:
    """Run `headway` in a copy of a run folder that cannot be written, seen so by this process alone."""
    own_mounts()
    shutil.copytree(start, out)
    mount(out, out, None, None, BIND)
    mount(None, out, None, None, BIND | REMOUNT | READ_ONLY)
    _and_keep(arguments, out, kept)


def _and_keep(arguments: list[str], out: str, kept: str) -> None:
    try:
        headway.cli.main(arguments)
    finally:
        shutil.copytree(out, kept)


BIND, REMOUNT, READ_ONLY, PRIVATE, RECURSIVE = 0x1000, 0x20, 0x1, 1 << 18, 0x4000
NEW_MOUNTS, NEW_USER = 0x00020000, 0x10000000


def own_mounts() -> None:
    """Let this process have mounts of its own, which end with it."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    if libc.unshare(NEW_MOUNTS) != 0:
        if libc.unshare(NEW_MOUNTS | NEW_USER) != 0:
            raise OSError(ctypes.get_errno(), "unshare")
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    mount(None, "/", None, None, RECURSIVE | PRIVATE)


def mount(source: str | None, target: str, kind: str | None, options: str | None, flags: int = 0) -> None:
    """As mount(2)."""
    libc = ctypes.CDLL(None, use_errno=True)
    given = [None if text is None else text.encode() for text in (source, target, kind)]
    if libc.mount(*given, ctypes.c_ulong(flags), None if options is None else options.encode()) != 0:
        raise OSError(ctypes.get_errno(), f"mount {target}")


def may_mount() -> bool:
    """Whether this machine lets a process have mounts of its own."""
    own_mounts()
    with tempfile.TemporaryDirectory() as folder:
        mount("tmpfs", folder, "tmpfs", "size=1m")
        mount(folder, folder, None, None, BIND)
        ctypes.CDLL(None).umount2(folder.encode(), 2)
        ctypes.CDLL(None).umount2(folder.encode(), 2)
    return True

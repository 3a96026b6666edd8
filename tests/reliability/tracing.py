"""A process watched system call by system call (Linux ptrace), so that it can be killed right after any of them."""

import ctypes
import os
import platform
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SUPPORTED = sys.platform == "linux" and platform.machine() == "x86_64"
"""The numbers below are those of one kind of machine."""

TRACE_ME, SYSCALL, SET_OPTIONS, SYSCALL_INFO = 0, 24, 0x4200, 0x420E
OPTIONS = 0x1 | 0x8 | 0x100000  # mark stops at system calls, follow threads, kill the traced when the tracer dies
ALL_THREADS = 0x40000000
ENTRY, EXIT = 1, 2
CREATES = os.O_CREAT | os.O_TRUNC

BY_DESCRIPTOR = {
    1: "write", 18: "write", 20: "write", 296: "write", 40: "write", 326: "write", 285: "allocate", 77: "truncate",
    74: "fsync", 75: "fsync",
}  # fmt: skip
"""Calls that change or sync the file of a descriptor, their first argument (of 326, the third)."""
BY_PATH = {2: "create", 82: "rename", 83: "mkdir", 84: "rmdir", 85: "create", 87: "unlink", 76: "truncate"}
BY_FOLDER = {257: "create", 258: "mkdir", 263: "unlink", 264: "rename", 316: "rename"}
"""The same with the descriptor of a folder before the path."""
COPY_RANGE, OPEN, OPEN_AT = 326, 2, 257


class _Entry(ctypes.Structure):
    _fields_ = (("number", ctypes.c_uint64), ("arguments", ctypes.c_uint64 * 6))


class _Exit(ctypes.Structure):
    _fields_ = (("value", ctypes.c_int64), ("is_error", ctypes.c_uint8))


class _Which(ctypes.Union):
    _fields_ = (("entry", _Entry), ("exit", _Exit))


class _Info(ctypes.Structure):
    _anonymous_ = ("which",)
    _fields_ = (
        ("kind", ctypes.c_uint8),
        ("padding", ctypes.c_uint8 * 3),
        ("architecture", ctypes.c_uint32),
        ("instruction", ctypes.c_uint64),
        ("stack", ctypes.c_uint64),
        ("which", _Which),
    )


@dataclass(frozen=True)
class Operation:
    """One thing a process has done to a file."""

    kind: str
    path: str
    inode: int | None
    """Of the file behind a descriptor."""


def operations(work: Callable[[], None], folder: Path, *, kill_after: int | None = None) -> list[Operation]:
    """Fork, do the work there and list what it does to files in `folder`; it is killed after so many of them."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    child = os.fork()
    if child == 0:
        libc.ptrace(TRACE_ME, 0, None, None)
        os.kill(os.getpid(), signal.SIGSTOP)
        _work(work)
    os.waitpid(child, 0)
    libc.ptrace(SET_OPTIONS, child, None, OPTIONS)
    libc.ptrace(SYSCALL, child, None, None)
    done: list[Operation] = []
    entered: dict[int, tuple[int, tuple[int, ...], str | None]] = {}
    while True:
        thread, status = os.waitpid(-1, ALL_THREADS)
        if not os.WIFSTOPPED(status):
            if thread != child:
                continue
            if kill_after is None and status != 0:
                raise RuntimeError(f"the traced work ended with {status}")
            return done
        number = os.WSTOPSIG(status)
        deliver = 0
        if number == signal.SIGTRAP | 0x80:
            operation = _stopped(libc, thread, entered, str(folder))
            if operation is not None:
                done.append(operation)
                if len(done) == kill_after:
                    os.kill(child, signal.SIGKILL)
        elif number not in (signal.SIGTRAP, signal.SIGSTOP):  # those of tracing itself
            deliver = number
        libc.ptrace(SYSCALL, thread, None, deliver)


def _work(work: Callable[[], None]) -> None:
    code = 1
    try:
        work()
        code = 0
    finally:
        os._exit(code)


def _stopped(
    libc: ctypes.CDLL, thread: int, entered: dict[int, tuple[int, tuple[int, ...], str | None]], folder: str
) -> Operation | None:
    """What a thread has just done, if it did something to a file in the folder."""
    info = _Info()
    if libc.ptrace(SYSCALL_INFO, thread, ctypes.sizeof(info), ctypes.addressof(info)) <= 0:
        return None
    if info.kind == ENTRY:
        number, arguments = info.entry.number, tuple(info.entry.arguments)
        entered[thread] = (number, arguments, _path(thread, number, arguments))
        return None
    if info.kind != EXIT or thread not in entered or info.exit.is_error:
        return None
    number, arguments, path = entered.pop(thread)
    if path is None or not path.startswith(folder):
        return None
    if number in BY_DESCRIPTOR:
        handle = _descriptor(number, arguments)
        return Operation(BY_DESCRIPTOR[number], path, _inode(thread, handle))
    kind = BY_PATH.get(number) or BY_FOLDER[number]
    inode = _inode(thread, info.exit.value) if kind == "create" else None
    return Operation(kind, path, inode)


def _path(thread: int, number: int, arguments: tuple[int, ...]) -> str | None:
    """The path a call is about; None where the call changes nothing."""
    if number in BY_DESCRIPTOR:
        return _opened(thread, _descriptor(number, arguments))
    if number in BY_PATH:
        if number == OPEN and not arguments[1] & CREATES:
            return None
        return os.path.join(_opened(thread, "cwd") or "", _text(thread, arguments[0]))  # noqa: PTH118  # of the other process
    if number in BY_FOLDER:
        if number == OPEN_AT and not arguments[2] & CREATES:
            return None
        handle = ctypes.c_int32(arguments[0] & 0xFFFFFFFF).value
        base = _opened(thread, "cwd" if handle == -100 else handle) or ""
        return os.path.join(base, _text(thread, arguments[1]))  # noqa: PTH118
    return None


def _descriptor(number: int, arguments: tuple[int, ...]) -> int:
    return arguments[2] if number == COPY_RANGE else arguments[0]


def _opened(thread: int, handle: int | str) -> str | None:
    place = f"/proc/{thread}/cwd" if handle == "cwd" else f"/proc/{thread}/fd/{handle}"
    try:
        return os.readlink(place)  # noqa: PTH115
    except OSError:
        return None


def _inode(thread: int, handle: int) -> int:
    return Path(f"/proc/{thread}/fd/{handle}").stat().st_ino


def _text(thread: int, address: int) -> str:
    """A string in the memory of the traced process."""
    with open(f"/proc/{thread}/mem", "rb", buffering=0) as memory:  # noqa: PTH123
        memory.seek(address)
        content = b""
        while b"\0" not in content:
            content += memory.read(256 - (address + len(content)) % 256)  # never across the end of a page
    return os.fsdecode(content.partition(b"\0")[0])

"""The only place that creates, replaces and removes files and folders: nothing that Headway did not write is touched.

New content is written in a workspace beside its destination: a hidden folder with a marker that this process keeps
locked. A workspace whose marker is not locked was left behind by a process that was killed, and is removed.
"""

import errno
import fcntl
import hashlib
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from headway.errors import ConfigError, FolderError, HeadwayError

MARKER = ".headway-unfinished"
"""The file that makes a folder a workspace."""
LOCK = "lock"
LOCK_TEXT = b"Headway writes in this folder.\n"
"""What the lock of a run folder holds: Headway takes a folder with it for its own."""
FAILURES = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.EPIPE, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
"""Errors that are not the user's mistake."""
PIPE_PATIENCE = 10.0
"""Seconds to wait until another process reads a named pipe."""


def failure(error: OSError) -> bool:
    """Whether the system failed, and not the user, who may have named a folder where a file is wanted."""
    return error.errno is None or error.errno in FAILURES


def sync(path: Path) -> None:
    """Force a file or a folder's entries to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def plain_file(path: Path) -> bool:
    """Whether `path` is a file of its own, not a link to somewhere else."""
    try:
        return path.is_file() and not path.is_symlink()
    except (OSError, ValueError):  # a name too long to be one, or with NUL
        return False


def plain_folder(path: Path) -> bool:
    """Whether `path` is a folder of its own, not a link to somewhere else."""
    try:
        return path.is_dir() and not path.is_symlink()
    except (OSError, ValueError):
        return False


def leads_to_folder(path: Path) -> bool:
    """Whether there is a folder at `path`, be it by a link."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def present(path: Path) -> bool:
    """Whether there is anything at `path`, a link to nowhere included."""
    try:
        return os.path.lexists(path)
    except (OSError, ValueError):
        return False


def make_folder(folder: Path) -> None:
    """Create a folder and its parents; one that is there already is fine."""
    folder.mkdir(parents=True, exist_ok=True)


@contextmanager
def writing(path: Path, remedy: str) -> Iterator[None]:
    """Turn an error of the disk into one line that names the file: a failure, or else a mistake of the user's."""
    try:
        yield
    except OSError as error:
        kind = HeadwayError if failure(error) else ConfigError
        raise kind(f"{path}: cannot be written ({error.strerror or error}); {remedy}") from None


# Workspaces.


@contextmanager
def workspace(final: Path) -> Iterator[Path]:
    """Yield a new folder beside `final` to write in; it is removed at the end, whatever happened.

    Workspaces of the same destination that killed processes left behind are removed first.
    """
    make_folder(final.parent)
    sweep(final.parent, final.name)
    folder, handle = _new_workspace(final)
    try:
        yield folder
    finally:
        _remove_workspace(folder)
        os.close(handle)


def _new_workspace(final: Path) -> tuple[Path, int]:
    """A folder and the handle of its marker, which is locked."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=f".{_key(final.name)}.", suffix=".tmp", dir=final.parent))
        try:
            handle = os.open(folder / MARKER, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        except FileNotFoundError:  # taken for an abandoned one, as it was still empty
            continue
        except BaseException:
            folder.rmdir()
            raise
        fcntl.flock(handle, fcntl.LOCK_EX)
        if present(folder / MARKER):  # not taken for an abandoned one before it was locked
            return folder, handle
        os.close(handle)


def in_use(final: Path) -> bool:
    """Whether another process has a workspace for the same destination."""
    return any(map(_locked, _workspaces(final.parent, final.name)))


def sweep(parent: Path, name: str | None = None) -> None:
    """Remove abandoned workspaces for `name`, or for all names; a replacement that was cut in half is undone."""
    for folder in _workspaces(parent, name):
        if _locked(folder):
            continue
        old, final = folder / "old", parent / (name or folder.name[1:-13])
        if present(old) and not present(final):
            old.rename(final)
        _remove_workspace(folder)


def _key(name: str) -> str:
    """The name of a destination in the names of its workspaces, which must not be too long."""
    return name if len(name) < 60 else f"{name[:40]}-{hashlib.sha256(os.fsencode(name)).hexdigest()[:16]}"


def _workspaces(parent: Path, name: str | None) -> list[Path]:
    """The workspaces for a name, or for all; one that is empty was about to get its marker."""
    key = "[^/]+" if name is None else re.escape(_key(name))
    pattern = re.compile(rf"\.{key}\.[a-z0-9_]{{8}}\.tmp")
    try:
        found = [path for path in parent.iterdir() if pattern.fullmatch(path.name) and plain_folder(path)]
        return [folder for folder in found if plain_file(folder / MARKER) or not any(folder.iterdir())]
    except OSError:
        return []


def _locked(folder: Path) -> bool:
    """Whether the process that made the workspace is alive."""
    try:
        with (folder / MARKER).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no marker yet
        return False
    return False


def _remove_workspace(folder: Path) -> None:
    """Remove everything in it, the marker last, so that a kill leaves a folder that is still recognised."""
    with suppress(OSError):
        for entry in folder.iterdir():
            if entry.name != MARKER:
                _remove(entry)
        with suppress(FileNotFoundError):
            (folder / MARKER).unlink()
        folder.rmdir()


def _remove(path: Path) -> None:
    if plain_folder(path):
        shutil.rmtree(path)
    else:
        path.unlink()


# Folders.


def move_folder(new: Path, final: Path) -> None:
    """Move a finished folder from a workspace to its destination, where there must be nothing."""
    if present(final):
        raise FolderError(f"{final}: already there; choose another folder or remove it")
    new.rename(final)
    sync(final.parent)


def exchange_folder(new: Path, final: Path, names: Collection[str]) -> None:
    """Put a finished folder from a workspace in the place of an old one, which may only hold `names`."""
    refuse_others(final, names)
    if present(final):
        final.rename(new.parent / "old")
    new.rename(final)
    sync(final.parent)


def remove_folder(folder: Path, names: Collection[str]) -> None:
    """Remove a folder with the files `names`; one that holds anything else is refused and stays as it is.

    It disappears at once: a kill never leaves half of it under its name.
    """
    refuse_others(folder, names)
    with workspace(folder) as room:
        folder.rename(room / "doomed")


def refuse_others(folder: Path, names: Collection[str]) -> None:
    """Raise a `FolderError` about the first entry that is not one of the plain files `names`; no folder is fine."""
    other = first_other(folder, names) if present(folder) else None
    if other is not None:
        raise FolderError(f"{other}: was not written by Headway, which would have to remove it; move it elsewhere")


def first_other(folder: Path, names: Collection[str]) -> Path | None:
    """The first entry of a folder that is not one of the plain files `names`; what is no folder is the entry itself."""
    if not plain_folder(folder):
        return folder
    return next((entry for entry in sorted(folder.iterdir()) if entry.name not in names or not plain_file(entry)), None)


def remove_own(path: Path) -> None:
    """Remove a file or folder that the caller knows to be Headway's, in a folder that it holds; or nothing."""
    if present(path):
        _remove(path)


def remove_if_empty(folder: Path) -> None:
    """Remove a folder in which nothing is left."""
    with suppress(OSError):
        folder.rmdir()


# Files of ours.


def write_text(path: Path, text: str) -> None:
    """Write a small file of ours whole, so that no reader ever sees half of it."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """As `write_text`."""
    with replacing(path) as file:
        file.write(content)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A stream to a file of ours that appears when the block ends; an older one is replaced in one step."""
    if present(path) and not plain_file(path):
        raise FolderError(f"{path}: is not a plain file, so Headway did not write it; move it elsewhere")
    with writing(path, "free space"), workspace(path) as room:
        with (room / "new").open("wb") as file:
            yield file
        sync(room / "new")
        (room / "new").replace(path)


# Files the user names.


@contextmanager
def output(path: Path, *, overwrite: bool = False, option: str = "--output") -> Iterator[BinaryIO]:
    """A binary stream to a file that the user names; the file appears when everything is written.

    A file with content is replaced only with `overwrite`. A link stays a link. Named pipes and devices such as
    /dev/null are written to in place, and /dev/stdout and /dev/fd/N are the streams of that number.
    """
    with writing(path, f"choose another {option}"):
        stream = _stream_of(path)
        if stream is not None:
            with stream:
                yield stream
            return
        final = _final(path, overwrite=overwrite, option=option)
        with workspace(final) as room:
            new = room / "new"
            with new.open("wb") as file:
                yield file
            if overwrite:
                new.replace(final)
            else:
                _place(new, final, option)


def write_output(path: Path, content: bytes, *, overwrite: bool = False, option: str = "--out") -> None:
    """Write a file that the user names, as `output` does."""
    with output(path, overwrite=overwrite, option=option) as file:
        file.write(content)


def check_output(path: Path, *, overwrite: bool = False, option: str = "--output") -> None:
    """Refuse, before the work begins, what `output` would refuse after it."""
    with writing(path, f"choose another {option}"):
        if not _is_stream(path):
            _final(path, overwrite=overwrite, option=option)


def _mode(path: Path) -> int | None:
    """What kind of thing `path` leads to; None where there is nothing."""
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None


def _handle_of(path: Path) -> int | None:
    """The number of the stream that /dev/stdout, /dev/stderr or /dev/fd/N means."""
    named = {"/dev/stdout": 1, "/dev/stderr": 2}
    if str(path) in named:
        return named[str(path)]
    folder, name = str(path.parent), path.name
    return int(name) if folder in ("/dev/fd", "/proc/self/fd") and name.isdecimal() else None


def _is_stream(path: Path) -> bool:
    mode = _mode(path)
    special = mode is not None and (stat.S_ISFIFO(mode) or stat.S_ISCHR(mode))
    return special or _handle_of(path) is not None


def _stream_of(path: Path) -> BinaryIO | None:
    """What is written to in place; None for an ordinary file."""
    if not _is_stream(path):
        return None
    handle = _handle_of(path)
    if handle is not None:
        return os.fdopen(os.dup(handle), "wb")
    mode, until = _mode(path), time.monotonic() + PIPE_PATIENCE
    while mode is not None and stat.S_ISFIFO(mode):
        try:  # opened without waiting, it tells whether somebody reads
            handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            os.set_blocking(handle, True)
            return os.fdopen(handle, "wb")
        except OSError as error:
            if error.errno != errno.ENXIO or time.monotonic() > until:
                raise
            time.sleep(0.05)
    return path.open("wb")


def _final(path: Path, *, overwrite: bool, option: str) -> Path:
    """The file to be written in the end, links followed; refuses what may not be written."""
    final, mode = path.resolve(), _mode(path)
    if not final.parent.is_dir():
        raise ConfigError(f"{path}: its folder does not exist; create it, or choose another {option}")
    if mode is not None and not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "neither a file nor a pipe"
        raise ConfigError(f"{path}: is {kind}; choose another {option}")
    if mode is not None and not overwrite and final.stat().st_size:
        raise ConfigError(f"{path}: already exists; add --overwrite to replace it, or choose another {option}")
    if in_use(final):
        raise ConfigError(f"{path}: another process is writing it; choose another {option}")
    if not os.access(final.parent, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    return final


def _place(new: Path, final: Path, option: str) -> None:
    """Give a new file its name unless another program has written something there in the meantime."""
    if present(final) and plain_file(final) and not final.stat().st_size:
        new.replace(final)
        return
    try:
        os.link(new, final)
    except FileExistsError:
        spare = Path(tempfile.mkdtemp(prefix=f"{final.name[:80]}.", dir=final.parent)) / final.name
        new.rename(spare)
        told = f"{final}: another program created it in the meantime; the result is in {spare}"
        raise HeadwayError(f"{told}; choose another {option} next time") from None
    except OSError:  # a file system without hard links
        new.rename(final)


# Run folders.


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold a run folder: a second process that wants it is refused."""
    path = folder / LOCK
    try:
        make_folder(folder)
        handle = _open_lock(path)
    except OSError as error:
        raise FolderError(f"{folder}: cannot be written ({error.strerror}); choose another --out") from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise FolderError(f"{folder}: another process is training there; choose another --out") from None
        yield
    finally:
        os.close(handle)


def _open_lock(path: Path) -> int:
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        os.write(handle, LOCK_TEXT)
    except FileExistsError:
        handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK) if plain_file(path) else -1
        if handle < 0 or os.read(handle, len(LOCK_TEXT) + 1) not in (LOCK_TEXT, b""):
            raise FolderError(f"{path}: was not written by Headway; choose another --out") from None
    return handle


def owned(folder: Path) -> bool:
    """Whether the lock of a folder says that Headway writes there."""
    path = folder / LOCK
    try:
        return plain_file(path) and path.stat().st_size == len(LOCK_TEXT) and path.read_bytes() == LOCK_TEXT
    except OSError:
        return False

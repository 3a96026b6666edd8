"""Folders that are whole or not there: written aside, hashed, renamed into place, verified before use."""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from headway.errors import FolderError, HeadwayError

MANIFEST = "MANIFEST.json"
FORMAT = 1
"""The version of every folder Headway writes; a newer one is refused by name."""


def write_folder(folder: Path, fill: Callable[[Path], None], facts: Mapping[str, Any]) -> None:
    """Create `folder` by letting `fill` write its files aside, then seal it with a manifest and rename it into place.

    A crash at any moment leaves either no `folder` or all of it; an existing one is never overwritten.
    """
    if folder.exists():
        raise FolderError(f"{folder}: already there; choose another folder or remove it")
    aside = folder.with_name(f"{folder.name}.tmp")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        fill(aside)
        _seal(aside, facts)
        aside.rename(folder)
        sync(folder.parent)
    except OSError as error:
        shutil.rmtree(aside, ignore_errors=True)
        raise HeadwayError(
            f"{folder}: cannot be written ({error.strerror or error}); free space or choose another"
        ) from None
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def _seal(folder: Path, facts: Mapping[str, Any]) -> None:
    files = {}
    usual = folder.stat().st_mode & 0o666  # what the user's mask leaves; safetensors writes for the owner alone
    for path in sorted(folder.iterdir()):
        path.chmod(usual)
        sync(path)
        files[path.name] = {"bytes": path.stat().st_size, "sha256": sha256(path)}
    manifest = {"format": FORMAT, **facts, "files": files}
    write_text(folder / MANIFEST, json.dumps(manifest, indent=1) + "\n")
    sync(folder)


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of `folder`, its format checked but its files not yet."""
    path = folder / MANIFEST
    if not folder.is_dir():
        raise FolderError(f"{folder}: no such folder; give the folder that 'headway train' wrote")
    if not plain_file(path) or path.stat().st_size > 1 << 20:
        raise FolderError(f"{folder}: has no {MANIFEST}; it is incomplete or not a Headway folder")
    try:
        manifest = json.loads(path.read_bytes())
        version, files = manifest["format"], manifest["files"]
        entries = [(str(name), int(entry["bytes"]), str(entry["sha256"])) for name, entry in files.items()]
    except OSError as error:
        raise _unreadable(path, error) from None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        raise FolderError(f"{path}: damaged; use another copy of the folder") from None
    if version != FORMAT:
        told = repr(version)[:40]
        raise FolderError(f"{folder}: format {told}, this Headway reads format {FORMAT}; install a newer one")
    if not all(name.isprintable() and len(name) < 256 for name, _, _ in entries):  # names are shown
        raise FolderError(f"{path}: damaged; use another copy of the folder")
    if any(Path(name).name != name or name in ("", ".", "..") for name, _, _ in entries):
        raise FolderError(f"{path}: names a file outside the folder; do not use it")
    return dict(manifest)


def verify_folder(folder: Path) -> dict[str, Any]:
    """The manifest of `folder`, after every file it names was found, plain, of the right size and sha256."""
    manifest = read_manifest(folder)
    for name, entry in manifest["files"].items():
        path = folder / name
        if not plain_file(path):
            raise FolderError(f"{path}: missing or not a plain file; use another copy of the folder")
        try:
            size, digest = path.stat().st_size, sha256(path)
        except OSError as error:
            raise _unreadable(path, error) from None
        if size != entry["bytes"]:
            raise FolderError(f"{path}: {size} bytes, should be {entry['bytes']}; the file is damaged")
        if digest != entry["sha256"]:
            raise FolderError(f"{path}: its contents do not match the manifest; the file is damaged")
    return manifest


def _unreadable(path: Path, error: OSError) -> FolderError:
    return FolderError(f"{path}: cannot be read ({error.strerror or error}); use another copy of the folder")


def plain_file(path: Path) -> bool:
    """Whether `path` is a file of its own, not a link to somewhere else."""
    try:
        return path.is_file() and not path.is_symlink()
    except OSError:  # a name too long to be one
        return False


def sha256(path: Path) -> str:
    """The sha256 of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Force a file or a folder's entries to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(path: Path, text: str) -> None:
    """Write a small file whole: aside first, then renamed, so that no reader sees half of it."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """As `write_text`; an error of the disk always names the file."""
    aside = path.with_name(f"{path.name}.tmp")
    try:
        aside.write_bytes(content)
        sync(aside)
        aside.rename(path)
    except OSError as error:
        with suppress(OSError):
            aside.unlink()
        raise OSError(error.errno, error.strerror, str(path)) from None


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a run folder: a second process that wants it is refused."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / "lock").open("w")
    except OSError as error:
        raise FolderError(f"{folder}: cannot be written ({error.strerror}); choose another --out") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise FolderError(f"{folder}: another process is training there; choose another --out") from None
        yield

"""Folders that are whole or not there: written aside, hashed, renamed into place, verified before use."""

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headway.disk import (
    exchange_folder,
    leads_to_folder,
    move_folder,
    plain_file,
    present,
    refuse_others,
    remove_folder,
    sync,
    workspace,
    write_text,
    writing,
)
from headway.errors import FolderError

MANIFEST = "MANIFEST.json"
FORMAT = 1
"""The version of every folder Headway writes; a newer one is refused by name."""


def write_folder(folder: Path, fill: Callable[[Path], None], facts: Mapping[str, Any]) -> None:
    """Create `folder` by letting `fill` write its files aside, then seal it with a manifest and rename it into place.

    A crash at any moment leaves either no `folder` or all of it; an existing one is never overwritten.
    """
    if present(folder):
        raise FolderError(f"{folder}: already there; choose another folder or remove it")
    with _prepared(folder, fill, facts) as new:
        move_folder(new, folder)


def replace_folder(
    folder: Path, fill: Callable[[Path], None], facts: Mapping[str, Any], *, known: Collection[str] = ()
) -> None:
    """As `write_folder`, but an older folder gives way, if it is just what Headway wrote; see `refuse_changes`.

    With the `known` names of its files, a damaged folder gives way too.
    """
    if known:
        refuse_others(folder, own_names(folder, known))
    else:
        refuse_changes(folder)
    with _prepared(folder, fill, facts) as new:
        exchange_folder(new, folder, own_names(folder, known))


@contextmanager
def _prepared(folder: Path, fill: Callable[[Path], None], facts: Mapping[str, Any]) -> Iterator[Path]:
    """A sealed folder in a workspace, ready to be put in place."""
    with writing(folder, "free space or choose another folder"), workspace(folder) as room:
        new = room / "new"
        new.mkdir()
        fill(new)
        _seal(new, facts)
        yield new


def remove_sealed(folder: Path, known: Collection[str] = ()) -> None:
    """Remove a folder that holds nothing but what its manifest names, and the names that are `known` anyway."""
    remove_folder(folder, members(folder) | set(known))


def own_names(folder: Path, known: Collection[str] = ()) -> set[str]:
    """The files of a folder that Headway wrote: those its manifest names, and the `known` ones if all are there."""
    complete = known and all(plain_file(folder / name) for name in known)
    return members(folder) | ({MANIFEST, *known} if complete else set())


def members(folder: Path) -> set[str]:
    """The files that the manifest of a folder names, and the manifest; none where it cannot be read."""
    try:
        return {MANIFEST, *read_manifest(folder)["files"]}
    except FolderError:
        return set()


def refuse_changes(folder: Path) -> None:
    """Refuse to replace or remove a folder that is not, file by file, what Headway wrote; none at all is fine."""
    if not present(folder):
        return
    refuse_others(folder, members(folder))
    try:
        verify_folder(folder)
    except FolderError as error:
        told = str(error).partition(";")[0]
        raise FolderError(f"{told}, and Headway would have to replace it; move {folder} elsewhere") from None


def _seal(folder: Path, facts: Mapping[str, Any]) -> None:
    usual = folder.stat().st_mode & 0o666  # what the user's mask leaves; safetensors writes for the owner alone
    files = {}
    for path in sorted(folder.iterdir()):
        path.chmod(usual)
        sync(path)
        files[path.name] = describe(path)
    manifest = {"format": FORMAT, **facts, "files": files}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    sync(folder / MANIFEST)
    sync(folder)


def seal_files(folder: Path, names: Collection[str], facts: Mapping[str, Any]) -> None:
    """Write a manifest of some files beside them, in a folder that holds other things too."""
    files = {name: describe(folder / name) for name in sorted(names)}
    write_text(folder / MANIFEST, json.dumps({"format": FORMAT, **facts, "files": files}, indent=1) + "\n")


def describe(path: Path) -> dict[str, Any]:
    """What a manifest says of a file."""
    return {"bytes": path.stat().st_size, "sha256": sha256(path)}


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of `folder`, its format checked but its files not yet."""
    path = folder / MANIFEST
    _refuse_unreachable(path)
    if not leads_to_folder(folder):
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


def _refuse_unreachable(path: Path) -> None:
    """Refuse a path that may not even be looked at, as what is there is not known."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        pass
    except OSError as error:
        told = f"cannot be read ({error.strerror}); check the path and its rights"
        raise FolderError(f"{path}: {told}") from None


def _unreadable(path: Path, error: OSError) -> FolderError:
    return FolderError(f"{path}: cannot be read ({error.strerror or error}); use another copy of the folder")


def sha256(path: Path) -> str:
    """The sha256 of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

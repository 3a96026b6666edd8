"""A run folder: what Headway writes there, how it is recognised, held, undone and cleared."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headway.disk import (
    LOCK,
    first_other,
    lock_folder,
    owned,
    plain_file,
    plain_folder,
    present,
    remove_if_empty,
    remove_own,
)
from headway.errors import FolderError, UserError
from headway.folders import MANIFEST, members, refuse_changes

CONFIG, JOURNAL, EVENTS = "config.toml", "metrics.jsonl", "events"
BEST, CHECKPOINTS, DATA = "best", "checkpoints", "data"
TRANSLATIONS, PAIRS, VALID = "translations", "pairs", "valid"
NAMES = (CONFIG, JOURNAL, EVENTS, BEST, CHECKPOINTS, DATA, TRANSLATIONS, PAIRS, VALID)
"""All that a run writes, beside its lock."""
LATER = (CONFIG, JOURNAL, EVENTS, BEST, CHECKPOINTS)
"""What it writes when all is prepared, in this order or after the first."""

_KINDS = ("tokens", "lengths", "offsets")
_TOKENS = frozenset(f"{side}.{kind}" for side in ("source", "target") for kind in _KINDS)
_LINKS = frozenset({"links", "offsets"})
_SEALED: Mapping[str, frozenset[str]] = {
    BEST: frozenset(),
    PAIRS: frozenset(),
    VALID: frozenset(),
    f"{TRANSLATIONS}/piece-*": frozenset(),
    f"{DATA}/store": _TOKENS,
    f"{DATA}/alignment": _LINKS,
    f"{DATA}/valid-alignment": _LINKS,
}
"""Folders that a run may replace or remove, and files by which one is known whose manifest is damaged.

A checkpoint is not among them: one that holds anything else is kept.
"""
_ENTRIES = {
    CHECKPOINTS: r"step-\d{9,18}",
    DATA: r"store|(valid-)?alignment|plans|split\.json|MANIFEST\.json|((source|target)\.)?tokenizer\.(json|model)",
    f"{DATA}/plans": r"plan-[0-9a-f]{32}",
    EVENTS: r"events\.out\.tfevents\..+",
    TRANSLATIONS: r"piece-\d{6}",
}
"""What folders hold that have no manifest."""


def check_run_folder(out: Path) -> None:
    """Refuse a folder in which a run would replace or remove something that Headway did not write.

    Other files may lie beside those of a run: they are never touched.
    """
    if present(out) and not out.is_dir():
        raise FolderError(f"{out}: is not a folder; choose another --out")
    if not plain_file(out / CONFIG):
        for name in LATER if owned(out) else NAMES:
            if present(out / name):
                told = "was not written by Headway; move it elsewhere, or choose another --out"
                raise FolderError(f"{out / name}: {told}")
    for name in (EVENTS, CHECKPOINTS, DATA, f"{DATA}/plans", TRANSLATIONS):
        if present(out / name) and not plain_folder(out / name):
            raise FolderError(f"{out / name}: was not written by Headway; move it elsewhere")
    for pattern, known in _SEALED.items():
        for folder in filter(plain_folder, out.glob(pattern)):
            names = members(folder) | known | ({MANIFEST} if known else set())
            other = first_other(folder, names)
            if other is not None:
                told = "was not written by Headway, which may have to replace its folder"
                raise FolderError(f"{other}: {told}; move it elsewhere")
    refuse_changes(out / BEST)


@dataclass(frozen=True)
class Held:
    """A run folder that this process holds, and what was there before."""

    out: Path
    missing: tuple[Path, ...]
    """It and its parents, as far as they had to be made, innermost first."""
    before: frozenset[str]
    """Names of the run that were there."""


@contextmanager
def held(out: Path) -> Iterator[Held]:
    """Hold a run folder: one with foreign content, or in use by another process, is refused."""
    check_run_folder(out)
    missing = tuple(path for path in (out, *out.parents) if not present(path))
    before = frozenset(name for name in (LOCK, *NAMES) if present(out / name))
    with lock_folder(out):
        yield Held(out, missing, before)


@contextmanager
def undone(run: Held) -> Iterator[None]:
    """Where the user made a mistake, remove what the run has written, but never what was there before."""
    try:
        yield
    except UserError:
        for name in set(NAMES) - run.before:
            remove_own(run.out / name)
        if LOCK not in run.before:
            remove_own(run.out / LOCK)
        for folder in run.missing:
            remove_if_empty(folder)
        raise


def clear_run(out: Path) -> None:
    """Remove all that a run has written, after checking that all of it is Headway's; other files stay."""
    check_run_folder(out)
    for name, pattern in _ENTRIES.items():
        for entry in sorted((out / name).glob("*")):
            inside = first_other(entry, members(entry)) if name == CHECKPOINTS else None
            if not re.fullmatch(pattern, entry.name) or inside is not None:
                raise FolderError(f"{inside or entry}: was not written by Headway; move it elsewhere")
    with lock_folder(out):
        for name in NAMES:
            remove_own(out / name)

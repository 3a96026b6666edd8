"""Kills after every single operation on a file while checkpoints are saved and pruned."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from states import FACTS, State, series
from tracing import Operation, operations

from headway.training.checkpoint import Checkpoints
from workspaces import leave_workspace

OLD, NEW = [4, 8, 12], 16


def every_point(folder: str) -> list[dict[str, Any]]:
    """Every scenario killed after each of its operations, and what was found afterwards."""
    found = []
    for name, prepare in SCENARIOS.items():
        pristine, work = Path(folder) / f"{name}-pristine", Path(folder) / name
        digests = series(pristine, OLD)
        state = State()
        state.load(Checkpoints(pristine, FACTS), OLD[-1])
        state.move(NEW)
        digests[NEW] = state.digest()
        prepare(pristine)
        step = latest(pristine)[0]
        scene = Scene(pristine, work, state, digests)
        whole = scene.run(None)
        found.append({"scenario": name, "kill": None, "before": step, "operations": [_told(each) for each in whole]})
        for point in range(1, len(whole) + 1):
            done, killed = scene.run(point), work.with_name(f"{name}-killed")
            shutil.copytree(work, killed)
            told = {"scenario": name, "kill": point, "before": step}
            found.append(told | {"power": False} | scene.survey(killed))
            shutil.rmtree(killed)
            if forget_unsynced(work, done):
                found.append(told | {"power": True} | scene.survey(work))
    return found


class Scene:
    """One scenario that can be played again from the same start."""

    def __init__(self, pristine: Path, work: Path, state: State, digests: dict[int, str]) -> None:
        self.pristine, self.work, self.state, self.digests = pristine, work, state, digests
        self.random = torch.get_rng_state()

    def run(self, kill_after: int | None) -> list[Operation]:
        """Play it in a fork and kill that after so many operations."""
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.copytree(self.pristine, self.work)
        torch.set_rng_state(self.random)
        checkpoints = Checkpoints(self.work, FACTS)
        return operations(lambda: save_and_prune(checkpoints, self.state), self.work, kill_after=kill_after)

    def survey(self, folder: Path) -> dict[str, Any]:
        """What is found after a kill, whether it loads as it was saved, and whether saving again puts all in order."""
        step, skipped = latest(folder)
        checkpoints, other = Checkpoints(folder, FACTS), State(seed=9)
        loads = step is not None and other.load(checkpoints, step) == self.digests[step]
        torch.set_rng_state(self.random)
        save_and_prune(checkpoints, self.state)
        again = other.load(checkpoints, NEW) == self.digests[NEW]
        left = sorted(path.name for path in folder.iterdir())
        return {"latest": step, "skipped": skipped, "loads": loads, "again": again, "left": left}


def save_and_prune(checkpoints: Checkpoints, state: State) -> None:
    """Save one more step and remove all others: from then on everything hangs on it."""
    state.save(checkpoints)
    checkpoints.prune(NEW, set())


def nothing(folder: Path) -> None:
    """Leave all as it is."""


def damaged(folder: Path) -> None:
    """The step that is to be saved is already there, but damaged, and earlier kills have left their traces."""
    shutil.copytree(folder / f"step-{OLD[-1]:09d}", folder / f"step-{NEW:09d}")
    (folder / f"step-{NEW:09d}" / "model.safetensors").write_bytes(b"x")
    leave_workspace(folder, f"step-{NEW:09d}")
    leave_workspace(folder, "step-000000001")


SCENARIOS: dict[str, Callable[[Path], None]] = {
    "save and prune": nothing,
    "save over damage and leftovers": damaged,
}


def latest(folder: Path) -> tuple[int | None, int]:
    """The newest sound step and how many folders were skipped."""
    said: list[str] = []
    return Checkpoints(folder, FACTS).latest(said.append), len(said)


def forget_unsynced(folder: Path, done: list[Operation]) -> int:
    """Empty every file whose content was not synced, as a power cut may do; how many there were."""
    unsynced: set[int] = set()
    for each in done:
        if each.inode is not None:
            (unsynced.discard if each.kind == "fsync" else unsynced.add)(each.inode)
    files = [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size]
    doomed = [path for path in files if path.stat().st_ino in unsynced]
    for path in doomed:
        os.truncate(path, 0)
    return len(doomed)


def _told(operation: Operation) -> list[str]:
    return [operation.kind, "/".join(Path(operation.path).parts[-2:])]

"""Checkpoints: all of a run's state in a folder of safetensors and JSON, found again after any damage."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from headway.disk import first_other, present, refuse_others, sweep
from headway.errors import FolderError, HeadwayError, out_of_memory
from headway.folders import MANIFEST, members, remove_sealed, verify_folder, write_folder
from headway.training.average import MovingAverage
from headway.training.optimiser import Optimiser
from headway.training.parallel import ALONE, Parallel, placed, whole
from headway.training.progress import Progress

Tensors = dict[str, Tensor]

FILES = ("model.safetensors", "optimiser.safetensors", "random.safetensors", "progress.json")
"""What every checkpoint holds."""
KNOWN = frozenset({MANIFEST, *FILES, "average.safetensors"})
"""What a checkpoint may hold, by which it is recognised even where its manifest is damaged."""


def parameters(model: nn.Module) -> Tensors:
    """Every weight once under its first name: what is tied is stored once."""
    return {name: weight.detach() for name, weight in model.named_parameters()}


def load_parameters(model: nn.Module, weights: Mapping[str, Tensor], where: str) -> None:
    """Fill the model; missing, extra, misshapen or non-finite tensors are refused by name."""
    own = dict(model.named_parameters())
    if own.keys() != weights.keys():
        names = ", ".join(sorted(own.keys() ^ weights.keys())[:3])
        raise FolderError(f"{where}: its tensors are not those of this model ({names}); the folder does not fit")
    for name, weight in own.items():
        given = weights[name]
        if given.shape != weight.shape or given.dtype != weight.dtype:
            raise FolderError(
                f"{where}: {name} is {given.dtype} {list(given.shape)}, should be {weight.dtype} {list(weight.shape)}"
            )
        if not given.isfinite().all():
            raise FolderError(f"{where}: {name} holds a number that is not finite; use another checkpoint")
    with torch.no_grad():
        for name, weight in own.items():
            weight.copy_(placed(weights[name], weight))


def read_tensors(path: Path) -> Tensors:
    """The tensors of a safetensors file."""
    try:
        return dict(load_file(path))
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        if out_of_memory(error):
            raise
        reason = " ".join(str(error).split())[:120]
        raise FolderError(f"{path}: not a safetensors file ({reason}); use another copy") from None


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file; a full disk is an OSError."""
    try:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:
        raise OSError(f"{path.name}: {error}") from None


def random_state(device: torch.device) -> Tensors:
    """The state of every generator that training on a device draws from."""
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_random_state(state: Mapping[str, Tensor], device: torch.device, rank: int = 0) -> None:
    """Let this rank's generators go on from the states of all ranks."""
    torch.set_rng_state(state[_of_rank("cpu", rank)])
    if device.type == "cuda" and _of_rank("cuda", rank) in state:
        torch.cuda.set_rng_state(state[_of_rank("cuda", rank)], device)


def _of_rank(name: str, rank: int) -> str:
    return f"{name}.{rank}" if rank else name


@dataclass(frozen=True)
class Snapshot:
    """The state of a run at one step, copied to the host; only the first process has the tensors."""

    files: dict[str, Tensors]
    progress: Progress

    @classmethod
    def take(
        cls,
        model: nn.Module,
        optimiser: Optimiser,
        progress: Progress,
        average: MovingAverage | None = None,
        parallel: Parallel = ALONE,
    ) -> "Snapshot":
        """Copy everything; all ranks must take part."""
        random: Tensors = {}
        for name, own in random_state(_device(model)).items():
            random |= {_of_rank(name, rank): state for rank, state in enumerate(parallel.gathered(own))}
        files = {"random": random}

        def copied(tensor: Tensor) -> Tensor:
            complete = whole(tensor)  # which takes every process where it is divided; only the first keeps it
            return complete if parallel.first else complete.new_empty(0)

        if parallel.first or parallel.sharded:
            named = {name: (weight, optimiser.state(weight)) for name, weight in model.named_parameters()}
            files["model"] = {name: copied(weight) for name, (weight, _) in named.items()}
            files["optimiser"] = {
                f"{name}/{key}": copied(torch.as_tensor(value))
                for name, (_, state) in named.items()
                for key, value in state.items()
            }
            if average is not None:
                files["average"] = {name: copied(weight) for name, weight in average.weights.items()}
        return cls(files if parallel.first else {}, progress)


class Checkpoints:
    """The checkpoints of one run, `step-N` folders: never overwritten, the newest good one is the latest."""

    def __init__(self, folder: Path, facts: Mapping[str, Any]) -> None:
        self.folder = folder
        self.facts = dict(facts)

    def path(self, step: int) -> Path:
        """The folder of one step."""
        return self.folder / f"step-{step:09d}"

    def steps(self) -> list[int]:
        """The steps there are folders for, newest first."""
        found = self.folder.glob("step-*") if self.folder.is_dir() else ()
        numbers = (path.name[5:] for path in found)
        return sorted((int(number) for number in numbers if re.fullmatch("[0-9]{9,18}", number)), reverse=True)

    def save(self, model: nn.Module, optimiser: Optimiser, progress: Progress) -> None:
        """Write the state at this step, unless it is already there whole."""
        self.write(Snapshot.take(model, optimiser, progress))

    def write(self, snapshot: Snapshot) -> None:
        """Write a snapshot, unless it is already there whole; a NaN never reaches the disk.

        A damaged checkpoint gives way to it; a folder that is no checkpoint is refused.
        """
        step = snapshot.progress.step
        for name, tensors in snapshot.files.items():
            if not all(np.isfinite(tensor.numpy()).all() for tensor in tensors.values()):  # numpy: see `Background`
                what = "the weights are" if name == "model" else f"the state of the {name} is"
                raise HeadwayError(f"step {step}: {what} not finite; lower the learning rate and resume")
        folder = self.path(step)
        if present(folder):
            if self.sound(step, lambda _: None):
                return
            remove_sealed(folder, KNOWN)

        def fill(aside: Path) -> None:
            for name, tensors in snapshot.files.items():
                write_tensors(aside / f"{name}.safetensors", tensors)
            (aside / "progress.json").write_text(snapshot.progress.to_json(), encoding="utf-8")

        write_folder(folder, fill, {"step": step, **self.facts})

    def latest(self, say: Callable[[str], None]) -> int | None:
        """The newest sound step; says which were skipped and why."""
        return next((step for step in self.steps() if self.sound(step, say)), None)

    def refuse_foreign(self, after: int) -> None:
        """Refuse a folder of a later step, which training would have to replace, if Headway did not write all of it."""
        for step in self.steps():
            if step > after and not self.sound(step, lambda _: None):
                refuse_others(self.path(step), KNOWN | members(self.path(step)))

    def sound(self, step: int, say: Callable[[str], None]) -> bool:
        """Whether the checkpoint of a step verifies and belongs to this run; says why not."""
        folder = self.path(step)
        try:
            manifest = verify_folder(folder)
        except FolderError as error:
            say(f"skipped a checkpoint: {error}")
            return False
        wrong = [name for name, value in {"step": step, **self.facts}.items() if manifest.get(name) != value]
        missing = [name for name in FILES if name not in manifest["files"]]
        if wrong:
            say(f"skipped a checkpoint: {folder}: of another run ({', '.join(wrong)} differs)")
        elif missing:
            say(f"skipped a checkpoint: {folder}: its manifest does not name {', '.join(missing)}")
        return not wrong and not missing

    def load(
        self,
        step: int,
        model: nn.Module,
        optimiser: Optimiser,
        average: MovingAverage | None = None,
        parallel: Parallel = ALONE,
    ) -> Progress:
        """Bring model, optimiser, moving average and generators to the state of `step`, bit for bit.

        With another number of processes than then, the generators cannot go on: they are seeded anew.
        """
        folder = self.path(step)
        self.restore(step, model, optimiser, average)
        progress = Progress.from_json((folder / "progress.json").read_text(encoding="utf-8"))
        if progress.world == parallel.world:
            set_random_state(read_tensors(folder / "random.safetensors"), _device(model), parallel.rank)
        else:
            torch.manual_seed((step << 16) + parallel.rank)
        return progress

    def restore(self, step: int, model: nn.Module, optimiser: Optimiser, average: MovingAverage | None = None) -> None:
        """Bring model, optimiser and moving average to the state of `step`; the generators go on as they are."""
        folder = self.path(step)
        load_parameters(model, read_tensors(folder / "model.safetensors"), str(folder))
        _load_optimiser(model, optimiser, read_tensors(folder / "optimiser.safetensors"))
        if average is not None:
            average.load(read_tensors(folder / "average.safetensors"))

    def average(self, steps: list[int]) -> Tensors:
        """The mean of the weights at several steps, summed in double precision; of moving averages where they are."""
        total: Tensors = {}
        for step in steps:
            moving = self.path(step) / "average.safetensors"
            path = moving if moving.exists() else self.path(step) / "model.safetensors"
            for name, weight in read_tensors(path).items():
                total[name] = total[name] + weight if name in total else weight.double()
        return {name: (weight / len(steps)).float() for name, weight in total.items()}

    def prune(self, newest: int, keep: set[int]) -> None:
        """Remove all but the newest, after it verified, and the steps to keep; and what a kill has left half done.

        A checkpoint to which somebody has added files is kept.
        """
        verify_folder(self.path(newest))
        sweep(self.folder)
        for step in self.steps():
            folder = self.path(step)
            if step != newest and step not in keep and first_other(folder, KNOWN | members(folder)) is None:
                remove_sealed(folder, KNOWN)


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


def _load_optimiser(model: nn.Module, optimiser: Optimiser, tensors: Tensors) -> None:
    states: dict[str, Tensors] = {}
    for full_name, tensor in tensors.items():
        name, _, key = full_name.rpartition("/")
        states.setdefault(name, {})[key] = tensor
    for name, weight in model.named_parameters():
        # Adam's fused kernel keeps its step counter beside the weights.
        optimiser.remember(weight, {key: placed(tensor, weight) for key, tensor in states.get(name, {}).items()})

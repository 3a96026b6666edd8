"""Checkpoints: all of a run's state in a folder of safetensors and JSON, found again after any damage."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from headway.errors import FolderError, HeadwayError
from headway.folders import verify_folder, write_folder
from headway.training.progress import Progress

Tensors = dict[str, Tensor]


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
            weight.copy_(weights[name])


def read_tensors(path: Path) -> Tensors:
    """The tensors of a safetensors file."""
    try:
        return dict(load_file(path))
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
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


def set_random_state(state: Mapping[str, Tensor], device: torch.device) -> None:
    """The inverse of `random_state`."""
    torch.set_rng_state(state["cpu"])
    if "cuda" in state and device.type == "cuda":
        torch.cuda.set_rng_state(state["cuda"], device)


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
        return sorted((int(p.name[5:]) for p in found if p.name[5:].isdigit()), reverse=True)

    def save(self, model: nn.Module, optimiser: torch.optim.Optimizer, progress: Progress) -> None:
        """Write the state at this step, unless it is already there whole; a NaN never reaches the disk."""
        weights = parameters(model)
        if not all(bool(weight.isfinite().all()) for weight in weights.values()):
            raise HeadwayError(f"step {progress.step}: the weights are not finite; lower the learning rate and resume")
        folder = self.path(progress.step)
        if folder.exists():
            try:
                verify_folder(folder)
            except FolderError:
                shutil.rmtree(folder)

        def fill(aside: Path) -> None:
            write_tensors(aside / "model.safetensors", weights)
            write_tensors(aside / "optimiser.safetensors", _optimiser_state(model, optimiser))
            write_tensors(aside / "random.safetensors", random_state(_device(model)))
            (aside / "progress.json").write_text(progress.to_json(), encoding="utf-8")

        if not folder.exists():
            write_folder(folder, fill, {"step": progress.step, **self.facts})

    def latest(self, say: Callable[[str], None]) -> int | None:
        """The newest sound step; says which were skipped and why."""
        return next((step for step in self.steps() if self.sound(step, say)), None)

    def sound(self, step: int, say: Callable[[str], None]) -> bool:
        """Whether the checkpoint of a step verifies and belongs to this run; says why not."""
        folder = self.path(step)
        try:
            manifest = verify_folder(folder)
        except FolderError as error:
            say(f"skipped a checkpoint: {error}")
            return False
        wrong = [name for name, value in {"step": step, **self.facts}.items() if manifest.get(name) != value]
        if wrong:
            say(f"skipped a checkpoint: {folder}: of another run ({', '.join(wrong)} differs)")
        return not wrong

    def load(self, step: int, model: nn.Module, optimiser: torch.optim.Optimizer) -> Progress:
        """Bring model, optimiser and generators to the state of `step`, bit for bit."""
        folder = self.path(step)
        load_parameters(model, read_tensors(folder / "model.safetensors"), str(folder))
        _load_optimiser(model, optimiser, read_tensors(folder / "optimiser.safetensors"))
        set_random_state(read_tensors(folder / "random.safetensors"), _device(model))
        return Progress.from_json((folder / "progress.json").read_text(encoding="utf-8"))

    def average(self, steps: list[int]) -> Tensors:
        """The mean of the weights at several steps, summed in double precision."""
        total: Tensors = {}
        for step in steps:
            for name, weight in read_tensors(self.path(step) / "model.safetensors").items():
                total[name] = total[name] + weight if name in total else weight.double()
        return {name: (weight / len(steps)).float() for name, weight in total.items()}

    def prune(self, newest: int, keep: set[int]) -> None:
        """Remove all but the newest, after it verified, and the steps to keep; and what a kill has left half done."""
        verify_folder(self.path(newest))
        for leftover in (*self.folder.glob("step-*.old"), *self.folder.glob("step-*.tmp")):
            shutil.rmtree(leftover)
        for step in self.steps():
            if step != newest and step not in keep:
                doomed = self.path(step).with_suffix(".old")
                self.path(step).rename(doomed)  # first out of sight, so that a kill leaves no half a checkpoint
                shutil.rmtree(doomed)


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


def _optimiser_state(model: nn.Module, optimiser: torch.optim.Optimizer) -> Tensors:
    return {
        f"{name}/{key}": torch.as_tensor(value)
        for name, weight in model.named_parameters()
        for key, value in optimiser.state.get(weight, {}).items()
    }


def _load_optimiser(model: nn.Module, optimiser: torch.optim.Optimizer, tensors: Tensors) -> None:
    places: dict[str, nn.Parameter] = dict(model.named_parameters())
    optimiser.state.clear()
    for full_name, tensor in tensors.items():
        name, _, key = full_name.rpartition("/")
        weight = places[name]
        # Adam's fused kernel keeps its step counter beside the weights.
        optimiser.state[weight][key] = tensor.to(weight.device)

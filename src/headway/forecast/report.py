"""A forecast as people and programs read it."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from headway.forecast.ending import Ending


@dataclass(frozen=True)
class Forecast:
    """What a run will take on this machine."""

    machine: str
    notes: list[str]
    """What was chosen and why, and what to know before time is spent."""
    pairs: int
    """Training pairs."""
    exact: bool
    """Pairs and vocabulary were counted, not estimated."""
    vocabulary: int
    """Tokens of the target side."""
    model: str
    settings: dict[str, Any]
    """Those of training that decide cost, as they were chosen."""
    processes: int
    parameters: dict[str, int]
    """By part."""
    memory: dict[str, int]
    """Bytes of one process by part."""
    host_memory: dict[str, int]
    """Bytes by part of what a GPU run keeps beside it, in the memory of the machine."""
    machine_memory: int
    """Bytes there are."""
    flops: float
    """Floating-point operations of an update, of all processes together."""
    tokens: float
    """Target tokens of an update, of all processes together."""
    seconds_per_update: float
    timed_updates: int
    seconds_per_validation: float
    seconds_per_checkpoint: float
    """That training stands still."""
    checkpoint: int
    """Bytes."""
    updates_per_epoch: int
    preparation: float
    """Seconds until training begins."""
    traffic: int
    """Bytes that every process sends in an update."""
    ending: Ending
    patience: int
    """Validations without improvement after which a run ends before that."""

    @property
    def tokens_per_second(self) -> float:
        """Target tokens that are learnt from."""
        return self.tokens / self.seconds_per_update

    @property
    def flops_per_second(self) -> float:
        """Floating-point operations of all processes together."""
        return self.flops / self.seconds_per_update

    @property
    def seconds(self) -> float:
        """From the start of the command to the saved model, at the most."""
        return self.preparation + self.ending.seconds

    @property
    def seconds_per_epoch(self) -> float:
        """Updates, validations and checkpoints."""
        validations = self.updates_per_epoch / self.ending.every
        each = self.seconds_per_validation + self.seconds_per_checkpoint
        return self.updates_per_epoch * self.seconds_per_update + validations * each

    def to_json(self) -> dict[str, Any]:
        """Everything, for programs."""
        derived = ("tokens_per_second", "flops_per_second", "seconds", "seconds_per_epoch")
        return asdict(self) | {name: getattr(self, name) for name in derived} | {"fits": self.fits}

    @property
    def peak(self) -> int:
        """Bytes of one process on its device."""
        return sum(self.memory.values())

    @property
    def fits(self) -> bool:
        """Whether memory is enough, with a tenth to spare; processes of one machine share it unless they have GPUs."""
        share = 1 if self.host_memory else self.processes
        return share * self.peak < 0.9 * self.machine_memory

    def lines(self) -> list[str]:
        """Everything, for people."""
        about = "" if self.exact else "about "
        alike = f" in each of {self.processes} processes" if self.processes > 1 else ""
        lines = [
            f"machine        {self.machine}",
            f"corpus         {about}{self.pairs:,} training pairs, {about}{self.vocabulary:,} known tokens",
            f"model          {self.model}",
            f"batches        {', '.join(f'{name} {value}' for name, value in self.settings.items())}",
            f"parameters     {about}{sum(self.parameters.values()):,}",
            f"               {_parts(self.parameters, '{:,}'.format)}",
            f"memory         {size(self.peak)} of {size(self.machine_memory)}{alike}",
            f"               {_parts(self.memory, size)}",
        ]
        if self.host_memory:
            lines.append(f"               beside the GPU: {_parts(self.host_memory, size)}")
        lines += [
            f"an update      {duration(self.seconds_per_update)}, {self.tokens_per_second:,.0f} target tokens/s, "
            f"{_unit(self.flops, 'FLOP')} at {_unit(self.flops_per_second, 'FLOP/s')} (of {self.timed_updates} timed)",
            f"an epoch       {self.updates_per_epoch:,} updates, {duration(self.seconds_per_epoch)}",
            f"a validation   {duration(self.seconds_per_validation)}; one every {self.ending.every:,} updates",
            f"a checkpoint   {size(self.checkpoint)}, training waits {duration(self.seconds_per_checkpoint)} for it",
        ]
        if self.processes > 1:
            lines.append(f"traffic        {size(self.traffic)} from every process in an update; its time not counted")
        return [*self.notes, *lines, *self._end()]

    def _end(self) -> list[str]:
        end, before = self.ending, f"preparing the data {duration(self.preparation)}"
        told = f"{end.updates:,} updates, {end.epochs:.1f} epochs, {end.validations} validations"
        if end.reason == "time":
            lines = [f"the end        {told} fit into the time; before that, {before}"]
        else:
            lines = [f"the end        {duration(self.seconds)}: {told}, set by {end.reason}; {before}"]
        lines.append(f"               sooner if {self.patience} validations in a row bring no improvement")
        if not self.fits:
            told = "lower training.batch_tokens and raise training.accumulate, or set training.recompute"
            lines.append(f"warning: memory may not be enough; {told}")
        return lines


def _parts(parts: dict[str, int], show: Callable[[int], str]) -> str:
    return ", ".join(f"{name} {show(value)}" for name, value in parts.items() if value)


def size(count: int) -> str:
    """Bytes as people write them."""
    number = float(count)
    for unit in ("bytes", "KiB", "MiB"):
        if number < 1024:
            return f"{number:,.0f} {unit}"
        number /= 1024
    return f"{number:,.2f} GiB"


def _unit(count: float, unit: str) -> str:
    for prefix in ("", "K", "M", "G", "T"):
        if count < 1000:
            return f"{count:.3g} {prefix}{unit}"
        count /= 1000
    return f"{count:.3g} P{unit}"


def duration(seconds: float) -> str:
    """A time span as people write it, short ones too."""
    if seconds < 0.1:
        return f"{1000 * seconds:.2g} ms" if seconds < 0.01 else f"{1000 * seconds:.0f} ms"
    if seconds < 60:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"

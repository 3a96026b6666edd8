"""Several processes that train one model: the only file that knows torch.distributed."""

import logging
import os
import re
import signal
import socket
import sys
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from headway.errors import HeadwayError, Interrupted
from headway.models.model import Model
from headway.nn.attention import MultiHeadAttention
from headway.runtime.threads import share_threads

RESTARTS = 100
"""How often processes that were killed are started again, each time from the latest checkpoint."""
LOST = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Connection refused")
"""What errors say that mean another process."""
PATIENCE = timedelta(days=7)
"""How long the others wait while the first process prepares the data or finishes the model."""

MOST = 1 << 20
"""More processes than there will ever be."""
BY_TORCHRUN = "torchrun sets it, so leave it alone, or unset TORCHELASTIC_RUN_ID to train in this process only"
WATCHED = 0.5
"""Seconds between two looks at whether the launcher is alive."""


@dataclass(frozen=True)
class Parallel:
    """This process among those that train together, as torchrun started them; alone, nothing here costs anything."""

    rank: int = 0
    world: int = 1
    sharded: bool = False
    """Weights, gradients and moments are divided over the processes (FSDP2), not copied to each (DDP)."""

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and speaks."""
        return self.rank == 0

    def exchange(self, *numbers: float | int) -> list[tuple[float | int, ...]]:  # beartype tells them apart
        """The numbers of every rank, by rank."""
        if self.world == 1:
            return [numbers]
        own = torch.tensor(numbers, dtype=torch.float64)
        rows = [torch.empty_like(own) for _ in range(self.world)]
        dist.all_gather(rows, own)
        return [tuple(row.tolist()) for row in rows]

    def total(self, value: Tensor) -> Tensor:
        """The sum over all ranks."""
        if self.world > 1:
            dist.all_reduce(value)
        return value

    def gathered(self, tensor: Tensor) -> list[Tensor]:
        """A tensor on the host, of every rank, by rank; all must be of one shape."""
        if self.world == 1:
            return [tensor]
        rows = [torch.empty_like(tensor) for _ in range(self.world)]
        dist.all_gather(rows, tensor)
        return rows

    def in_turn(self, work: Callable[[], None]) -> None:
        """Let the first process do something, however long it takes, while the others wait."""
        if self.world == 1:
            work()
            return
        store = dist.distributed_c10d._get_default_store()
        turn = f"headway/{store.add(f'headway/turns/{self.rank}', 1)}"
        if self.first:
            work()
            store.set(turn, "done")
        else:
            store.wait([turn], PATIENCE)

    def distributed(self, step: nn.Module, model: Model) -> nn.Module:
        """The training step as a module whose backward pass leaves the mean of all ranks' gradients."""
        if self.world == 1:
            return step
        if not self.sharded:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)  # of a new name that older versions do not have
                return DistributedDataParallel(step, broadcast_buffers=False, gradient_as_bucket_view=True)
        from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

        for layer in model.blocks():
            cross = getattr(layer, "cross", None)
            if isinstance(cross, MultiHeadAttention):  # its keys and values are made before the layer is called
                fully_shard(cross)
                for name in ("remember", "cross"):
                    register_fsdp_forward_method(cross, name)
            fully_shard(layer)
        fully_shard(step)
        return step

    def apart(self, step: nn.Module, *, last: bool) -> AbstractContextManager[object]:
        """Where gradients are only gathered on this rank, until the last backward pass of an update."""
        if isinstance(step, DistributedDataParallel) and not last:
            return step.no_sync()
        return nullcontext()


ALONE = Parallel()


def whole(tensor: Tensor) -> Tensor:
    """A copy on the host of all of a tensor; where it is divided, every rank must ask."""
    return _complete(tensor.detach()).to("cpu", copy=True)


def placed(tensor: Tensor, like: Tensor) -> Tensor:
    """A whole tensor where, and divided as, another one is."""
    here = tensor.to(like.device)
    if tensor.shape != like.shape or not hasattr(like, "full_tensor"):
        return here
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(like, DTensor)
    return distribute_tensor(here, like.device_mesh, like.placements)


def number(value: Tensor) -> float:
    """The one number of a tensor."""
    return float(_complete(value))


def _complete(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor  # a DTensor, without importing its class


class Misplaced(HeadwayError):  # noqa: N818  # as the others
    """A variable of torchrun's cannot be: which process is to speak is not known, so each does."""

    exit_code = 2


def started_by_torchrun() -> bool:
    """Whether this is one of torchrun's processes; a variable of its that cannot be is refused by name."""
    if not {"TORCHELASTIC_RUN_ID", "RANK"} <= os.environ.keys():
        return False
    world = _variable("WORLD_SIZE", range(1, MOST))
    for name in ("RANK", "LOCAL_RANK"):
        _variable(name, range(world))
    if world > 1:
        _variable("MASTER_PORT", range(1, 1 << 16))
        host = os.environ.get("MASTER_ADDR", "")
        try:
            socket.getaddrinfo(host or " ", None)
        except (OSError, UnicodeError):
            raise Misplaced(f"MASTER_ADDR={host}: no such machine; {BY_TORCHRUN}") from None
    return True


def _variable(name: str, possible: range) -> int:
    """The number in one of torchrun's variables."""
    given = os.environ.get(name, "")
    if not (given.isdecimal() and len(given) < 10 and int(given) in possible):
        raise Misplaced(f"{name}={given}: not a number from {possible[0]} to {possible[-1]}; {BY_TORCHRUN}")
    return int(given)


def restarted() -> bool:
    """Whether torchrun has started this process anew because one had died."""
    return "TORCHELASTIC_RESTART_COUNT" in os.environ and _variable("TORCHELASTIC_RESTART_COUNT", range(MOST)) > 0


def own_device(device: torch.device) -> torch.device:
    """The GPU of this process, where every process of a machine has its own."""
    if device.type != "cuda" or not started_by_torchrun():
        return device
    return torch.device("cuda", int(os.environ["LOCAL_RANK"]))


@contextmanager
def joined(device: torch.device, *, sharded: bool) -> Iterator[Parallel]:
    """Join the processes that torchrun started; alone if it did not."""
    if not started_by_torchrun() or int(os.environ["WORLD_SIZE"]) == 1:
        yield ALONE
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    rank = dist.get_rank()
    _stop_with(_launcher())
    try:
        yield Parallel(rank, dist.get_world_size(), sharded)
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and not any(sign in str(error) for sign in LOST):
            raise
        raise HeadwayError(f"process {rank}: another process was lost; all are started again") from None
    finally:
        dist.destroy_process_group()


def _launcher() -> int:
    """The process that started this one; it may be gone by now, but `launch` names its runs after it."""
    named = re.match(r"headway-(\d+)-", os.environ["TORCHELASTIC_RUN_ID"])
    return int(named[1]) if named else os.getppid()


def _stop_with(launcher: int) -> None:
    """Ask this process to stop, as SIGTERM does, when the launcher is gone: nobody else would end it."""

    def watch() -> None:
        while os.getppid() == launcher:
            time.sleep(WATCHED)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


class Ended(HeadwayError):  # noqa: N818  # the fault is another process's, and so is the line that tells of it
    """A process ended with a fault of its own, and has said which; starting it again would not help."""

    def __init__(self, exit_code: int) -> None:
        super().__init__("")
        self.exit_code = exit_code


def launch(processes: int, arguments: Sequence[str]) -> None:
    """Run `headway` with these arguments in several processes of this machine, as torchrun does.

    When one is killed, all are started again; one that ends with a fault of its own ends them all.
    """
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    # A store shared with the launcher still holds the keys of the processes before: restarts would then fail at random.
    os.environ.setdefault("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    share_threads(os.environ, torch.get_num_threads() // processes)
    for name in ("torch.distributed.elastic", "torch.distributed.launcher"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    for _ in range(RESTARTS + 1):
        options: dict[str, Any] = {"rdzv_backend": "c10d", "rdzv_endpoint": "localhost:0"}
        name = f"headway-{os.getpid()}-{uuid.uuid4().hex}"
        config = LaunchConfig(1, 1, processes, max_restarts=0, monitor_interval=0.1, run_id=name, **options)
        try:
            elastic_launch(config, sys.executable)("-m", "headway", *arguments)
            return
        except SignalException as stopped:
            raise Interrupted("", int(stopped.sigval)) from None  # the first process has said where
        except ChildFailedError as error:
            ends = {failure.exitcode for failure in error.failures.values()}
            if not any(code < 0 for code in ends - {-signal.SIGTERM}):  # which is how the launcher ends the others
                raise Ended(error.get_first_failure()[1].exitcode) from None
    raise HeadwayError(f"processes were killed {RESTARTS} times; see the system's log")

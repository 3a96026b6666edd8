"""The gradient of an update, batch by batch: over several processes, and in parts where memory runs out."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from headway.data.batches import Batch
from headway.errors import HeadwayError, out_of_memory
from headway.training.memory import cells, parts
from headway.training.optimiser import Optimiser
from headway.training.parallel import Parallel


@dataclass
class Gradients:
    """Leaves the gradient of the mean loss of an update with the weights."""

    forward: nn.Module
    optimiser: Optimiser
    parallel: Parallel
    device: torch.device
    arithmetic: Callable[[], AbstractContextManager[object]]
    say: Callable[[str], None]
    limit: int | None = None
    """Batches of this many cells did not fit into memory: as large ones are split."""
    _committed: bool = field(default=False, init=False)
    """The other processes count on this one to finish the pass it is in."""

    def __call__(self, batches: Sequence[Batch], units: int, step: int) -> Tensor:
        """Make the gradient of the mean over `units`, and return the surprise of this process's batches.

        Where memory runs out, the batch that was too large is split and all of it done again: the same gradient.
        """
        while True:
            passes = [part for batch in batches for part in parts(batch, self.limit)]
            surprise = torch.zeros((), device=self.device)
            self.optimiser.zero_grad()
            for index, batch in enumerate(passes, start=1):
                try:
                    surprise += self._passed(batch, units, step, last=index == len(passes))
                except (RuntimeError, MemoryError) as error:
                    if not out_of_memory(error):
                        raise
                    break
            else:
                return surprise
            self._make_room(batch, step)

    def _passed(self, batch: Batch, units: int, step: int, *, last: bool) -> Tensor:
        """One forward and backward pass; a batch of no units takes part but weighs nothing."""
        several, sharded = self.parallel.world > 1, self.parallel.sharded
        self._committed = several and sharded
        with self.parallel.apart(self.forward, last=last):
            with self.arithmetic():
                loss = self.forward(batch.to(self.device), step)
            self._committed = several and (sharded or last)
            # Processes average their gradients; we divide by the count of them all.
            (loss.total / (units / self.parallel.world) if batch.units else loss.total * 0.0).backward()
        return loss.surprise if batch.units else loss.surprise * 0.0

    def _make_room(self, batch: Batch, step: int) -> None:
        """From now on split batches as large as this one, or give up where that does not help."""
        told = f"step {step}: a batch of {cells(batch)} cells does not fit into memory"
        if batch.pairs == 1:
            raise HeadwayError(f"{told} and is one pair; lower model.longest or the size of the model")
        if self._committed:
            raise HeadwayError(f"{told}; halve training.batch_tokens and double accumulate")
        self.limit = cells(batch)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        self.say(f"{told}; such batches are split from here on, the gradient stays the same")

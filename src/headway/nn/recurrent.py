"""Recurrent layers: whole sequences in one call, or one position at a time with the same weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headway.nn.dropout import Dropout
from headway.nn.recomputing import recomputed
from headway.sequences import Sequences

CellKind = Literal["rnn", "gru", "lstm"]

GATES: dict[CellKind, int] = {"rnn": 1, "gru": 3, "lstm": 4}
"""Matrices of a cell, for what it reads and for what it remembers each."""

LayerState = tuple[Tensor, ...]
"""What a layer remembers: its state and, of an LSTM, its cell after it; each `[batch, query, dim]`."""


class RecurrentLayer(nn.Module):
    """One layer of cells: plain (Elman 1990), GRU (Cho et al. 2014) or LSTM (Hochreiter and Schmidhuber 1997).

    The GRU is cuDNN's: the reset gate acts on the product of what is remembered, rather than before it. Recurrent
    matrices begin orthogonal, and the forget gate of an LSTM open (Jozefowicz et al. 2015).
    """

    def __init__(self, cell: CellKind, inputs: int, dim: int) -> None:
        super().__init__()
        self.cell, self.dim = cell, dim
        kind = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}[cell]
        self.weights = kind(inputs, dim, batch_first=True)  # holds the weights, on a GPU side by side as cuDNN wants
        for name, weight in self.weights.named_parameters():
            if name.startswith("bias"):
                nn.init.zeros_(weight)
                continue
            start = nn.init.orthogonal_ if name.startswith("weight_hh") else nn.init.xavier_uniform_
            for gate in weight.chunk(GATES[cell]):
                start(gate)
        if cell == "lstm":
            nn.init.ones_(self.weights.bias_ih_l0.data[dim : 2 * dim])

    def forward(
        self, x: Float[Tensor, "batch time inputs"], start: LayerState | None = None
    ) -> Float[Tensor, "batch time dim"]:
        """The states of a whole sequence, begun with `start` or with zeros.

        Under autocast it computes in single precision: torch would take fp16 here, whatever autocast is set to.
        """
        given = x.dtype
        if start is None:
            start = (x.new_zeros(len(x), 1, self.dim),) * (2 if self.cell == "lstm" else 1)
        if torch.is_autocast_enabled(x.device.type):
            with torch.autocast(x.device.type, enabled=False):
                return self._read(x.float(), tuple(each.float() for each in start)).to(given)
        return self._read(x, start)

    def _read(self, x: Float[Tensor, "batch time inputs"], start: LayerState) -> Float[Tensor, "batch time dim"]:
        begun = [each.to(x.dtype).transpose(0, 1).contiguous() for each in start]
        # cuDNN keeps what the way back needs only "in training"; dropout is ours and stands between the layers.
        rest = self._weights(), True, 1, 0.0, torch.is_grad_enabled(), False, True
        with _exactly(x):
            if self.cell == "lstm":
                return torch.lstm(x, begun, *rest)[0]
            return (torch.gru if self.cell == "gru" else torch.rnn_tanh)(x, begun[0], *rest)[0]

    def step(self, x: Float[Tensor, "batch query inputs"], state: LayerState) -> LayerState:
        """What is remembered after one more position of every row; its first part is the state of that position."""
        rows, weights = x.shape[:2], self._weights()
        flat, before = x.flatten(0, 1), [each.flatten(0, 1) for each in state]
        if self.cell == "lstm":
            return tuple(each.unflatten(0, rows) for each in torch.lstm_cell(flat, before, *weights))
        after = (torch.gru_cell if self.cell == "gru" else torch.rnn_tanh_cell)(flat, before[0], *weights)
        return (after.unflatten(0, rows),)

    def _weights(self) -> list[Tensor]:
        held = self.weights
        return [held.weight_ih_l0, held.weight_hh_l0, held.bias_ih_l0, held.bias_hh_l0]


@contextmanager
def _exactly(x: Float[Tensor, "*batch time inputs"]) -> Iterator[None]:
    """While inside, cuDNN multiplies single precision as it is, as single steps and all other products do."""
    if not (x.is_cuda and x.dtype == torch.float32):
        yield
        return
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before


class RecurrentEncoder(nn.Module):
    """Layers that read the source forwards, or half of the features forwards and half backwards.

    Padding stands on the right and is read last: forwards it follows all tokens, and backwards every sentence is turned
    around within its own length. So no length need be known on the host, and the device is never waited for.
    """

    def __init__(self, cell: CellKind, layers: int, dim: int, *, bidirectional: bool, dropout: float) -> None:
        super().__init__()
        width = dim // 2 if bidirectional else dim
        self.forwards = nn.ModuleList(RecurrentLayer(cell, dim, width) for _ in range(layers))
        self.backwards = nn.ModuleList(RecurrentLayer(cell, dim, width) for _ in range(layers if bidirectional else 0))
        self.dropout = Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "batch time dim"], source: Sequences
    ) -> tuple[Float[Tensor, "batch time dim"], Float[Tensor, "batch dim"]]:
        """The state of every position, and the summary: the last layer's state after all tokens, in each direction."""
        order = _turned(source)
        parts: list[Tensor] = []
        for place, layer in enumerate(self.forwards):
            if place:
                x = self.dropout(torch.cat(parts, -1))
            parts = [recomputed(layer, x)]
            if self.backwards:
                parts.append(_ordered(recomputed(self.backwards[place], _ordered(x, order)), order))
        ends = (source.lengths - 1).clamp(min=0)[:, None, None].expand(-1, 1, parts[0].shape[-1])
        summary = torch.cat([parts[0].gather(1, ends)[:, 0], *(part[:, 0] for part in parts[1:])], -1)
        return torch.cat(parts, -1), summary


def _turned(source: Sequences) -> Int[Tensor, "batch time"]:
    """For every cell the one that takes its place when each sentence is turned around and padding stays."""
    lengths, positions = source.lengths[:, None], source.positions
    return torch.where(positions < lengths, lengths - 1 - positions, positions)


def _ordered(x: Float[Tensor, "batch time dim"], order: Int[Tensor, "batch time"]) -> Float[Tensor, "batch time dim"]:
    return x.gather(1, order[:, :, None].expand(-1, -1, x.shape[-1]))

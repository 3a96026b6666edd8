"""Multi-head attention (Vaswani et al. 2017, section 3.2.2)."""

from jaxtyping import Float, Int
from torch import Tensor, nn

from headway.nn.attention.attend import Attended, attend
from headway.nn.attention.memory import KeyValues, Past
from headway.nn.attention.parts import side_by_side
from headway.nn.attention.visibility import Visible
from headway.nn.linear import Linear
from headway.nn.positions import Positions


class MultiHeadAttention(nn.Module):
    """Attention by `heads` heads of `width` features each, or of `dim / heads`.

    The three input projections are one matrix (query above key above value): self-attention then is one product.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        width: int | None = None,
        dropout: float = 0.0,
        positions: Positions | None = None,
    ) -> None:
        super().__init__()
        self.heads, self.width, self.dropout = heads, width or dim // heads, dropout
        self.dim = heads * self.width
        """Features of all heads together."""
        self.positions = positions or Positions()
        self.inputs = Linear(dim, 3 * self.dim)
        self.output = Linear(self.dim, dim)
        for block in self.inputs.weight.chunk(3):
            nn.init.xavier_uniform_(block)
        nn.init.xavier_uniform_(self.output.weight)
        nn.init.zeros_(self.inputs.bias)
        nn.init.zeros_(self.output.bias)

    def remember(self, memory: Float[Tensor, "*batch key dim"]) -> KeyValues:
        """Project what will be attended to."""
        return KeyValues(*self._split(self.inputs(memory, slice(self.dim, None)), 2))

    def cross(
        self,
        query: Float[Tensor, "*batch query dim"],
        memory: KeyValues,
        visible: Visible,
        *,
        need_weights: bool = False,
    ) -> Attended:
        """Attend from every query to the remembered positions it may see."""
        (heads,) = self._split(self.inputs(query, slice(self.dim)), 1)
        return self._attend(heads, memory, visible, need_weights, bias=False)

    def forward(
        self,
        x: Float[Tensor, "*batch query dim"],
        visible: Visible,
        positions: Int[Tensor, "*batch query"],
        past: Past | None = None,
        *,
        need_weights: bool = False,
    ) -> tuple[Attended, Past | None]:
        """Attend from every position to those of the same sequence it may see, and to `past` ones before them.

        Where there is a past, returns what is remembered from now on: `past` and the new positions.
        """
        query, key, value = self._split(self.inputs(x), 3)
        query, key = self.positions.turn(query, positions), self.positions.turn(key, positions)
        newer = KeyValues(key, value)
        past = None if past is None else past.extended(newer)
        memory = newer if past is None else past.held()
        return self._attend(query, memory, visible, need_weights, bias=True), past

    def _attend(
        self, query: Tensor, memory: KeyValues, visible: Visible, need_weights: bool, *, bias: bool
    ) -> Attended:
        attended = attend(
            query,
            memory.key,
            memory.value,
            visible,
            self.positions.bias if bias else None,
            drop=self.dropout if self.training else 0.0,
            need_weights=need_weights,
        )
        return Attended(self.output(attended.output.flatten(-2)), attended.weights if need_weights else None)

    def _split(
        self, x: Float[Tensor, "*batch time dim"], parts: int
    ) -> tuple[Float[Tensor, "*batch time heads width"], ...]:
        """The parts a projection holds side by side, head by head."""
        return side_by_side(x, parts, self.heads)

"""The attention weights of one translation, and the ways to look at them."""

import html
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from headway.disk import write_output
from headway.errors import ConfigError
from headway.inspection.kinds import KINDS, Kind
from headway.inspection.page import assemble
from headway.objectives import GuidedHead, decisive


@dataclass(frozen=True)
class Attention:
    """The attention weights of one translation, every layer and head, with the tokens as the user wrote them.

    Encoder and decoder may differ in layers and heads; a kind of attention the model lacks is an array of no layers.
    """

    source: tuple[str, ...]
    """The pieces the encoder reads, as displayed; the end symbol is among them."""
    target_in: tuple[str, ...]
    """The tokens the decoder reads, the start symbol first: the queries of decoder and cross attention."""
    target_out: tuple[str, ...]
    """The tokens predicted at those positions."""
    encoder: Float[np.ndarray, "_layers _heads source source"]
    decoder: Float[np.ndarray, "_layers _heads target target"]
    cross: Float[np.ndarray, "_layers _heads target source"]
    translation: str = ""
    sentence: str = ""
    """The source text; when empty, the pages show the source pieces joined."""
    guided: GuidedHead | None = None
    """The head of cross attention that was taught which words translate which, where one was."""

    def __post_init__(self) -> None:
        """Refuse weights that do not belong to the tokens."""
        source, target = len(self.source), len(self.target_in)
        if len(self.target_out) != target:
            raise ValueError(
                f"attention: {target} tokens read but {len(self.target_out)} predicted; hand in one for one"
            )
        shapes = {"encoder": (source, source), "decoder": (target, target), "cross": (target, source)}
        for kind in KINDS:
            weights, shape = self.weights(kind), shapes[kind]
            if weights.ndim != 4 or weights.shape[2:] != shape:
                raise ValueError(f"attention: {kind} weights are {weights.shape}, not [layers, heads, {shape}]")
        if not self.kinds():
            raise ValueError("attention: no layer holds any weight; ask the model for its attention weights")

    def weights(self, kind: Kind) -> Float[np.ndarray, "layers heads query key"]:
        """The weights of one kind of attention."""
        return {"encoder": self.encoder, "decoder": self.decoder, "cross": self.cross}[kind]

    def queries(self, kind: Kind) -> tuple[str, ...]:
        """The labels of the rows; a row of cross attention is named by the token it helps to predict."""
        return {"encoder": self.source, "decoder": self.target_in, "cross": self.target_out}[kind]

    def keys(self, kind: Kind) -> tuple[str, ...]:
        """The labels of the columns."""
        return self.target_in if kind == "decoder" else self.source

    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of attention this model has."""
        return tuple(kind for kind in KINDS if self.weights(kind).size)

    def alignment(self) -> list[tuple[int, int]]:
        """Pair every predicted token with the source position it attends to most, as (source, target).

        As in `headway translate --alignments` the guided head decides, or the mean of all heads of the last two layers;
        a model without cross attention gives no pair.
        """
        if "cross" not in self.kinds():
            return []
        strongest = decisive(list(self.cross), self.guided).argmax(-1)
        return [(int(source), target) for target, source in enumerate(strongest)]

    def html(self) -> str:
        """One complete page that needs no network and no other file."""
        return assemble(
            sentence=self.sentence or joined(self.source),
            translation=self.translation or joined(self.target_out),
            kinds={kind: (self.queries(kind), self.keys(kind), self.weights(kind)) for kind in self.kinds()},
            read=self.target_in,
        )

    def _repr_html_(self) -> str:
        """The page in a frame of its own, so that a notebook's styles and scripts and the page's stay apart."""
        return (
            '<iframe title="Attention" sandbox="allow-scripts" loading="lazy" width="100%" height="760" '
            f'style="border: 0" srcdoc="{html.escape(self.html())}"></iframe>'
        )

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the page (.html) or a picture (.png, .svg), as the suffix says."""
        path = Path(path)
        match path.suffix.lower():
            case ".html":
                write_output(path, self.html().encode(), overwrite=overwrite)
            case ".png" | ".svg":
                from headway.inspection.pictures import draw_attention

                kind: Kind = "cross" if "cross" in self.kinds() else self.kinds()[-1]
                draw_attention(self, path, kind, overwrite=overwrite)
            case _:
                raise ConfigError(f"{path}: attention cannot be saved in this format; use .html, .png or .svg")


def joined(pieces: tuple[str, ...]) -> str:
    """The pieces as running text: with '▁' as the space where a piece has it, otherwise with spaces between."""
    if any("▁" in piece for piece in pieces):
        return "".join(pieces).replace("▁", " ").strip()
    return " ".join(pieces)

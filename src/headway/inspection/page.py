"""The attention page: markup, style, script and data assembled into one file that asks the network for nothing."""

import base64
import hashlib
import json
from collections.abc import Mapping
from importlib.resources import files
from string import Template

import numpy as np
from jaxtyping import Float

from headway.inspection.kinds import Kind

Labelled = tuple[tuple[str, ...], tuple[str, ...], Float[np.ndarray, "layers heads query key"]]
"""Row labels, column labels and the weights between them."""

FINE_CELLS = 2**20
"""Up to this many weights a page keeps 16 bits of each (under 3 MB in all), above it 8."""


def assemble(*, sentence: str, translation: str, kinds: Mapping[Kind, Labelled], read: tuple[str, ...]) -> str:
    """Build the page for one translation; whatever the tokens hold, they stay text."""
    cells = sum(weights.size for _, _, weights in kinds.values())
    levels = 2**16 - 1 if cells <= FINE_CELLS else 2**8 - 1
    data = {
        "sentence": sentence,
        "translation": translation,
        "read": read,
        "levels": levels,
        "kinds": {
            kind: {"queries": queries, "keys": keys, "weights": encode(weights, levels)}
            for kind, (queries, keys, weights) in kinds.items()
        },
    }
    style, script = resource("page.css"), "".join(resource(name) for name in ("colours.js", "drawing.js", "page.js"))
    return Template(resource("page.html")).substitute(
        policy=policy(style, script), style=style, script=script, data=embedded(data)
    )


def encode(weights: Float[np.ndarray, "layers heads query key"], levels: int) -> list[list[str]]:
    """Write the map of every layer and head as base64 of round(levels * sqrt(weight)), row by row.

    The root keeps small weights apart: of 512 equal weights each comes back within 5 % even with 8 bits.
    Codes are little-endian, one byte for 255 levels and two for 65535.
    """
    width = "<u2" if levels > 255 else "u1"
    codes = np.rint(np.sqrt(np.clip(np.nan_to_num(weights), 0.0, 1.0)) * levels).astype(width)
    return [[base64.b64encode(head.tobytes()).decode("ascii") for head in layer] for layer in codes]


def embedded(data: object) -> str:
    """The data as JSON that cannot end the element it stands in: ASCII alone, and no '<', '>' or '&'."""
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def policy(style: str, script: str) -> str:
    """Allow the page its own style and its own script, and nothing else."""
    return (
        f"default-src 'none'; style-src {fingerprint(style)}; script-src {fingerprint(script)}; "
        "base-uri 'none'; form-action 'none'"
    )


def fingerprint(content: str) -> str:
    """The hash by which a Content-Security-Policy knows an inline element."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode('ascii')}'"


def resource(name: str) -> str:
    """The text of a file that ships with this package."""
    return files("headway.inspection").joinpath(name).read_text(encoding="utf-8")

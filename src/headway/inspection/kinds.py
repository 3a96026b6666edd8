"""The three places of attention in a Transformer (Vaswani et al. 2017, section 3.2.3)."""

from typing import Literal, get_args

Kind = Literal["encoder", "decoder", "cross"]
"""The source looks at itself, the target at what is already written, the target at the source."""

KINDS: tuple[Kind, ...] = get_args(Kind)

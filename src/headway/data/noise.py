"""Noise on synthetic sources: words left out, blanked and moved (Edunov et al. 2018, section 3)."""

import random

BLANK = "_"
"""What stands in the place of a blanked word."""
FURTHEST = 3
"""Places a word moves at most."""


def noised(text: str, probability: float, chance: random.Random) -> str:
    """Leave each word out with `probability`, then blank those left with the same, and move them about a little.

    One word at least stays. Words are what white space divides.
    """
    words = text.split()
    kept = [word for word in words if chance.random() >= probability] or words[:1]
    blanked = [BLANK if chance.random() < probability else word for word in kept]
    # Sorted by place plus chance, no word passes one that is further away (Lample et al. 2018, section 2.3).
    places = [place + chance.uniform(0.0, FURTHEST + 1) for place in range(len(blanked))]
    return " ".join(word for _, word in sorted(zip(places, blanked, strict=True), key=lambda placed: placed[0]))

"""French spelling at word boundaries: elision (l', j', qu') and contraction (au, aux, du, des)."""

import re

_VOWEL = re.compile(r"[aeiouyàâéèêîôû\u0153]|h(?!ongrie)", re.IGNORECASE)
_ELISION = re.compile(rf"\b(je|ne|me|te|le|la|de|que) (?={_VOWEL.pattern})", re.IGNORECASE)
_CONTRACTION = re.compile(r"\b(de|à) (le|les)\b", re.IGNORECASE)
_CONTRACTED = {"de le": "du", "de les": "des", "à le": "au", "à les": "aux"}


def starts_with_vowel(word: str) -> bool:
    """Say whether `word` calls for elision: a vowel or a mute h, not the h of Hongrie."""
    return _VOWEL.match(word) is not None


def spell(words: str) -> str:
    """Write a sentence given in full words as French spells it: `je aime le hôtel` is `J'aime l'hôtel`."""
    elided = _ELISION.sub(lambda match: match[1][:-1] + "'", words)
    text = _CONTRACTION.sub(lambda match: _CONTRACTED[match[0].lower()], elided)
    return text[0].upper() + text[1:]

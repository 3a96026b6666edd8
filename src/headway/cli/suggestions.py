"""What a model would write next, word by word."""

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headway.translator import Translator

CONSIDERED = 16
"""Tokens with which the next word may begin that are looked at."""
TOKENS = 8
"""Tokens a word has at most."""


def next_words(translator: "Translator", source: str, begun: str, *, tags: tuple[str, ...] = ()) -> list[str]:
    """The likeliest words to come next in an output for `source` that begins so, the likeliest first.

    Where `begun` ends inside a word, words that begin like it.
    """
    from headway.sentence import prefix_tokens

    head, partial = _divided(begun)
    (tokens,) = translator.tokenize([source], tags=tags)
    if not tokens:
        return []
    prefix = prefix_tokens(translator.target, head)
    if len(prefix) >= translator.longest:  # nothing can come after it
        return []
    request = translator.request(tokens)
    requests = [
        replace(request, prefix=(*prefix, token)) for token in _starts(translator, request.source, prefix, partial)
    ]
    greedy = {"beam": 1, "nbest": 1, "mbr": 0, "groups": 1, "sample": False, "longest": len(prefix) + TOKENS}
    found = translator.search(requests, translator.settings(greedy))
    written = len(translator.detokenize(prefix))
    texts = [translator.detokenize(each[0].tokens)[written:].split() for each in found if each]
    words = [text[0] for text in texts if text and text[0].startswith(partial)]
    return list(dict.fromkeys(word for word in words if word.isprintable() and "\ufffd" not in word))


def _divided(begun: str) -> tuple[str, str]:
    """The whole words, and the one that has only begun."""
    if not begun or begun[-1].isspace():
        return begun, ""
    place = max((index for index, letter in enumerate(begun) if letter.isspace()), default=-1) + 1
    return begun[:place], begun[place:]


def _starts(translator: "Translator", source: tuple[int, ...], prefix: tuple[int, ...], partial: str) -> list[int]:
    """The likeliest tokens with which a word like `partial` may go on after the prefix."""
    likely = translator.following(source, prefix)
    found = []
    for token in likely.argsort(descending=True).tolist():
        spelled = translator.target.spelling(token).strip()
        fits = spelled.startswith(partial) or (spelled and partial.startswith(spelled))
        if fits and token != translator.target.end:
            found.append(token)
        if len(found) == CONSIDERED:
            break
    return found

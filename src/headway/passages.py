"""Where a text may be divided: into its sentences, or into passages short enough for a model."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise

_CLOSING = r"[\"'”’»›)\]}」』）】〉》]*+"
_MARKS = "[.!?…‼⁇⁈⁉؟۔।॥]"
_WIDE = "。！？｡．"
"""Marks after which no blank is written."""
# Every stretch is tried from its beginning alone and never shortened: hostile texts take no more time than others.
_ENDS = re.compile(
    rf"(?:(?<!{_MARKS}){_MARKS}++{_CLOSING}\s++|(?<![{_WIDE}])[{_WIDE}]++{_CLOSING}\s*+"
    r"|(?<!\s)[^\S\n]*+\n[^\S\n]*+\n\s*+)(?=\S)"
)
_CLAUSES = re.compile(rf"(?:[,;:،؛–—]{_CLOSING}\s++|[、，；：]{_CLOSING}\s*+)(?=\S)")
_BLANKS = re.compile(r"(?<!\s)\s++(?=\S)")
_BREAKS = re.compile(r"[\s\"'“‘«‹(\[{„’]")
_OPENING = "\"'“‘«‹([{„¿¡「『（【〈《—–- "

NEAR = 64
"""Characters before a mark that may tell whether it ends a sentence."""

_ALWAYS = """
mr mrs ms dr prof st sr jr rev gen col capt lt sgt hon gov sen rep messrs vs approx dept est inc ltd co corp
hr fr frl dipl ing bzw ca evtl ggf inkl usw vgl sog geb gest str tel bspw
mme mlle mgr me env cf éd hab
sra srta dra ud uds vd vds avda
sig dott avv egr spett
exmo dhr mevr drs bijv blz enz
"""
"""Short forms, without their dot, with which no sentence ends: English, German, French, Spanish, Italian, others."""
_BEFORE_NUMBERS = "no nos nr art abs abb bd bl fig vol ch chap cap p pp pág págs pag s ss sec eq tab núm"
"""Short forms that are other words, or end a sentence, unless a number follows."""
_SHORT, _COUNTING = frozenset(_ALWAYS.split()), frozenset(_BEFORE_NUMBERS.split())
_DAY = re.compile(r"(?:^|[^\d.,])\d{1,2}$")
_AFTER_DAYS = re.compile(
    r"(?:jan|feb|mär|maer|apr|mai|jun|jul|aug|sep|okt|nov|dez|jahrhundert|jh|lednu|juni|juli|oktober)", re.IGNORECASE
)
"""What a number with a dot counts, in languages that write ordinals so."""
_WORDS = frozenset("Iaày")
"""Single letters that are words and may end a sentence."""


def sentences(text: str) -> list[str]:
    """White space and sentences by turns, beginning and ending with white space that may be empty.

    Joined they are the text again. What might as well be a short form or an ordinal number ends no sentence, an empty
    line always does.
    """
    body = text.strip()
    if not body:
        return [text]
    start = text.index(body)
    found = [text[:start]]
    for unit in _units(body, _sentence_ends(body)):
        sentence = unit.rstrip()
        found += [sentence, unit[len(sentence) :]]
    found[-1] = text[start + len(body) :]
    return found


def joined(gaps: Sequence[str], outputs: Sequence[str]) -> str:
    """The outputs for what stood between gaps of white space, one more of these, as one text.

    Where there was no blank, one is put in, unless the output before it ends in a mark that takes none.
    """
    text = gaps[0]
    for place, (output, gap) in enumerate(zip(outputs, gaps[1:], strict=True), start=1):
        between = gap or ("" if place == len(outputs) or output.endswith(tuple(_WIDE)) else " ")
        text += output + between
    return text


def passages(text: str, sizes: Callable[[Sequence[str]], list[int]], room: int) -> list[str]:
    """The text in pieces of at most `room`, each as long as can be, without white space around them.

    They end where sentences do, else at punctuation, else at blanks, else anywhere.
    """
    return [piece.strip() for piece in _cut(text, sizes, room, 0) if piece.strip()]


def _cut(text: str, sizes: Callable[[Sequence[str]], list[int]], room: int, level: int) -> Iterator[str]:
    if len(text) < 2 or sizes([text])[0] <= room:
        yield text
    elif level == len(_LEVELS):
        middle = len(text) // 2
        yield from _cut(text[:middle], sizes, room, level)
        yield from _cut(text[middle:], sizes, room, level)
    else:
        units = list(_units(text, _LEVELS[level](text)))
        for packed in _packed(units, sizes(units), room) if len(units) > 1 else units:
            yield from _cut(packed, sizes, room, level + 1)


def _packed(units: list[str], sizes: list[int], room: int) -> Iterator[str]:
    """Neighbours together as long as there is room."""
    held, taken = "", 0
    for unit, size in zip(units, sizes, strict=True):
        if held and taken + size > room:
            yield held
            held, taken = "", 0
        held, taken = held + unit, taken + size
    yield held


def _units(text: str, ends: Iterator[int]) -> Iterator[str]:
    """The text in pieces that end at these places."""
    for start, end in pairwise((0, *ends, len(text))):
        yield text[start:end]


def _sentence_ends(text: str, *, small: bool = False) -> Iterator[int]:
    """Where sentences end; with `small`, also where the next begins with a small letter."""
    start = 0
    for match in _ENDS.finditer(text):
        before = text[max(start, match.start() - NEAR) : match.start()]
        after = text[match.end() : match.end() + 40].lstrip(_OPENING)
        if (
            match[0][0] in _WIDE
            or match[0].count("\n") > 1
            or ((small or not after[:1].islower()) and not _shortened(before, match[0], after))
        ):
            yield match.end()
            start = match.end()


def _shortened(before: str, mark: str, after: str) -> bool:
    """Whether the mark is but the dot of a short form, or of a number in order; `before` ends its sentence so far."""
    if not mark.startswith(".") or mark.startswith(".."):
        return False
    if before[-1:].isdigit():
        return bool(_DAY.search(before)) and (
            not before.strip(_OPENING + "0123456789") or bool(_AFTER_DAYS.match(after))
        )
    word = _BREAKS.split(before)[-1]
    letters = word.rpartition(".")[2]
    if len(letters) == 1 and letters.isalpha() and (word != letters or letters not in _WORDS):
        return True  # an initial, or the last of several
    plain = word.lower()
    return plain in _SHORT or (plain in _COUNTING and after[:1].isdigit())


def _matched(pattern: re.Pattern[str]) -> Callable[[str], Iterator[int]]:
    return lambda text: (match.end() for match in pattern.finditer(text))


_LEVELS = (_sentence_ends, partial(_sentence_ends, small=True), _matched(_CLAUSES), _matched(_BLANKS))
"""Where a text may be cut, the best places first."""

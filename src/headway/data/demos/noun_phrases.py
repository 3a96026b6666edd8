"""Noun phrases of the French-English demo: determiner, adjectives in their place and agreeing, noun."""

from dataclasses import dataclass
from itertools import product

from headway.data.demos.french import starts_with_vowel
from headway.data.demos.lexicon import (
    ADJECTIVES,
    BEFORE_NOUN,
    BEFORE_VOWEL,
    MEN,
    WOMEN,
    Adjective,
    Noun,
    Place,
)
from headway.data.demos.verbs import Agreement, join

# masculine, feminine, English
SINGULAR = {
    "the": ("le", "la", "the"),
    "a": ("un", "une", "a"),
    "this": ("ce", "cette", "this"),
    "my": ("mon", "ma", "my"),
    "your": ("ton", "ta", "your"),
    "our": ("notre", "notre", "our"),
    "some": ("de le", "de la", ""),
}
PLURAL = {
    "the": ("les", "the"),
    "this": ("ces", "these"),
    "my": ("mes", "my"),
    "your": ("tes", "your"),
    "our": ("nos", "our"),
    "some": ("des", ""),
    "two": ("deux", "two"),
    "three": ("trois", "three"),
}
LINKED = {"ce": "cet", "ma": "mon", "ta": "ton"}
"""What a determiner becomes before a vowel."""
COLOURS = frozenset({"noir", "blanc", "rouge", "vert"})


@dataclass(frozen=True, slots=True)
class Phrase:
    """A noun phrase in both languages."""

    french: str
    english: str
    head: str
    determiner: str
    agreement: Agreement
    negated: str
    """What it becomes as direct object of a negated verb (`de pommes`); empty where one would not say it."""
    place: bool = False
    """A country or a city."""

    @property
    def partitive(self) -> bool:
        """Whether it says `des`, `du` or `de la`: it then serves as direct object only."""
        return self.determiner == "some"


def count_phrases(noun: Noun, determiners: tuple[str, ...]) -> list[Phrase]:
    """All phrases with a noun one counts, one and many."""
    choices = _adjective_choices(noun)
    singular = [
        _phrase(noun, key, *pair, plural=False)
        for key, pair in product(determiners, choices)
        if key in SINGULAR and key != "some"
    ]
    plural = [
        _phrase(noun, key, before, after, plural=True)
        for key, (before, after) in product(determiners, choices)
        if key in PLURAL and not (key == "some" and before)  # "de petits chats": formal, and as rare as it is hard
    ]
    return singular + plural


def mass_phrases(noun: Noun) -> list[Phrase]:
    """All phrases with a noun one does not count: le pain, du pain, ce pain."""
    return [_phrase(noun, key, *pair, plural=False) for key, pair in product(("the", "some"), _adjective_choices(noun))]


def _adjective_choices(noun: Noun) -> list[tuple[Adjective | None, Adjective | None]]:
    """List the adjectives before and after the noun, neither, one or both."""
    before = [ADJECTIVES[name] for name in noun.adjectives if name in BEFORE_NOUN]
    after = [ADJECTIVES[name] for name in noun.adjectives if name not in BEFORE_NOUN]
    # Both only where English keeps one order: a little black cat, an old French book.
    both = [adjective for adjective in after if adjective.masculine in COLOURS or adjective.english == "French"]
    return [
        (None, None),
        *((adjective, None) for adjective in before),
        *((None, adjective) for adjective in after),
        *product(before, both),
    ]


def agree(adjective: Adjective, *, feminine: bool, plural: bool) -> str:
    """Inflect an adjective."""
    if plural:
        return adjective.feminine_plural if feminine else adjective.masculine_plural
    return adjective.feminine if feminine else adjective.masculine


def _phrase(noun: Noun, key: str, before: Adjective | None, after: Adjective | None, *, plural: bool) -> Phrase:
    """Put one phrase together."""
    feminine = noun.gender == "f"
    word = noun.plural if plural else noun.singular
    first = agree(before, feminine=feminine, plural=plural) if before else ""
    if before and not plural and not feminine and starts_with_vowel(word):
        first = BEFORE_VOWEL.get(first, first)
    bare = join(first, word, agree(after, feminine=feminine, plural=plural) if after else "")
    if plural:
        determiner, english_determiner = PLURAL[key]
    else:
        masculine_form, feminine_form, english_determiner = SINGULAR[key]
        determiner = feminine_form if feminine else masculine_form
        if starts_with_vowel(bare):
            determiner = LINKED.get(determiner, determiner)
    english = join(
        before.english if before else "",
        after.english if after else "",
        noun.english_plural if plural else noun.english,
    )
    if key == "a" and english[0] in "aeio":
        english_determiner = "an"
    french = join(determiner, bare)
    return Phrase(
        french,
        join(english_determiner, english),
        noun.singular,
        key,
        Agreement(5 if plural else 2, feminine, plural),
        {"a": f"de {bare}", "some": f"de {bare}", "two": "", "three": ""}.get(key, french),
    )


def named(name: str) -> Phrase:
    """Make a phrase of a person's name."""
    return Phrase(name, name, name, "", Agreement(2, name in WOMEN, False), name)


def visited(place: Place) -> Phrase:
    """Make an object of a country or a city."""
    return Phrase(place.object, place.english, place.object, "", Agreement(2, False, False), place.object, place=True)


def couple(first: str, second: str) -> Phrase:
    """Join two names; the masculine wins."""
    feminine = first in WOMEN and second in WOMEN
    text = f"{first} et {second}"
    return Phrase(text, f"{first} and {second}", text, "", Agreement(5, feminine, True), text)


def _pronoun(french: str, english: str, person: int, *, feminine: bool, plural: bool) -> Phrase:
    return Phrase(french, english, french, "", Agreement(person, feminine, plural), "")


# je, tu, nous and vous stand for men and for women, vous for one and for many: "vous êtes allée" is as right as
# "vous êtes allés". Those four come twice as often as the others, whose verb forms nouns share.
PRONOUNS = (
    *(_pronoun("je", "I", 0, feminine=n > 1, plural=False) for n in range(4)),
    *(_pronoun("tu", "you", 1, feminine=n > 1, plural=False) for n in range(4)),
    *(_pronoun("il", "he", 2, feminine=False, plural=False) for _ in range(2)),
    *(_pronoun("elle", "she", 2, feminine=True, plural=False) for _ in range(2)),
    *(_pronoun("nous", "we", 3, feminine=n > 1, plural=True) for n in range(4)),
    *(_pronoun("vous", "you", 4, feminine=bool(n % 2), plural=n > 1) for n in range(4)),
    *(_pronoun("ils", "they", 5, feminine=False, plural=True) for _ in range(2)),
    *(_pronoun("elles", "they", 5, feminine=True, plural=True) for _ in range(2)),
)
NAMES = tuple(named(name) for name in (*MEN, *WOMEN))
COUPLES = tuple(couple(first, second) for first, second in product((*MEN, *WOMEN), repeat=2) if first != second)

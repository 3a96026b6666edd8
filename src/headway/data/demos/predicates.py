"""What the French-English demo says of someone: a verb, its object, and the place."""

from random import Random
from typing import NamedTuple

from headway.data.demos import lexicon, verbs
from headway.data.demos.groups import (
    ANIMALS,
    BOOKS,
    CITIES,
    COUNTRIES,
    DRINKS,
    FOOD,
    FOOD_MASS,
    PERSONS,
    PRESENTS,
    READING,
    SIGHTS,
    SOUNDS,
    THINGS,
    VEHICLES,
    Group,
    other,
    pick,
)
from headway.data.demos.lexicon import Place
from headway.data.demos.noun_phrases import Phrase
from headway.data.demos.verbs import Verb, join


class Said(NamedTuple):
    """Words in both languages; `wide` where they name a country or city, of which no hour is said."""

    french: str
    english: str
    wide: bool = False


class Predicate(NamedTuple):
    """A verb with what follows it."""

    verb: Verb
    rest: Said
    negated: str
    """The French rest under negation; empty where the sentence is not negated."""
    simple: bool = False
    """Takes no adverb and no negation but pas."""
    clitic: str = ""

    @property
    def deniable(self) -> bool:
        """Whether it may be negated."""
        return bool(self.negated or self.clitic)


CLITICS = {"me": "me", "te": "you", "nous": "us", "vous": "you", "les": "them"}

OBJECTS: dict[Verb, Group] = {
    verbs.VISIT: COUNTRIES + CITIES + SIGHTS * 2,
    verbs.EAT: FOOD + FOOD_MASS,
    verbs.DRINK: DRINKS,
    verbs.BUY: FOOD + FOOD_MASS + DRINKS + BOOKS[:1] + THINGS * 2,
    verbs.SEE: PERSONS + ANIMALS * 2 + THINGS + VEHICLES,
    verbs.READ: READING,
    verbs.LOVE: COUNTRIES + CITIES + PERSONS + ANIMALS,
    verbs.WAIT: [phrases for phrases in PERSONS if phrases[0].head != "enfant"] + VEHICLES * 4,  # "attendre un enfant"
    verbs.LISTEN: PERSONS + SOUNDS * 6,
}
VERBS = tuple(OBJECTS)
STATES = (verbs.LOVE, verbs.LIVE)  # said without time, often or sometimes, and modal verb
ANIMAL_OBJECTS: dict[Verb, Group] = {
    verbs.EAT: FOOD + FOOD_MASS,
    verbs.DRINK: [phrases for phrases in DRINKS if phrases[0].head in {"eau", "lait"}],
    verbs.SEE: PERSONS + ANIMALS + VEHICLES,
}
TOPICS: Group = PERSONS + READING + THINGS + COUNTRIES + CITIES
HOMES = (*lexicon.COUNTRIES, *lexicon.CITIES)
ROOMS = tuple(Said(f"dans {french}", f"in {english}") for french, english in lexicon.ROOMS.items())
VENUES = tuple(lexicon.VENUES.items())
NOWHERE = Said("", "")


def where(random: Random, *, towards: bool = False, rooms: bool = True) -> Said:
    """Draw a place to be at, or to go `towards`: French does not tell them apart, English does."""
    region, venue = ("to", "to") if towards else ("in", "at")
    kind = random.random()
    if kind < 0.3:
        place: Place = random.choice(lexicon.COUNTRIES)
        return Said(place.where, f"{region} {place.english}", wide=True)
    if kind < 0.5:
        place = random.choice(lexicon.CITIES)
        return Said(place.where, f"{region} {place.english}", wide=True)
    if kind < 0.75 and rooms and not towards:
        return random.choice(ROOMS)
    french, english = random.choice(VENUES)
    return Said(f"à {french}", f"{venue} {english}")


def predicate(random: Random, who: Phrase) -> Predicate:
    """Draw a verb and its complements."""
    kind = random.random()
    if kind < 0.5:
        return _transitive(random, who, random.choice(VERBS), OBJECTS)
    if kind < 0.76:
        return _moving_or_staying(random)
    if kind < 0.85:
        return _talking(random, who)
    if kind < 0.92:
        return _giving(random, who)
    return _with_clitic(random)


def animal_predicate(random: Random, who: Phrase) -> Predicate:
    """Draw what an animal eats, drinks or sees, or where it sleeps."""
    verb = random.choice((*ANIMAL_OBJECTS, verbs.SLEEP))
    if verb is verbs.SLEEP:
        room = random.choice(ROOMS)
        return Predicate(verb, room, room.french)
    return _transitive(random, who, verb, ANIMAL_OBJECTS)


def _transitive(random: Random, who: Phrase, verb: Verb, objects: dict[Verb, Group]) -> Predicate:
    thing = other(random, objects[verb], who, partitive=True)
    place = NOWHERE
    if verb not in (verbs.VISIT, verbs.LOVE) and random.random() < 0.3:
        place = where(random, rooms=verb is not verbs.BUY) if objects is OBJECTS else random.choice(ROOMS)
    english = join(verb.english.preposition, thing.english, place.english)
    rest = Said(join(thing.french, place.french), english, thing.place or place.wide)
    negated = join(thing.negated, place.french) if thing.negated else ""
    return Predicate(verb, rest, negated, simple=thing.determiner == "a")


def _moving_or_staying(random: Random) -> Predicate:
    verb = random.choice((verbs.WORK, verbs.SLEEP, verbs.LIVE, verbs.GO, verbs.GO, verbs.COME))
    if verb is verbs.COME:
        home = random.choice(HOMES)
        rest = Said(home.whence, f"from {home.english}", wide=True)
    elif verb is verbs.GO:
        rest = where(random, towards=True)
    elif verb is verbs.LIVE:
        home = random.choice(HOMES)
        rest = Said(home.where, f"in {home.english}", wide=True)
    else:
        rest = where(random)
    return Predicate(verb, rest, rest.french, simple=verb is verbs.COME)


def _talking(random: Random, who: Phrase) -> Predicate:
    if random.random() < 0.4:
        topic = other(random, PERSONS, who)
        french, english = f"à {topic.french}", f"to {topic.english}"
    else:
        topic = other(random, TOPICS, who)
        french, english = f"de {topic.french}", f"about {topic.english}"
    return Predicate(verbs.TALK, Said(french, english), french)


def _giving(random: Random, who: Phrase) -> Predicate:
    thing = pick(random, PRESENTS)
    topic = other(random, PERSONS, who)
    rest = Said(f"{thing.french} à {topic.french}", f"{thing.english} to {topic.english}")
    negated = f"{thing.negated} à {topic.french}" if thing.negated else ""
    return Predicate(verbs.GIVE, rest, negated, simple=thing.determiner == "a")


def _with_clitic(random: Random) -> Predicate:
    """Draw a verb whose object is a pronoun put before it; the subject is to be someone else."""
    verb = random.choice((verbs.SEE, verbs.WAIT, verbs.LISTEN, verbs.LOVE))
    clitic = random.choice(tuple(CLITICS))
    place = where(random) if verb is not verbs.LOVE and random.random() < 0.6 else NOWHERE
    english = join(verb.english.preposition, CLITICS[clitic], place.english)
    return Predicate(verb, Said(place.french, english, place.wide), place.french, clitic=clitic)

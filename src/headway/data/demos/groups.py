"""The noun phrases of the French-English demo in groups: what is eaten, who is spoken of."""

from collections.abc import Callable
from random import Random

from headway.data.demos import lexicon
from headway.data.demos.noun_phrases import COUPLES, NAMES, PRONOUNS, Phrase, count_phrases, mass_phrases, visited

EVERY = ("the", "a", "this", "my", "our", "some", "two", "three")
UNOWNED = ("the", "a", "this", "some", "two")  # "ma femme" is my wife, "ma fille" my daughter
OWNED = ("my", "your", "our")
Group = list[list[Phrase]]  # one list of phrases a noun, so that every noun is drawn as often

PEOPLE: Group = [count_phrases(noun, UNOWNED) for noun in lexicon.PEOPLE]
RELATIVES: Group = [count_phrases(noun, OWNED) for noun in lexicon.RELATIVES]
ANIMALS: Group = [count_phrases(noun, EVERY) for noun in lexicon.ANIMALS]
FOOD: Group = [count_phrases(noun, EVERY) for noun in lexicon.FOOD]
FOOD_MASS: Group = [mass_phrases(noun) for noun in lexicon.FOOD_MASS]
DRINKS: Group = [mass_phrases(noun) for noun in lexicon.DRINKS]
READING: Group = [count_phrases(noun, EVERY) for noun in lexicon.READING]
THINGS: Group = [count_phrases(noun, EVERY) for noun in lexicon.THINGS]
VEHICLES: Group = [count_phrases(noun, UNOWNED) for noun in lexicon.VEHICLES]
SOUNDS: Group = [count_phrases(noun, EVERY) for noun in lexicon.SONGS] + [mass_phrases(noun) for noun in lexicon.SOUNDS]
SIGHTS: Group = [count_phrases(noun, ("the", "a", "this")) for noun in lexicon.SIGHTS]
NAMED: Group = [[name] for name in NAMES]
COUNTRIES: Group = [[visited(place)] for place in lexicon.COUNTRIES]
CITIES: Group = [[visited(place)] for place in lexicon.CITIES]
SUBJECTS: Group = PEOPLE + RELATIVES
PERSONS: Group = PEOPLE + RELATIVES + NAMED
BOOKS: Group = READING[:2]  # and letters, but no stories
PRESENTS: Group = FOOD + BOOKS + THINGS[2:]  # neither a car nor a house


def pick(random: Random, group: Group, accept: Callable[[Phrase], bool] = lambda _: True) -> Phrase:
    """Draw a noun, then a phrase with it; plain phrases come up more often than their share."""
    while True:
        phrases = random.choice(group)
        phrase = random.choice(phrases if random.random() < 0.7 else phrases[:1])
        if accept(phrase):
            return phrase


def subject(random: Random) -> Phrase:
    """Draw a person or persons to say something of."""
    kind = random.random()
    if kind < 0.25:
        return random.choice(NAMES)
    if kind < 0.65:
        return random.choice(PRONOUNS)
    if kind < 0.73:
        return random.choice(COUPLES)
    return pick(random, SUBJECTS, lambda phrase: not phrase.partitive)


def other(random: Random, group: Group, who: Phrase, *, partitive: bool = False) -> Phrase:
    """Draw a phrase about someone or something else than `who`; only a direct object may be `partitive`."""
    return pick(
        random, group, lambda phrase: phrase.head not in who.head.split() and (partitive or not phrase.partitive)
    )

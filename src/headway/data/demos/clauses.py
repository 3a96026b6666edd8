"""Sentences of the French-English demo: what may be said of whom, where and when."""

from collections.abc import Sequence
from random import Random

from headway.data.demos import lexicon, verbs
from headway.data.demos.demo import Pair
from headway.data.demos.french import spell
from headway.data.demos.groups import ANIMALS, BOOKS, FOOD, FOOD_MASS, THINGS, pick, subject
from headway.data.demos.lexicon import ADJECTIVES, MOODS, Time
from headway.data.demos.noun_phrases import NAMES, Phrase, agree, count_phrases
from headway.data.demos.predicates import NOWHERE, ROOMS, STATES, Predicate, Said, animal_predicate, predicate, where
from headway.data.demos.verbs import ADVERBS, BE, Tense, around, english_be, english_verb, french_verb, join

SHORTEST, LONGEST = 4, 14
TENSES: tuple[Tense, ...] = ("present", "past", "future")
BELONGINGS = ANIMALS + FOOD + FOOD_MASS + THINGS[2:] + BOOKS  # what fits a room
DESCRIBED = [
    (
        count_phrases(noun._replace(adjectives=()), ("the", "this")),
        [ADJECTIVES[name] for name in noun.adjectives if name not in {"petit", "vieux"}],
    )
    for noun in (*lexicon.THINGS, *lexicon.SIGHTS, *lexicon.READING)
]
TIMETABLED = frozenset(time.french for time in (*lexicon.HABITS[:7], *lexicon.PAST[:1], *lexicon.FUTURE[:1]))
"""The days to which an hour is readily added."""


def draw(random: Random) -> Pair:
    """Draw one sentence of between `SHORTEST` and `LONGEST` words, in French and in English."""
    while True:
        said = random.choices(SENTENCES, WEIGHTS)[0](random)
        french, english = spell(said.french), said.english[0].upper() + said.english[1:]
        if all(SHORTEST <= len(text.replace("'", " ").split()) <= LONGEST for text in (french, english)):
            return Pair(french, english)


def when(random: Random, tense: Tense, manner: str, *, wide: bool) -> Said:
    """Draw a time that goes with the tense and the manner; `wide` rules out hours."""
    habits: Sequence[Time] = lexicon.HABITS if tense == "present" and not wide else ()
    if manner in ADVERBS:
        options = [lexicon.MONTHS, habits] if habits else [lexicon.MONTHS]
    else:
        moments = {"present": habits, "past": lexicon.PAST, "future": lexicon.FUTURE}[tense]
        options = [lexicon.MONTHS, lexicon.TODAY, *([moments, moments] if moments else [])]
        if not wide:
            options += [lexicon.CLOCK, lexicon.CLOCK]
    french, english = random.choice(random.choice(options))
    if not wide and manner not in ADVERBS and french in TIMETABLED and random.random() < 0.3:
        hour = random.choice(lexicon.CLOCK)
        return Said(f"{french} {hour.french}", f"{english} {hour.english}")
    return Said(french, english)


def _manner(random: Random, what: Predicate, tense: Tense) -> str:
    """Draw affirmation, negation or an adverb, whichever the predicate allows."""
    kind = random.random()
    if kind < 0.55:
        return ""
    if kind < 0.75 and what.deniable:
        return "pas"
    if what.simple:
        return ""
    if kind < 0.87 and what.deniable:
        return "jamais" if tense == "past" or random.random() < 0.5 else "plus"
    return random.choice(("souvent", "parfois")) if kind >= 0.87 and what.verb not in STATES else ""


def action(random: Random) -> Said:
    """Draw a clause of someone doing something somewhere, at some time, with or without a modal verb."""
    who = subject(random)
    what = predicate(random, who)
    if what.clitic and who.agreement.person not in {2, 5}:
        who = random.choice(NAMES)
    tense = random.choice(TENSES)
    if what.clitic and tense == "past":  # the participle would agree with a pronoun whose gender nothing tells
        tense = "future"
    if random.random() < 0.2 and what.verb not in (*STATES, verbs.COME):
        return _with_modal(random, who, what)
    return _conjugated(random, who, what, tense)


def _conjugated(random: Random, who: Phrase, what: Predicate, tense: Tense) -> Said:
    """Say `what` of `who`, affirmed, denied or with an adverb, often with a time."""
    manner = _manner(random, what, tense)
    verb = french_verb(what.verb, who.agreement, tense, manner, what.clitic)
    rest = what.negated if manner in verbs.NEGATIVE else what.rest.french
    clause = Said(
        join(who.french, verb, rest),
        join(who.english, english_verb(what.verb.english, who.agreement, tense, manner), what.rest.english),
    )
    if what.verb in (*STATES, verbs.COME) or random.random() < 0.3:
        return clause
    return _timed(random, clause, when(random, tense, manner, wide=what.rest.wide), manner=manner)


def _with_modal(random: Random, who: Phrase, what: Predicate) -> Said:
    modal = random.choice(verbs.MODALS)
    negative = what.deniable and random.random() < 0.4
    third = who.agreement.person == 2
    english = (modal.denied if negative else modal.affirmed)[third]
    verb = around(modal.present[who.agreement.person], "pas" if negative else "")
    rest = what.negated if negative else what.rest.french
    clause = Said(
        join(who.french, verb, what.clitic, what.verb.infinitive, rest),
        join(who.english, english, what.verb.english.base, what.rest.english),
    )
    return clause if random.random() < 0.4 else _timed(random, clause, when(random, "future", "", wide=what.rest.wide))


def _timed(random: Random, clause: Said, time: Said, *, manner: str = "") -> Said:
    """Add the time, now and then before the clause unless that has an adverb."""
    if not time.french:
        return clause
    if manner not in ADVERBS and random.random() < 0.15:
        return Said(f"{time.french}, {clause.french}", f"{time.english}, {clause.english}")
    return Said(join(clause.french, time.french), join(clause.english, time.english))


def animal(random: Random) -> Said:
    """Draw a clause of what an animal eats, drinks, sees, or where it sleeps."""
    who = pick(random, ANIMALS, lambda phrase: not phrase.partitive)
    return _conjugated(random, who, animal_predicate(random, who), random.choice(TENSES))


def being(random: Random) -> Said:
    """Draw a clause of how someone or something is, or where."""
    tense = random.choice(TENSES)
    manner = random.choice(("", "", "", "pas", "jamais", "plus"))
    time, kind = NOWHERE, random.random()
    if kind < 0.4:
        who = subject(random)
        adjective = ADJECTIVES[random.choice(MOODS)]
        manner = random.choice((manner, manner, "souvent", "parfois"))
        time = when(random, tense, manner, wide=True) if random.random() < 0.5 else NOWHERE
    elif kind < 0.7:
        whos, adjectives = random.choice(DESCRIBED)
        who, adjective = random.choice(whos), random.choice(adjectives)
    else:
        who = subject(random)
        place = where(random)
        time = when(random, tense, manner, wide=place.wide) if random.random() < 0.5 else NOWHERE
        return _timed(random, _is(who, tense, manner, place), time, manner=manner)
    agreement = who.agreement
    form = agree(adjective, feminine=agreement.feminine, plural=agreement.plural)
    clause = _is(who, tense, manner, Said(form, adjective.english))
    return _timed(random, clause, time, manner=manner)


def _is(who: Phrase, tense: Tense, manner: str, rest: Said) -> Said:
    """Say that someone or something is `rest`."""
    verb = around(BE[tense][who.agreement.person], manner)
    return Said(
        join(who.french, verb, rest.french), join(who.english, english_be(who.agreement, tense, manner), rest.english)
    )


def existence(random: Random) -> Said:
    """Draw a clause with il y a."""
    what = pick(random, BELONGINGS, lambda phrase: phrase.determiner in {"a", "some", "two", "three"})
    room = random.choice(ROOMS)
    past = random.random() < 0.4
    be = ("were" if past else "are") if what.agreement.plural else ("was" if past else "is")
    has = "avait" if past else "a"
    if what.determiner in {"a", "some"} and random.random() < 0.4:
        bare = what.english.removeprefix("an ").removeprefix("a ")
        return Said(f"il ne y {has} pas {what.negated} {room.french}", f"there {be} no {bare} {room.english}")
    return Said(f"il y {has} {what.french} {room.french}", f"there {be} {what.english} {room.english}")


def reported(random: Random) -> Said:
    """Draw a clause that someone thinks, says or knows."""
    who = subject(random)
    forms, plain, third = random.choice(verbs.SAYING)
    clause = random.choice((action, being))(random)
    familiar = {"tu": "vous ", "vous": "tu "}.get(who.french, ",")  # one does not say tu and vous to the same person
    while "," in clause.french or who.french in clause.french or clause.french.startswith(familiar):
        clause = random.choice((action, being))(random)
    person = who.agreement.person
    return Said(
        f"{who.french} {forms[person]} que {clause.french}",
        f"{who.english} {third if person == 2 else plain} that {clause.english}",
    )


SENTENCES = (action, animal, being, existence, reported)
WEIGHTS = (60, 8, 14, 6, 12)

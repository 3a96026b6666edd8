"""The verbs of the French-English demo, and the verb phrases they make in both languages."""

from typing import Literal, NamedTuple

Tense = Literal["present", "past", "future"]

PRESENT_ENDINGS = ("e", "es", "e", "ons", "ez", "ent")
FUTURE_ENDINGS = ("ai", "as", "a", "ons", "ez", "ont")
HAVE = ("ai", "as", "a", "avons", "avez", "ont")
BE: dict[Tense, tuple[str, ...]] = {
    "present": ("suis", "es", "est", "sommes", "êtes", "sont"),
    "past": ("étais", "étais", "était", "étions", "étiez", "étaient"),
    "future": ("serai", "seras", "sera", "serons", "serez", "seront"),
}
ADVERBS = {"jamais": "never", "plus": "no longer", "souvent": "often", "parfois": "sometimes"}
NEGATIVE = frozenset({"pas", "jamais", "plus"})


class Agreement(NamedTuple):
    """What a verb or an adjective takes from its subject; `person` runs from 0 (je) to 5 (ils)."""

    person: int
    feminine: bool
    plural: bool

    def ending(self) -> str:
        """The ending of a regular past participle."""
        return ("e" if self.feminine else "") + ("s" if self.plural else "")


class English(NamedTuple):
    """The forms of an English verb, and the preposition that comes with its object."""

    base: str
    third: str
    past: str
    participle: str
    preposition: str = ""


class Verb(NamedTuple):
    """A French verb, all its forms in use here, and its English."""

    infinitive: str
    present: tuple[str, ...]
    future: tuple[str, ...]
    participle: str
    english: English
    moves: bool = False
    """Its passé composé is built with être and agrees with the subject."""


class Modal(NamedTuple):
    """A verb followed by an infinitive, used in the present only, with its English before the infinitive."""

    present: tuple[str, ...]
    affirmed: tuple[str, str]
    """In English, for other persons and for the third singular."""
    denied: tuple[str, str]


def _regular(infinitive: str, english: str, preposition: str = "") -> Verb:
    """Conjugate a verb in -er; English is `base third past participle`."""
    stem = infinitive[:-2]
    softened = stem + "e" if stem.endswith("g") else stem  # nous mangeons
    present = tuple((softened if ending == "ons" else stem) + ending for ending in PRESENT_ENDINGS)
    return _irregular(infinitive, " ".join(present), infinitive, stem + "é", english, preposition)


def _irregular(
    infinitive: str,
    present: str,
    future: str,
    participle: str,
    english: str,
    preposition: str = "",
    *,
    moves: bool = False,
) -> Verb:
    """Make a verb of its six present forms, the stem of its future and its past participle."""
    base, third, past, done = english.split()
    return Verb(
        infinitive,
        tuple(present.split()),
        tuple(future + ending for ending in FUTURE_ENDINGS),
        participle,
        English(base, third, past, done, preposition),
        moves,
    )


VISIT = _regular("visiter", "visit visits visited visited")
EAT = _regular("manger", "eat eats ate eaten")
DRINK = _irregular("boire", "bois bois boit buvons buvez boivent", "boir", "bu", "drink drinks drank drunk")
BUY = _irregular(
    "acheter", "achète achètes achète achetons achetez achètent", "achèter", "acheté", "buy buys bought bought"
)
SEE = _irregular("voir", "vois vois voit voyons voyez voient", "verr", "vu", "see sees saw seen")
READ = _irregular("lire", "lis lis lit lisons lisez lisent", "lir", "lu", "read reads read read")
LOVE = _regular("aimer", "love loves loved loved")
WAIT = _irregular(
    "attendre", "attends attends attend attendons attendez attendent", "attendr", "attendu",
    "wait waits waited waited", "for",
)  # fmt: skip
LISTEN = _regular("écouter", "listen listens listened listened", "to")
WORK = _regular("travailler", "work works worked worked")
SLEEP = _irregular("dormir", "dors dors dort dormons dormez dorment", "dormir", "dormi", "sleep sleeps slept slept")
LIVE = _regular("habiter", "live lives lived lived")
GO = _irregular(
    "aller", "vais vas va allons allez vont", "ir", "allé", "go goes went been", "to", moves=True
)  # has often been to Rome: there and back
COME = _irregular(
    "venir", "viens viens vient venons venez viennent", "viendr", "venu", "come comes came come", "from", moves=True
)
TALK = _regular("parler", "talk talks talked talked")
GIVE = _regular("donner", "give gives gave given")

MODALS = (
    Modal(
        ("veux", "veux", "veut", "voulons", "voulez", "veulent"),
        ("want to", "wants to"),
        ("do not want to", "does not want to"),
    ),
    Modal(("peux", "peux", "peut", "pouvons", "pouvez", "peuvent"), ("can", "can"), ("cannot", "cannot")),
    Modal(("dois", "dois", "doit", "devons", "devez", "doivent"), ("must", "must"), ("must not", "must not")),
)  # fmt: skip

# followed by a clause with que
SAYING = (
    (("pense", "penses", "pense", "pensons", "pensez", "pensent"), "think", "thinks"),
    (("dis", "dis", "dit", "disons", "dites", "disent"), "say", "says"),
    (("sais", "sais", "sait", "savons", "savez", "savent"), "know", "knows"),
)


def join(*parts: str) -> str:
    """Join the parts that are not empty with spaces."""
    return " ".join(part for part in parts if part)


def around(verb: str, manner: str, clitic: str = "") -> str:
    """Put `manner` after a conjugated verb, and ne before it if the manner is negative."""
    return join("ne" if manner in NEGATIVE else "", clitic, verb, manner)


def french_verb(verb: Verb, subject: Agreement, tense: Tense, manner: str, clitic: str = "") -> str:
    """Conjugate `verb` for its subject; `manner` is pas, an adverb or nothing, `clitic` an object pronoun."""
    if tense != "past":
        forms = verb.present if tense == "present" else verb.future
        return around(forms[subject.person], manner, clitic)
    auxiliary = (BE["present"] if verb.moves else HAVE)[subject.person]
    return join(around(auxiliary, manner, clitic), verb.participle + (subject.ending() if verb.moves else ""))


def english_verb(verb: English, subject: Agreement, tense: Tense, manner: str) -> str:
    """Conjugate `verb` for its subject; an adverb with the past makes a present perfect: has never seen."""
    third = subject.person == 2
    adverb = ADVERBS.get(manner, "")
    if tense == "future":
        return join("will", "not" if manner == "pas" else adverb, verb.base)
    if manner == "pas":
        return join("did" if tense == "past" else "does" if third else "do", "not", verb.base)
    if tense == "present":
        return join(adverb, verb.third if third else verb.base)
    return join("has" if third else "have", adverb, verb.participle) if adverb else verb.past


def english_be(subject: Agreement, tense: Tense, manner: str) -> str:
    """Conjugate to be, with not or the adverb in its place."""
    adverb = "not" if manner == "pas" else ADVERBS.get(manner, "")
    if tense == "future":
        return join("will", adverb, "be")
    if tense == "past":
        return join("was" if subject.person in {0, 2} else "were", adverb)
    return join(("am", "are", "is", "are", "are", "are")[subject.person], adverb)

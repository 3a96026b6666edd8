"""The words of the French-English demo: names, nouns with the adjectives they go with, places and times."""

from typing import NamedTuple


class Noun(NamedTuple):
    """A noun in both languages and both numbers."""

    singular: str
    plural: str
    gender: str
    english: str
    english_plural: str
    adjectives: tuple[str, ...]


class Adjective(NamedTuple):
    """An adjective: masculine and feminine singular, masculine and feminine plural, and in English."""

    masculine: str
    feminine: str
    masculine_plural: str
    feminine_plural: str
    english: str


class Place(NamedTuple):
    """A country, continent or city: as an object, where something is, and whence someone comes."""

    object: str
    where: str
    whence: str
    english: str


class Time(NamedTuple):
    """When something happens."""

    french: str
    english: str


def _nouns(table: str) -> tuple[Noun, ...]:
    """Read lines of `singular/plural gender english/plural: adjectives`, spaces within English written `_`."""
    nouns = []
    for line in table.strip().splitlines():
        words, adjectives = line.split(":")
        french, gender, english = words.split()
        singular, plural = french.split("/")
        one, many = english.replace("_", " ").split("/")
        nouns.append(Noun(singular, plural, gender, one, many, tuple(adjectives.split())))
    return tuple(nouns)


MEN = ("Paul", "Pierre", "Thomas", "Antoine", "Lucas")
WOMEN = ("Jane", "Marie", "Claire", "Alice", "Sophie")

# Adjectives are listed noun by noun, for some pairs have a meaning of their own: "petit ami", "vieille fille".
PEOPLE = _nouns("""
homme/hommes m man/men: vieux jeune français célèbre
femme/femmes f woman/women: vieux jeune français célèbre
fille/filles f girl/girls: petit jeune français
garçon/garçons m boy/boys: petit jeune français
enfant/enfants m child/children: jeune fatigué malade
professeur/professeurs m teacher/teachers: vieux jeune français
médecin/médecins m doctor/doctors: vieux jeune célèbre
""")
RELATIVES = _nouns("""
ami/amis m friend/friends: vieux français malade
amie/amies f friend/friends: vieux français malade
frère/frères m brother/brothers: petit
sœur/sœurs f sister/sisters: petit
""")
ANIMALS = _nouns("""
chat/chats m cat/cats: petit vieux noir blanc
chien/chiens m dog/dogs: petit grand vieux noir blanc
oiseau/oiseaux m bird/birds: petit beau rouge blanc
""")
FOOD = _nouns("""
pomme/pommes f apple/apples: petit rouge vert
orange/oranges f orange/oranges: petit grand
œuf/œufs m egg/eggs: petit grand blanc
gâteau/gâteaux m cake/cakes: petit grand beau
""")
FOOD_MASS = _nouns("""
pain/pain m bread/bread: blanc noir
fromage/fromage m cheese/cheese: français
soupe/soupe f soup/soup:
viande/viande f meat/meat: rouge blanc
""")
DRINKS = _nouns("""
eau/eau f water/water:
café/café m coffee/coffee: noir
thé/thé m tea/tea: vert noir
lait/lait m milk/milk:
""")
READING = _nouns("""
livre/livres m book/books: petit vieux français intéressant
lettre/lettres f letter/letters: vieux intéressant
histoire/histoires f story/stories: vieux beau intéressant
""")
THINGS = _nouns("""
voiture/voitures f car/cars: petit grand vieux beau rouge vert noir cher
maison/maisons f house/houses: petit grand vieux beau blanc cher
chapeau/chapeaux m hat/hats: petit vieux beau noir rouge cher
robe/robes f dress/dresses: petit beau rouge vert cher
fleur/fleurs f flower/flowers: petit beau rouge blanc
ordinateur/ordinateurs m computer/computers: petit vieux noir cher
""")
VEHICLES = _nouns("""
train/trains m train/trains: petit vieux
avion/avions m plane/planes: petit grand
""")
SONGS = _nouns("""
chanson/chansons f song/songs: vieux beau français
""")
SOUNDS = _nouns("""
musique/musique f music/music: français
""")
SIGHTS = _nouns("""
musée/musées m museum/museums: petit grand vieux intéressant
château/châteaux m castle/castles: petit grand vieux beau célèbre
hôtel/hôtels m hotel/hotels: petit grand vieux beau
""")

# where "à" leads, and what "dans" is said of
VENUES = {
    "le marché": "the market",
    "la gare": "the station",
    "le hôpital": "the hospital",
    "la plage": "the beach",
    "le hôtel": "the hotel",
    "le aéroport": "the airport",
    "le restaurant": "the restaurant",
    "la bibliothèque": "the library",
    "le musée": "the museum",
}
ROOMS = {
    "la cuisine": "the kitchen",
    "le jardin": "the garden",
    "le salon": "the living room",
    "la chambre": "the bedroom",
}

ADJECTIVES = {
    adjective.masculine: adjective
    for adjective in (
        Adjective("petit", "petite", "petits", "petites", "little"),
        Adjective("grand", "grande", "grands", "grandes", "big"),
        Adjective("vieux", "vieille", "vieux", "vieilles", "old"),
        Adjective("beau", "belle", "beaux", "belles", "beautiful"),
        Adjective("jeune", "jeune", "jeunes", "jeunes", "young"),
        Adjective("français", "française", "français", "françaises", "French"),
        Adjective("célèbre", "célèbre", "célèbres", "célèbres", "famous"),
        Adjective("noir", "noire", "noirs", "noires", "black"),
        Adjective("blanc", "blanche", "blancs", "blanches", "white"),
        Adjective("rouge", "rouge", "rouges", "rouges", "red"),
        Adjective("vert", "verte", "verts", "vertes", "green"),
        Adjective("cher", "chère", "chers", "chères", "expensive"),
        Adjective("intéressant", "intéressante", "intéressants", "intéressantes", "interesting"),
        Adjective("content", "contente", "contents", "contentes", "happy"),
        Adjective("fatigué", "fatiguée", "fatigués", "fatiguées", "tired"),
        Adjective("malade", "malade", "malades", "malades", "sick"),
    )
}
BEFORE_NOUN = frozenset({"petit", "grand", "vieux", "beau", "jeune"})
BEFORE_VOWEL = {"beau": "bel", "vieux": "vieil"}
MOODS = ("content", "fatigué", "malade")

_FEMININE = {
    "Afrique": "Africa",
    "Europe": "Europe",
    "France": "France",
    "Italie": "Italy",
    "Espagne": "Spain",
    "Chine": "China",
    "Hongrie": "Hungary",
}
_MASCULINE = {"Japon": "Japan", "Canada": "Canada", "Brésil": "Brazil", "Portugal": "Portugal"}
_PLURAL = {"États-Unis": "the United States", "Pays-Bas": "the Netherlands"}
_CITIES = {"Paris": "Paris", "Londres": "London", "Rome": "Rome", "Athènes": "Athens", "Tokyo": "Tokyo"}

COUNTRIES = (
    *(Place(f"la {french}", f"en {french}", f"de {french}", english) for french, english in _FEMININE.items()),
    *(Place(f"le {french}", f"à le {french}", f"de le {french}", english) for french, english in _MASCULINE.items()),
    *(Place(f"les {french}", f"à les {french}", f"de les {french}", english) for french, english in _PLURAL.items()),
)
CITIES = tuple(Place(french, f"à {french}", f"de {french}", english) for french, english in _CITIES.items())

_MONTHS = {
    "janvier": "January",
    "février": "February",
    "mars": "March",
    "avril": "April",
    "mai": "May",
    "juin": "June",
    "juillet": "July",
    "août": "August",
    "septembre": "September",
    "octobre": "October",
    "novembre": "November",
    "décembre": "December",
}
_DAYS = {
    "lundi": "Monday",
    "mardi": "Tuesday",
    "mercredi": "Wednesday",
    "jeudi": "Thursday",
    "vendredi": "Friday",
    "samedi": "Saturday",
    "dimanche": "Sunday",
}
_HOURS = {"deux": "two", "trois": "three", "cinq": "five", "six": "six", "sept": "seven", "huit": "eight"}

MONTHS = tuple(Time(f"en {french}", f"in {english}") for french, english in _MONTHS.items())
CLOCK = (
    *(Time(f"à {french} heures", f"at {english} o'clock") for french, english in _HOURS.items()),
    Time("à midi", "at noon"),
    Time("à minuit", "at midnight"),
)
HABITS = (
    *(Time(f"le {french}", f"on {english}s") for french, english in _DAYS.items()),
    Time("le matin", "in the morning"),
    Time("le soir", "in the evening"),
)
TODAY = (Time("aujourd'hui", "today"),)
PAST = (
    Time("hier", "yesterday"),
    Time("hier soir", "yesterday evening"),
    *(Time(f"{french} dernier", f"last {english}") for french, english in _DAYS.items()),
    Time("la semaine dernière", "last week"),
    Time("la année dernière", "last year"),
)
FUTURE = (
    Time("demain", "tomorrow"),
    Time("demain soir", "tomorrow evening"),
    *(Time(f"{french} prochain", f"next {english}") for french, english in _DAYS.items()),
    Time("la semaine prochaine", "next week"),
    Time("la année prochaine", "next year"),
)

import re
from random import Random

import pytest

from headway.data.demos import DEMOS, phrases
from headway.data.demos.clauses import LONGEST, SHORTEST, draw
from headway.data.demos.french import spell
from headway.data.demos.lexicon import ADJECTIVES, MONTHS, PEOPLE, RELATIVES, THINGS
from headway.data.demos.noun_phrases import COUPLES, NAMES, PRONOUNS, Phrase, agree, count_phrases
from headway.data.demos.predicates import OBJECTS, STATES
from headway.data.demos.verbs import (
    BE,
    BUY,
    COME,
    DRINK,
    EAT,
    GO,
    LIVE,
    LOVE,
    READ,
    SEE,
    VISIT,
    WAIT,
    Verb,
    english_be,
    english_verb,
    french_verb,
)

JANE = ("Jane visite l'Afrique en septembre", "Jane visits Africa in September")


@pytest.fixture(scope="module")
def demo():
    return phrases(train=20_000)


@pytest.fixture(scope="module")
def drawn():
    random = Random(7)
    return [draw(random) for _ in range(15_000)]


def who(french: str, *, feminine: bool | None = None, plural: bool | None = None) -> Phrase:
    for phrase in (*PRONOUNS, *NAMES, *COUPLES):
        agreement = phrase.agreement
        if phrase.french == french and feminine in (None, agreement.feminine) and plural in (None, agreement.plural):
            return phrase
    raise AssertionError(french)


def said(subject: Phrase, verb: Verb, tense: str, manner: str, french: str, english: str, clitic: str = ""):
    sentence = f"{subject.french} {french_verb(verb, subject.agreement, tense, manner, clitic)} {french}"
    return (
        spell(sentence.strip()),
        f"{subject.english} {english_verb(verb.english, subject.agreement, tense, manner)} {english}",
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (said(who("Jane"), VISIT, "present", "", "la Afrique en septembre", "Africa in September"), JANE),
        (said(who("je"), LOVE, "present", "", "le Japon", "Japan"), ("J'aime le Japon", "I love Japan")),
        (
            said(who("je"), LIVE, "present", "pas", "à les États-Unis", "in the United States"),
            ("Je n'habite pas aux États-Unis", "I do not live in the United States"),
        ),
        (said(who("nous"), EAT, "present", "", "du pain", "bread"), ("Nous mangeons du pain", "we eat bread")),
        (
            said(who("elle"), GO, "past", "", "à le Canada", "to Canada"),
            ("Elle est allée au Canada", "she went to Canada"),
        ),
        (
            said(who("elles"), GO, "past", "jamais", "à le hôpital", "to the hospital"),
            ("Elles ne sont jamais allées à l'hôpital", "they have never been to the hospital"),
        ),
        (
            said(who("vous", feminine=True, plural=False), COME, "past", "", "de Athènes", "from Athens"),
            ("Vous êtes venue d'Athènes", "you came from Athens"),
        ),
        (
            said(who("Jane et Paul"), COME, "past", "", "de les Pays-Bas", "from the Netherlands"),
            ("Jane et Paul sont venus des Pays-Bas", "Jane and Paul came from the Netherlands"),
        ),
        (
            said(who("Jane et Marie"), GO, "past", "", "en Hongrie", "to Hungary"),
            ("Jane et Marie sont allées en Hongrie", "Jane and Marie went to Hungary"),
        ),
        (
            said(who("il"), LOVE, "present", "plus", "la Hongrie", "Hungary"),
            ("Il n'aime plus la Hongrie", "he no longer loves Hungary"),
        ),
        (
            said(who("tu"), DRINK, "past", "pas", "de eau", "water"),
            ("Tu n'as pas bu d'eau", "you did not drink water"),
        ),
        (
            said(who("Paul"), BUY, "future", "", "le ordinateur", "the computer"),
            ("Paul achètera l'ordinateur", "Paul will buy the computer"),
        ),
        (
            said(who("ils"), SEE, "future", "pas", "le chat", "the cat"),
            ("Ils ne verront pas le chat", "they will not see the cat"),
        ),
        (
            said(who("Alice"), READ, "past", "souvent", "la histoire", "the story"),
            ("Alice a souvent lu l'histoire", "Alice has often read the story"),
        ),
        (
            said(who("Paul"), WAIT, "present", "pas", "", "for me", clitic="me"),
            ("Paul ne m'attend pas", "Paul does not wait for me"),
        ),
        (
            said(who("Claire"), SEE, "future", "", "demain", "us tomorrow", clitic="nous"),
            ("Claire nous verra demain", "Claire will see us tomorrow"),
        ),
        (said(who("vous"), GO, "future", "", "à Rome", "to Rome"), ("Vous irez à Rome", "you will go to Rome")),
        (
            said(who("nous"), BUY, "present", "parfois", "des fleurs", "flowers"),
            ("Nous achetons parfois des fleurs", "we sometimes buy flowers"),
        ),
    ],
)
def test_verbs_agree_elide_and_negate_as_both_languages_want(given, expected):
    assert given == expected


@pytest.mark.parametrize(
    ("noun", "french", "english"),
    [
        ("homme", "le vieil homme", "the old man"),
        ("homme", "un vieil homme français", "an old French man"),
        ("homme", "cet homme", "this man"),
        ("homme", "ce jeune homme", "this young man"),
        ("homme", "les vieux hommes", "the old men"),
        ("femme", "une vieille femme", "an old woman"),
        ("enfant", "ces enfants malades", "these sick children"),
        ("amie", "mon amie", "my friend"),
        ("amie", "ma vieille amie", "my old friend"),
        ("amie", "tes vieilles amies françaises", "your old French friends"),
        ("sœur", "notre petite sœur", "our little sister"),
        ("robe", "deux belles robes vertes", "two beautiful green dresses"),
        ("chapeau", "mes beaux chapeaux noirs", "my beautiful black hats"),
        ("maison", "cette grande maison blanche", "this big white house"),
        ("voiture", "une voiture chère", "an expensive car"),
        ("ordinateur", "des ordinateurs chers", "expensive computers"),
    ],
)
def test_determiners_and_adjectives_agree_with_their_noun(noun, french, english):
    nouns = {each.singular: each for each in (*PEOPLE, *RELATIVES, *THINGS)}
    made = count_phrases(nouns[noun], ("the", "a", "this", "my", "your", "our", "some", "two"))
    assert {phrase.french: phrase.english for phrase in made}[french] == english


@pytest.mark.parametrize(
    ("words", "french"),
    [
        ("je ne y vais pas", "Je n'y vais pas"),
        ("il sait que elle est à le hôtel", "Il sait qu'elle est à l'hôtel"),
        ("il parle de le musée", "Il parle du musée"),
        ("il parle de le hôtel", "Il parle de l'hôtel"),
        ("il parle de un œuf", "Il parle d'un œuf"),
        ("il parle à les enfants de la Hongrie", "Il parle aux enfants de la Hongrie"),
        ("à huit heures, il voit le œuf", "À huit heures, il voit l'œuf"),
    ],
)
def test_words_elide_before_vowels_and_mute_h_and_contract_otherwise(words, french):
    assert spell(words) == french


@pytest.mark.parametrize(
    ("subject", "tense", "manner", "french", "english"),
    [
        (who("je", feminine=True), "present", "pas", "ne suis pas contente", "am not happy"),
        (who("nous", feminine=False), "past", "jamais", "n'étions jamais contents", "were never happy"),
        (who("Jane"), "future", "plus", "ne sera plus contente", "will no longer be happy"),
        (who("ils"), "present", "souvent", "sont souvent contents", "are often happy"),
    ],
)
def test_being_agrees_in_verb_and_adjective(subject, tense, manner, french, english):
    adjective, agreement = ADJECTIVES["content"], subject.agreement
    form = agree(adjective, feminine=agreement.feminine, plural=agreement.plural)
    ne = "ne " if manner in {"pas", "jamais", "plus"} else ""
    assert spell(f"{ne}{BE[tense][agreement.person]} {manner} {form}").lower() == french
    assert f"{english_be(agreement, tense, manner)} {adjective.english}" == english


def test_english_is_a_function_of_french(drawn):
    english: dict[str, str] = {}
    for pair in drawn:
        assert english.setdefault(pair.source, pair.target) == pair.target


def test_every_sentence_keeps_its_length_and_has_no_full_stop(drawn):
    for text in (text for pair in drawn for text in pair):
        assert SHORTEST <= len(text.replace("'", " ").split()) <= LONGEST
        assert text[0].isupper() and text[-1].isalnum() and "  " not in text


def test_no_sentence_misses_an_elision_or_a_contraction(drawn):
    missed = re.compile(r"\b(je|ne|me|te|le|la|de|que) ([aeiouyéêàâœ]|h(?!ongrie))|\b(de|à) les?\b", re.IGNORECASE)
    assert not [pair.source for pair in drawn if missed.search(pair.source)]


def test_past_and_future_times_keep_to_their_tense(drawn):
    for _, english in drawn:
        words = english.lower().split()
        if "yesterday" in words or "last" in words:
            assert "will" not in words or "that" in words
        if "tomorrow" in words or "next" in words:
            assert {"will", "can", "cannot", "must", "want", "wants"} & set(words)


def test_there_are_far_more_than_a_hundred_thousand_sentences():
    of_paul = {
        spell(f"Paul {french_verb(verb, who('Paul').agreement, 'present', '')} {phrase.french} en mai")
        for verb in set(OBJECTS) - set(STATES)
        for phrases_of_noun in OBJECTS[verb]
        for phrase in phrases_of_noun
        if phrase not in NAMES
    }
    tenses = 3
    assert len(of_paul) * len(NAMES) * len(MONTHS) * tenses > 400_000


def test_every_word_of_the_test_sentences_is_seen_in_train(demo):
    seen = {word for pair in demo.train for word in f"{pair.source} {pair.target}".replace("'", " ").split()}
    unseen = {word for pair in demo.test for word in f"{pair.source} {pair.target}".replace("'", " ").split()} - seen
    assert not unseen


def test_jane_is_held_out_and_part_of_no_other_sentence(demo):
    assert demo.example == JANE[0]
    assert demo.test[0] == JANE
    assert not any(JANE[0] in pair.source for pair in demo.train + demo.valid + demo.test[1:])
    assert all(phrases(train=100, valid=10, test=10, seed=seed).test[0] == JANE for seed in range(3))


def test_the_word_for_word_baseline_knows_words_but_not_grammar(demo):
    right = sum(demo.baseline(pair.source) == pair.target for pair in demo.test)
    assert 0 < right < 0.2 * len(demo.test)
    assert "September" in demo.baseline(JANE[0])


def test_phrases_are_among_the_demos():
    assert DEMOS["phrases"] is phrases

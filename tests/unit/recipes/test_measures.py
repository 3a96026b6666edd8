import pytest
from measures import BASELINES, MEASURES, Material, typing_errors
from tasks import Sample

NOTHING = Material([], Sample([], []))


def scores(measure, outputs, references, material=NOTHING):
    sample = Sample([""] * len(outputs), references)
    return MEASURES[measure]([[each] if isinstance(each, str) else each for each in outputs], sample, material)


def test_a_word_is_right_if_it_equals_any_of_its_pronunciations():
    found = scores("phonemes", ["K AE T", "AA B", "D AO"], [("K AE T",), ("AE B", "AA B"), ("D AO G",)])
    assert found["word error rate"] == pytest.approx(100 / 3)
    assert found["phoneme error rate"] == pytest.approx(100 * 1 / 8)


def test_the_first_output_in_the_dictionary_counts_with_the_dictionary():
    material = Material([], Sample([], []), frozenset({"about", "above"}))
    outputs = [["abuot", "about"], ["above", "about"], ["xyz", "abc"]]
    found = scores("spelling", outputs, [("about",), ("about",), ("xyz",)], material)
    assert found == pytest.approx({"exact match": 100 / 3, "exact match with the dictionary": 200 / 3})


def test_the_two_kinds_of_bleu_split_words_differently():
    outputs, references = ["a b c d e."], [("a b c d e .",)]
    assert scores("BLEU", outputs, references)["BLEU"] == pytest.approx(100)
    assert scores("tokenised BLEU", outputs, references)["BLEU"] < 90


def test_letters_become_their_usual_phonemes():
    training = [("c a t", "K AE T"), ("c a r", "K AA R"), ("a t", "AE T"), ("o u g h", "AO")]
    answer = BASELINES["letters"](Material(training, Sample([], [])))
    assert answer(["t a c", "h a t"]) == ["T AE K", "AE T"]


def test_the_nearest_word_takes_the_fewest_edits_with_a_swap_as_one():
    assert (typing_errors("abuot", "about"), typing_errors("kitten", "sitting"), typing_errors("", "ab")) == (1, 3, 2)
    answer = BASELINES["nearest word"](Material([], Sample([], []), frozenset({"about", "abbey", "tree"})))
    assert answer(["abuot", "treee", "zzzzzz"]) == ["about", "tree", "zzzzzz"]


def test_the_lemma_is_what_stands_behind_the_features():
    assert BASELINES["lemma"](NOTHING)(["+V +2 +- g e h e n"]) == ["g e h e n"]


def test_a_command_of_the_same_words_answers_for_another():
    answer = BASELINES["same words"](Material([("walk and run", "W R")], Sample([], [])))
    assert answer(["run and walk", "jump"]) == ["W R", ""]


def test_the_number_of_first_words_is_chosen_on_the_validation_set():
    validation = Sample(["gas prices rise again", "new lease today sir"], [("gas prices",), ("new lease",)])
    assert BASELINES["first words"](Material([], validation))(["one two three"]) == ["one two"]

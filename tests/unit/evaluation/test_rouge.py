import pytest

from headway.errors import DataError
from headway.evaluation import rouge


def test_an_output_that_is_its_reference_has_everything_in_common():
    assert rouge(["Meeting on Friday"], ["meeting on friday!"]) == pytest.approx(
        {"ROUGE-1": 100, "ROUGE-2": 100, "ROUGE-L": 100}
    )


def test_words_pairs_and_order_are_counted_by_hand():
    found = rouge(["the cat the dog"], ["the dog saw the cat"])
    assert found["ROUGE-1"] == pytest.approx(100 * 2 * 4 / (4 + 5))
    assert found["ROUGE-2"] == pytest.approx(100 * 2 * 2 / (3 + 4))  # the cat, the dog
    assert found["ROUGE-L"] == pytest.approx(100 * 2 * 2 / (4 + 5))  # the ... cat


def test_a_repeated_word_counts_as_often_as_the_reference_has_it():
    assert rouge(["gas gas gas"], ["gas"])["ROUGE-1"] == pytest.approx(100 * 2 * 1 / (3 + 1))


def test_the_best_of_several_references_counts_for_each_measure():
    found = rouge(["gas prices"], [["prices of gas"], ["gas prices rise"]])
    assert found["ROUGE-2"] == pytest.approx(100 * 2 * 1 / (1 + 2))


def test_it_is_the_mean_over_all_outputs_empty_ones_among_them():
    assert rouge(["a b", ""], ["a b", "c"])["ROUGE-L"] == pytest.approx(50)


def test_unequal_numbers_are_refused():
    with pytest.raises(DataError, match="1 outputs but 2 lines"):
        rouge(["a"], ["a", "b"])

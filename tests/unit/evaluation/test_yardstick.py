import pytest

from headway.errors import DataError
from headway.evaluation import Yardstick, score

REFERENCES = ["ein Hund läuft durch den Park .", "zwei Frauen reden ."]
OUTPUTS = ["ein Hund rennt durch den Park .", "zwei Männer reden ."]


def test_it_gives_the_headline_figures_of_the_score_card_every_time():
    yardstick, card = Yardstick(REFERENCES), score(OUTPUTS, REFERENCES)
    assert yardstick(REFERENCES) == pytest.approx({"bleu": 100, "chrf": 100})
    for _ in range(2):
        assert yardstick(OUTPUTS) == pytest.approx({"bleu": card["BLEU"].value, "chrf": card["chrF"].value})


def test_only_what_is_asked_for_is_measured():
    assert Yardstick(REFERENCES, ("bleu",))(OUTPUTS).keys() == {"bleu"}


def test_unequal_numbers_are_refused():
    with pytest.raises(DataError, match="1 outputs but 2 lines"):
        Yardstick(REFERENCES)(OUTPUTS[:1])

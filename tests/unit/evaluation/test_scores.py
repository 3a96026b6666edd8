import json

import pytest
import sacrebleu

from headway.errors import DataError
from headway.evaluation import score

OUTPUTS = ["The cat sat on the mat , today .", "a Dog barks at the old man", "nothing in common here at all"]
REFERENCES = ["The cat sat on the mat, today.", "A dog barks at the old man", "quite another thing was meant there"]
OTHERS = ["The cat was on the mat today.", "a Dog barks at the old man", "a third one"]


def test_the_values_are_sacrebleus_own():
    card = score(OUTPUTS, REFERENCES, tokenized=True)
    assert card["BLEU"].value == sacrebleu.corpus_bleu(OUTPUTS, [REFERENCES]).score
    assert card["BLEU lower-cased"].value == sacrebleu.corpus_bleu(OUTPUTS, [REFERENCES], lowercase=True).score
    assert card["BLEU tokenised"].value == sacrebleu.corpus_bleu(OUTPUTS, [REFERENCES], tokenize="none").score
    lowered = sacrebleu.corpus_bleu(OUTPUTS, [REFERENCES], tokenize="none", lowercase=True).score
    assert card["BLEU tokenised lower-cased"].value == lowered
    assert card["chrF"].value == sacrebleu.corpus_chrf(OUTPUTS, [REFERENCES]).score
    assert card["chrF++"].value == sacrebleu.corpus_chrf(OUTPUTS, [REFERENCES], word_order=2).score
    assert len({found.value for found in card.scores}) == len(card.scores)


def test_each_signature_names_what_sets_it_apart():
    card = score(OUTPUTS, REFERENCES, tokenized=True)
    expected = {
        "BLEU tokenised": {"case:mixed", "tok:none"},
        "BLEU tokenised lower-cased": {"case:lc", "tok:none"},
        "BLEU": {"case:mixed", "tok:13a"},
        "BLEU lower-cased": {"case:lc", "tok:13a"},
        "chrF": {"nc:6", "nw:0"},
        "chrF++": {"nc:6", "nw:2"},
    }
    assert [found.name for found in card.scores] == list(expected)
    for name, fields in expected.items():
        assert fields | {"nrefs:1", f"version:{sacrebleu.__version__}"} <= set(card[name].signature.split("|"))


def test_every_variant_stands_side_by_side_and_the_fitting_one_first():
    usual = ["BLEU", "BLEU lower-cased"]
    split = ["BLEU tokenised", "BLEU tokenised lower-cased"]
    rest = ["chrF", "chrF++"]
    assert [each.name for each in score(OUTPUTS, REFERENCES).scores] == [*usual, *split, *rest]
    assert [each.name for each in score(OUTPUTS, REFERENCES, tokenized=True).scores] == [*split, *usual, *rest]


def test_several_reference_lists_count_together():
    card = score(OUTPUTS, [REFERENCES, OTHERS])
    assert card["BLEU"].value == sacrebleu.corpus_bleu(OUTPUTS, [REFERENCES, OTHERS]).score
    assert "nrefs:2" in card["BLEU"].signature
    assert card.exact == pytest.approx(100 / 3)
    assert score(OUTPUTS, REFERENCES).exact == 0.0


def test_unequal_counts_are_refused_with_both_numbers():
    with pytest.raises(DataError, match=r"3 outputs but 2 lines in the references"):
        score(OUTPUTS, REFERENCES[:2])
    with pytest.raises(DataError, match=r"3 outputs but 1 lines in reference list 2"):
        score(OUTPUTS, [REFERENCES, OTHERS[:1]])
    with pytest.raises(DataError, match="no outputs"):
        score([], [])


def test_empty_outputs_score_zero():
    card = score(["", ""], ["a b", "c d"])
    assert [found.value for found in card.scores] == [0.0] * 6


def test_the_card_is_json_and_an_aligned_table():
    card = score(OUTPUTS, REFERENCES)
    tree = json.loads(json.dumps(card.to_json()))
    assert tree["sentences"] == 3
    assert tree["scores"][0]["signature"] == card["BLEU"].signature
    lines = card.lines()
    assert len(lines) == 7
    assert len({line.index(".", 12) for line in lines}) == 1
    assert f"{card['BLEU'].value:.2f}  {card['BLEU'].signature}" in lines[0]


def test_text_that_looks_tokenised_is_remarked_on_once_and_nothing_is_logged(caplog, capsys):
    outputs = ["a b c ."] * 150
    assert "looks tokenised" in score(outputs, outputs).notes[0]
    assert score(outputs, outputs, tokenized=True).notes == ()
    assert score(OUTPUTS, REFERENCES).notes == ()
    assert not caplog.records
    assert capsys.readouterr() == ("", "")

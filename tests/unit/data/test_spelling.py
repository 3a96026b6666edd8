import pytest

from headway.data.config import DataConfig
from headway.data.pairs import Pair
from headway.data.preparation import divide
from headway.data.spelling import EXAMINED, MOST_CHARACTERS, Spelling


def alphabet(*pairs):
    found = Spelling()
    for pair in pairs:
        found.add(Pair(*pair))
    return found.alphabet


@pytest.mark.parametrize(
    "pair",
    [
        ("rotaions", "rotations"),
        ("aandblom", "ɑ n t b l ɑ m"),  # pronunciation
        ("ɑ n t b l ɑ m", "aandblom"),
        ("gehen V;PST;3", "ging"),  # inflection
        ("", "Willemijn"),  # names alone
    ],
)
def test_words_have_an_alphabet(pair):
    assert alphabet(pair) == len(set("".join(pair)))


@pytest.mark.parametrize(
    "pair",
    [
        ("der Hund schläft", "the dog sleeps"),
        ("how far is it to Denver ?", "NUM"),  # a class for a sentence
        ("h e l l o", "HH AH L OW"),  # letters stand apart already
        ("我昨天在圖書館看書", "I read in the library yesterday"),
        ("ฉันอ่านหนังสือในห้องสมุดเมื่อวานนี้", "ຂ້ອຍອ່ານປຶ້ມຢູ່ຫ້ອງສະໝຸດມື້ວານນີ້"),  # no spaces, but long
        ("", "a line of text"),
    ],
)
def test_sentences_have_none(pair):
    assert alphabet(pair) is None


def test_more_characters_than_an_alphabet_has_are_words_or_sentences_of_chinese():
    pairs = [(chr(0x4E00 + 2 * place), chr(0x4E01 + 2 * place)) for place in range(MOST_CHARACTERS)]
    assert alphabet(*pairs) is None and alphabet(*pairs[:100]) == 200


def test_lines_are_judged_on_average_by_the_first_of_them():
    words, sentence = [("a", "b")], [("a b c d e f", "a b c d e f")]
    assert alphabet(*words * 9, *sentence) == 7 and alphabet(*words, *sentence) is None
    assert alphabet(*words * EXAMINED, *sentence * EXAMINED) == 2
    assert alphabet() is None


def test_a_corpus_that_is_divided_says_whether_it_is_of_words(tmp_path):
    for name, line in (("words", "gtr\tgetter\n"), ("sentences", "ein Hund bellt laut\ta dog barks loudly\n")):
        (tmp_path / f"{name}.tsv").write_text(line * 40, encoding="utf-8")
    found = [divide(DataConfig(source=tmp_path / f"{name}.tsv"), lambda *_: None) for name in ("words", "sentences")]
    assert [split.alphabet for split in found] == [4, None]

import pytest

from headway.data.config import DataConfig
from headway.data.pairs import Pair
from headway.data.preparation import divide
from headway.data.spelling import FIRST, MOST_CHARACTERS, MOST_WORDS, THEN, Spelling


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
        ("", "ฉันอ่านหนังสือในห้องสมุดเมื่อวานนี้"),  # a text alone
        ("NUM", "ฉันอ่านหนังสือในห้องสมุดเมื่อวานนี้และวันนี้ด้วยเช่นกันครับ"),
    ],
)
def test_sentences_have_none(pair):
    assert alphabet(pair) is None


def test_more_characters_than_an_alphabet_has_are_words_or_sentences_of_chinese():
    pairs = [(chr(0x4E00 + 2 * place), chr(0x4E01 + 2 * place)) for place in range(MOST_CHARACTERS)]
    assert alphabet(*pairs) is None and alphabet(*pairs[:100]) == 200


def test_lines_are_judged_on_average():
    words, sentence = [("a", "b")], [("a b c d e f", "a b c d e f")]
    assert alphabet(*words * 9, *sentence) == 7 and alphabet(*words, *sentence) is None
    assert alphabet() is None


def test_words_before_sentences_do_not_hide_them():
    words, sentence = [("a", "b")], [("a b c d e f", "a b c d e f")]
    assert alphabet(*words * 2 * FIRST, *sentence * THEN * FIRST) is None
    assert alphabet(*words * FIRST, *sentence) == 7


def test_every_corpus_must_be_of_words():
    found = Spelling()
    for place, line in enumerate(["word", "word"]):
        found.add(Pair(line, line, corpus=place))
    assert found.alphabet == 4
    found.add(Pair("a sentence of words", "a sentence of words", corpus=2))
    assert found.alphabet is None


def test_the_bytes_of_different_words_are_counted_where_these_are_few():
    found = Spelling()
    for _ in range(3):
        found.add(Pair("h é l l o", "HH AH L OW"))
    assert found.word_bytes == len("heelo") + len("HHAHLOW")
    found.add(Pair(" ".join(map(str, range(MOST_WORDS + 1))), ""))
    assert found.word_bytes is None


def test_a_corpus_that_is_divided_says_whether_it_is_of_words(tmp_path):
    for name, line in (("words", "gtr\tgetter\n"), ("sentences", "ein Hund bellt laut\ta dog barks loudly\n")):
        (tmp_path / f"{name}.tsv").write_text(line * 40, encoding="utf-8")
    found = [divide(DataConfig(source=tmp_path / f"{name}.tsv"), lambda *_: None) for name in ("words", "sentences")]
    assert [split.alphabet for split in found] == [4, None]

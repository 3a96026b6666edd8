"""Where a text may be divided."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.passages import joined, passages, sentences


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It rains. It pours! Does it? Yes…", ["It rains.", "It pours!", "Does it?", "Yes…"]),
        ('He said: "Stop!" Then he ran. "Why?" she asked.', ['He said: "Stop!"', "Then he ran.", '"Why?" she asked.']),
        ("Mr. Smith met Dr. J. R. Jones vs. the U.S. team.", ["Mr. Smith met Dr. J. R. Jones vs. the U.S. team."]),
        ("See fig. 3 and No. 5. I said no. Then I left.", ["See fig. 3 and No. 5.", "I said no.", "Then I left."]),
        ("It costs 3.50 at example.com. Cheap!", ["It costs 3.50 at example.com.", "Cheap!"]),
        ("Am 3. Juli war er da. Er blieb z. B. bis 1999. Dann ging er.",
         ["Am 3. Juli war er da.", "Er blieb z. B. bis 1999.", "Dann ging er."]),
        ("1. Einleitung. 2. Schluss.", ["1. Einleitung.", "2. Schluss."]),
        ("M. Dupont et Mme. Curie y sont. Il y a… quoi ? Rien.",
         ["M. Dupont et Mme. Curie y sont.", "Il y a… quoi ?", "Rien."]),
        ("¿Qué pasa, Sra. Gil? ¡Nada!", ["¿Qué pasa, Sra. Gil?", "¡Nada!"]),
        ("Wait ... what? Well... Perhaps.", ["Wait ... what?", "Well...", "Perhaps."]),
        ("今日は雨です。「行く？」と言った。はい！", ["今日は雨です。", "「行く？」", "と言った。", "はい！"]),
        ("「はい。。」", ["「はい。。」"]),
        ("यह सच है। वह गया।", ["यह सच है।", "वह गया।"]),
        ("(It is I.) So be it.", ["(It is I.)", "So be it."]),
        ("no end", ["no end"]),
        ("A title\n \nwith a text\nin lines. no\n\nend", ["A title", "with a text\nin lines. no", "end"]),
    ],
)  # fmt: skip
def test_sentences_end_where_a_reader_would_say(text, found):
    assert sentences(text)[1::2] == found


@settings(deadline=None)
@given(st.text(alphabet="aB .!?。\t\n\u00a0\"'3,"))
def test_sentences_and_gaps_are_the_text_again(text):
    turns = sentences(text)
    assert "".join(turns) == text
    assert not any(gap.strip() for gap in turns[::2])
    assert all(sentence == sentence.strip() != "" for sentence in turns[1::2])


def test_outputs_are_joined_as_the_source_was():
    assert joined(["  ", " \t", ""], ["one.", "two."]) == "  one. \ttwo."
    assert joined(["", "", ""], ["one.", "two."]) == "one. two."
    assert joined(["", "", ""], ["一。", "二。"]) == "一。二。"
    assert joined(["", "\n\n", "\n"], ["one", "two."]) == "one\n\ntwo.\n"


def words(texts):
    return [len(text.split()) for text in texts]


@pytest.mark.parametrize(
    ("text", "room", "found"),
    [
        ("One two three. Four five. Six.", 5, ["One two three. Four five.", "Six."]),
        ("one two three . four five . six .", 7, ["one two three . four five .", "six ."]),
        ("One two, three four; five six: seven.", 4, ["One two, three four;", "five six: seven."]),
        ("One two three four five", 2, ["One two", "three four", "five"]),
        ("Short. One two, three four. Short.", 2, ["Short.", "One two,", "three four.", "Short."]),
        ("fits as it is", 9, ["fits as it is"]),
        (" ", 1, []),
    ],
)
def test_passages_are_as_long_as_they_can_be_and_end_at_the_best_place(text, room, found):
    assert passages(text, words, room) == found


def test_a_word_that_does_not_fit_is_cut_anywhere():
    assert passages("abcdefgh", lambda texts: [len(text) for text in texts], 3) == ["ab", "cd", "ef", "gh"]


@settings(deadline=None)
@given(st.text(alphabet="ab .,。 ", max_size=200), st.integers(1, 9))
def test_every_passage_fits_and_no_letter_is_lost(text, room):
    found = passages(text, lambda texts: [len(each) for each in texts], room)
    assert all(len(passage) <= room for passage in found)
    assert "".join("".join(found).split()) == "".join(text.split())


def test_a_line_of_a_megabyte_is_cut_in_linear_time():
    asked = []

    def sizes(texts):
        asked.append(sum(map(len, texts)))
        return words(texts)

    text = "one two three, four. " * 50_000
    assert len(passages(text, sizes, 100)) == 2000
    assert sum(asked) < 5 * len(text)


@pytest.mark.parametrize("unit", [".", "A. B. C. ", " ", "\n ", "。", "!)", "a,)", "3. ", "x"], ids=repr)
def test_a_long_line_takes_time_that_grows_as_it_does(unit):
    def taken(length):
        text, began = f"a{unit * (length // len(unit))}", time.process_time()
        for each in (text, f"{text}b"):
            assert "".join(sentences(each)) == each
            passages(each, lambda texts: [len(part) for part in texts], 1000)
        return time.process_time() - began

    shorter = min(taken(12_500) for _ in range(3))
    assert min(taken(100_000) for _ in range(2)) < 32 * shorter  # eight times as long, not 64 times

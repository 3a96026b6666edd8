import gzip
import tracemalloc

import numpy as np
import pytest

from headway.data.text import LONGEST_LINE
from headway.data.vectors import read_vectors
from headway.errors import DataError


@pytest.fixture
def vectors_in(tmp_path):
    def read(content: bytes, *wanted: str, name: str = "vectors.txt"):
        path = tmp_path / name
        path.write_bytes(content)
        return read_vectors(path, wanted)

    return read


def binary(entries, width, *, end=b"", count=None):
    content = f"{len(entries) if count is None else count} {width}\n".encode()
    for word, values in entries.items():
        content += word.encode() + b" " + np.array(values, "<f4").tobytes() + end
    return content


@pytest.mark.parametrize(
    "content",
    [
        b"one 1 2\ntwo 3.5 -4e0\n",
        b"2 2\none 1 2\ntwo 3.5 -4\n",
        b"2 2\none 1 2 \ntwo 3.5 -4 \n",
        b"2 2\r\none 1 2\r\ntwo 3.5 -4",
        b"\xef\xbb\xbfone 1 2\ntwo 3.5 -4\n",
        gzip.compress(b"one 1 2\ntwo 3.5 -4\n", mtime=0),
        binary({"one": [1, 2], "two": [3.5, -4]}, 2),
        binary({"one": [1, 2], "two": [3.5, -4]}, 2, end=b"\n"),
        gzip.compress(binary({"one": [1, 2], "two": [3.5, -4]}, 2), mtime=0),
    ],
)
def test_every_format_is_told_by_its_content_and_only_wanted_words_are_kept(vectors_in, content):
    vectors, width = vectors_in(content, "two", "three")
    assert width == 2
    assert list(vectors) == ["two"]
    assert vectors["two"].dtype == np.float32
    assert vectors["two"].tolist() == [3.5, -4.0]
    assert vectors["two"].flags.owndata


def test_binary_values_that_look_like_line_ends_and_spaces_are_values(vectors_in):
    odd = np.frombuffer(b"\n\n\n\x20\x20\x20\x20\n\x00\x00\x80\x3f", "<f4")
    vectors, _ = vectors_in(binary({"a": [0.1, 0.2, 0.3], "b": odd, "c": odd}, 3), "b", "c")
    assert np.array_equal(vectors["b"], odd)
    assert np.array_equal(vectors["c"], odd)


def test_random_binary_vectors_come_back_to_the_bit(vectors_in):
    generator = np.random.default_rng(7)
    entries = {f"wörd{number}": generator.normal(size=50).astype(np.float32) for number in range(300)}
    vectors, width = vectors_in(binary(entries, 50), *entries)
    assert width == 50
    assert all(np.array_equal(vectors[word], values) for word, values in entries.items())


@pytest.mark.parametrize("content", [b"a 1 2\n. . . 3 4\n", b"2 2\na 1 2\n. . . 3 4\n"])
def test_a_word_of_text_may_hold_spaces(vectors_in, content):
    assert vectors_in(content, ". . .")[0][". . ."].tolist() == [3.0, 4.0]


def test_of_a_word_that_stands_twice_the_first_counts(vectors_in):
    assert vectors_in(b"a 1 2\na 3 4\n", "a")[0]["a"].tolist() == [1.0, 2.0]


def test_words_that_are_not_utf8_are_passed_over(vectors_in):
    assert list(vectors_in(b"a 1 2\n\xff\xfe 3 4\nb 5 6\n", "b")[0]) == ["b"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"a 1 2\nb 1\n", "line 2 has 1 values where 2 are expected"),
        (b"a 1 2\nb 1 2 3\n", "line 2 has 3 values where 2 are expected"),
        (b"a 1 2\n\nb 1 2\n", "line 2 has 0 values where 2 are expected"),
        (b"1 300\na 1 2\n", "line 2 has 2 values where 300 are expected"),
        (b"2 2\na 1 2\nb 1 2 3\n", "line 3 has 3 values where 2 are expected"),
    ],
)
def test_vectors_of_unequal_width_are_refused_with_their_line(vectors_in, content, problem):
    with pytest.raises(DataError, match=problem):
        vectors_in(content)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"a 1 2\nb 1 x\n", "line 2 holds something else than a word and numbers"),
        (b"some ordinary text\n", "line 1 holds something else than a word and numbers"),
        (b"", "line 1 tells of vectors of 0 values"),
        (b"\n", "line 1 tells of vectors of 0 values"),
        (b"3 0\n", "line 1 tells of vectors of 0 values"),
        (b"3 99999999999\n", "line 1 tells of vectors of 99999999999 values"),
        (b"3 2\na 1 2\nb 1 2\n", "has 2 entries, its header tells of 3"),
        (b"1 2\na 1 2\nb 1 2\n", "has 2 entries, its header tells of 1"),
        (b"x" * (LONGEST_LINE + 1), "line 1 is longer than"),
        (binary({"a": [0.1, 0.2], "b": [0.3, 0.4]}, 2)[:-3], "entry 2 of 2 breaks off"),
        (binary({"a": [0.1, 0.2]}, 2, count=2), "entry 2 has no word and space"),
        (binary({"a": [0.1, 0.2], "b": [0.3, 0.4]}, 2, count=1), "goes on after the 1 entries"),
    ],
)
def test_a_malformed_file_is_refused_with_the_place(vectors_in, content, problem):
    with pytest.raises(DataError, match=problem) as caught:
        vectors_in(content, "a", "b")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e40"])
def test_values_that_are_not_finite_are_refused(vectors_in, value):
    with pytest.raises(DataError, match="line 2 holds a value that is not finite"):
        vectors_in(f"a 1 2\nb 1 {value}\n".encode(), "b")


def test_binary_values_that_are_not_finite_are_refused(vectors_in):
    with pytest.raises(DataError, match="entry 2 holds a value that is not finite"):
        vectors_in(binary({"a": [0.1, 0.2], "b": [0.3, np.nan]}, 2), "b")


def test_unreadable_files_are_refused(vectors_in, tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_vectors(tmp_path / "none", ["a"])
    with pytest.raises(DataError, match="breaks off"):
        vectors_in(gzip.compress(b"a 1 2\n" * 9)[:-9], "a", name="vectors.gz")
    with pytest.raises(DataError, match="not a gzip file"):
        vectors_in(b"a 1 2\n", "a", name="vectors.gz")


def test_memory_goes_with_the_wanted_words_not_with_the_file(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_bytes(b"".join(b"word%d " % number + b" ".join([b"0.125"] * 100) + b"\n" for number in range(20_000)))
    tracemalloc.start()
    vectors, _ = read_vectors(path, ["word19999"])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(vectors) == 1
    assert peak < 500_000

import gzip
import io
import os
import threading
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.data import text
from headway.data.text import LONGEST_LINE, changed, fingerprint, hashed, read_lines, read_stream
from headway.errors import DataError


@pytest.fixture
def lines_of(tmp_path):
    def read(content: bytes, name: str = "corpus.txt", **options):
        path = tmp_path / name
        path.write_bytes(content)
        return list(read_lines(path, **options))

    return read


def refusal(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        list(read_lines(path))
    message = str(caught.value)
    assert "\n" not in message
    assert caught.value.exit_code == 2
    return message


def test_invalid_utf8_is_refused_with_file_line_and_byte(lines_of):
    with pytest.raises(
        DataError, match=r"corpus\.txt: line 2 is not UTF-8 at byte 3 of the line, offset 8 in the text;"
    ):
        lines_of(b"fine\r\nab\xff\n")


def test_the_byte_of_invalid_utf8_counts_the_byte_order_mark_in_the_file_but_not_in_the_line(lines_of):
    with pytest.raises(DataError, match=r"line 1 is not UTF-8 at byte 2 of the line, offset 4 in the text"):
        lines_of(b"\xef\xbb\xbfa\xff\n")


def test_invalid_utf8_is_skipped_on_demand_and_leaves_its_place_empty(lines_of):
    assert lines_of(b"a\n\xc3\nb\n", invalid="skip") == ["a", None, "b"]


def test_an_encoded_surrogate_is_not_utf8(lines_of):
    assert lines_of(b"\xed\xa0\x80\n", invalid="skip") == [None]


def test_a_nul_inside_a_line_is_kept(lines_of):
    assert lines_of(b"a\0b\n") == ["a\0b"]


def test_a_byte_order_mark_is_stripped_once(lines_of):
    mark = "\ufeff".encode()
    assert lines_of(mark + mark + b"a\n" + mark + b"b\n") == ["\ufeffa", "\ufeffb"]


def test_a_byte_order_mark_alone_is_an_empty_file(lines_of):
    assert lines_of("\ufeff".encode()) == []
    assert lines_of("\ufeff\n".encode()) == [""]


def test_of_crlf_one_carriage_return_is_stripped(lines_of):
    assert lines_of(b"a\r\nb\r\r\n\r\n") == ["a", "b\r", ""]


@pytest.mark.parametrize("character", ["\r", "\u2028", "\u2029", "\x85", "\v", "\f", "\x1c", "\x1d", "\x1e"])
def test_other_separators_are_not_line_breaks(lines_of, character):
    assert lines_of(f"a{character}b\nc\n".encode()) == [f"a{character}b", "c"]


def test_empty_and_white_space_lines_count(lines_of):
    assert lines_of(b"\n \n\t\n\na\n\n") == ["", " ", "\t", "", "a", ""]


def test_a_last_line_without_line_end_counts(lines_of):
    assert lines_of(b"a\nb") == ["a", "b"]


def test_literal_control_symbols_stay_text(lines_of):
    assert lines_of("<s> a </s> <pad> ▁b\n".encode()) == ["<s> a </s> <pad> ▁b"]


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_line_may_be_as_long_as_the_limit_and_no_longer(lines_of, mark, end):
    assert [len(line) for line in lines_of(mark + b"x" * LONGEST_LINE + end + b"")] == [LONGEST_LINE]
    with pytest.raises(DataError, match=f"line 1 is longer than {LONGEST_LINE} bytes"):
        lines_of(mark + b"x" * (LONGEST_LINE + 1) + end)


def test_a_line_without_end_is_not_held_in_memory():
    class Endless(io.RawIOBase):
        served = 0

        def readable(self):
            return True

        def readinto(self, buffer):
            self.served += len(buffer)
            buffer[:] = b"x" * len(buffer)
            return len(buffer)

    source = Endless()
    tracemalloc.start()
    with pytest.raises(DataError, match="endless: line 1 is longer"):
        next(read_stream(io.BufferedReader(source), "endless"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert source.served < 2 * LONGEST_LINE
    assert peak < 8 * LONGEST_LINE


def test_memory_does_not_grow_with_the_file(tmp_path):
    path = tmp_path / "long.txt"
    path.write_bytes(b"a line of text\n" * 60_000)
    tracemalloc.start()
    count = sum(1 for _ in read_lines(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 60_000
    assert peak < 450_000


def test_an_empty_file_has_no_lines(lines_of):
    assert lines_of(b"") == []
    assert lines_of(gzip.compress(b""), "empty.gz") == []


def test_a_directory_is_refused(tmp_path):
    assert refusal(tmp_path) == f"{tmp_path}: is a folder; give a file"


def test_a_missing_file_is_refused(tmp_path):
    assert refusal(tmp_path / "none.txt") == f"{tmp_path / 'none.txt'}: no such file; check the path"
    assert "cannot hold NUL" in refusal(tmp_path / "a\0b")


def test_an_unreadable_file_is_refused(tmp_path, monkeypatch):
    def denied(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)
    assert "cannot be read (Permission denied)" in refusal(tmp_path / "secret.txt")


def test_a_stream_that_fails_while_it_is_read_is_refused(tmp_path):
    class Failing(io.BytesIO):
        def readline(self, _size=-1):
            raise OSError(5, "Input/output error")

    with pytest.raises(DataError, match=r"standard input: cannot be read \(Input/output error\)"):
        list(read_stream(Failing(), "standard input"))


def test_a_truncated_gzip_file_is_refused_after_what_could_be_read(tmp_path):
    path = tmp_path / "corpus.gz"
    path.write_bytes(gzip.compress(os.urandom(50_000).hex().encode())[:-1000])
    assert "the gzip file breaks off" in refusal(path)


@pytest.mark.parametrize("place", [12, -6])
def test_a_damaged_gzip_file_is_refused(tmp_path, place):
    packed = bytearray(gzip.compress(b"some text\n" * 100))
    packed[place] ^= 0xFF
    path = tmp_path / "corpus.gz"
    path.write_bytes(packed)
    assert "the gzip file is damaged" in refusal(path)


def test_a_gz_file_that_is_plain_text_is_refused(tmp_path):
    path = tmp_path / "corpus.txt.gz"
    path.write_bytes(b"plain\n")
    assert "not a gzip file although its name ends in .gz" in refusal(path)


@pytest.mark.parametrize("name", ["corpus.gz", "corpus.GZ", "corpus.txt"])
def test_gzip_is_unpacked_whatever_its_name_and_however_many_parts_it_has(lines_of, name):
    assert lines_of(gzip.compress(b"a\nb") + gzip.compress(b"c\n"), name) == ["a", "bc"]


def test_a_line_from_a_pipe_comes_before_the_next_is_written():
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream, os.fdopen(writing, "wb", buffering=0) as writer:
        rescue = threading.Timer(5, writer.close)  # a reader that waits for more must fail, not hang
        rescue.start()
        lines = read_stream(stream, "standard input")
        writer.write(b"first\n")
        assert next(lines) == "first"
        assert not writer.closed
        writer.write(b"second")
        rescue.cancel()
        writer.close()
        assert list(lines) == ["second"]


@given(st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]))))
def test_random_lines_in_are_lines_out(lines):
    expected = [line.removesuffix("\r") for line in lines]
    if expected:
        expected[0] = lines[0].removeprefix("\ufeff").removesuffix("\r")
    stream = io.BytesIO("".join(f"{line}\n" for line in lines).encode())
    assert list(read_stream(stream, "random")) == expected


@given(st.binary())
def test_random_bytes_keep_their_number_of_lines(content):
    found = list(read_stream(io.BytesIO(content), "random", invalid="skip"))
    body = content.removeprefix(text.BYTE_ORDER_MARK)
    assert len(found) == body.count(b"\n") + (body[-1:] not in (b"", b"\n"))


def test_a_file_is_changed_when_its_content_is_and_not_when_only_its_time_is(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_bytes(b"one\n")
    before = fingerprint(path)
    assert before.size == 4
    assert not changed(path, before)
    os.utime(path, ns=(0, before.modified_ns + 1))
    assert not changed(path, before)
    path.write_bytes(b"two\n")
    os.utime(path, ns=(0, before.modified_ns + 1))
    assert changed(path, before)
    path.write_bytes(b"more\n")
    os.utime(path, ns=(0, before.modified_ns))
    assert changed(path, before)


def test_an_untouched_file_is_not_read_again(tmp_path, monkeypatch):
    path = tmp_path / "corpus.txt"
    path.write_bytes(b"one\n")
    before = fingerprint(path)
    monkeypatch.setattr(text, "fingerprint", lambda _: pytest.fail("was read"))
    assert not changed(path, before)


def test_the_fingerprint_of_a_missing_file_is_refused(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        fingerprint(tmp_path / "none.txt")


def test_hashes_are_the_same_in_every_process_and_tell_where_a_text_ends():
    assert hashed("Grüße") == 10566448050427439878
    assert hashed("ab", "c") != hashed("a", "bc") != hashed("abc")

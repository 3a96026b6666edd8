import gzip
import json
import os
from collections import Counter
from pathlib import Path

import pytest

from headway.data.pairs import Files, Pair, read_pairs
from headway.errors import DataError


@pytest.fixture
def write(tmp_path):
    def write_file(name: str, content: bytes | str) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write_file


def refusal(files: Files, **options) -> str:
    with pytest.raises(DataError) as caught:
        list(read_pairs(files, **options))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_parallel_files_are_paired_line_by_line(write):
    files = Files(write("a.en", "one\n\ntwo\n"), write("a.de.gz", gzip.compress(b"eins\r\n\r\nzwei")))
    assert list(read_pairs(files)) == [Pair("one", "eins", 1), Pair("", "", 2), Pair("two", "zwei", 3)]


@pytest.mark.parametrize(
    ("source", "target", "counts"), [(3, 1, (3, 1)), (1, 4, (1, 4)), (0, 2, (0, 2)), (2, 0, (2, 0))]
)
def test_unequal_line_counts_name_both_files_and_both_counts(write, source, target, counts):
    files = Files(write("a.en", "x\n" * source), write("a.de", "y\n" * target))
    message = f"{files.source} has {counts[0]} lines and {files.target} has {counts[1]}"
    assert refusal(files).startswith(message)


def test_a_skipped_line_counts_towards_the_number_of_lines(write):
    files = Files(write("a.en", b"x\n\xff\n\xff\n"), write("a.de", "y\n"))
    assert "has 3 lines" in refusal(files, invalid="skip")


def test_invalid_utf8_is_refused_or_skipped_with_a_count_and_files_stay_in_step(write):
    files = Files(write("a.en", b"a\n\xff\nc\nd\n"), write("a.de", b"A\nB\n\xff\nD\n"))
    assert "a.en: line 2 is not UTF-8" in refusal(files)
    counts: Counter[str] = Counter()
    assert list(read_pairs(files, invalid="skip", counts=counts)) == [Pair("a", "A", 1), Pair("d", "D", 4)]
    assert counts == {"not UTF-8": 2}


@pytest.mark.parametrize("name", ["a.tsv", "a.jsonl"])
def test_invalid_utf8_is_skipped_in_one_file_too(write, name):
    line = b"a\tA" if name == "a.tsv" else b'{"source": "a", "target": "A"}'
    counts: Counter[str] = Counter()
    files = Files(write(name, b"\xff\n" + line))
    assert list(read_pairs(files, invalid="skip", counts=counts)) == [Pair("a", "A", 2)]
    assert counts == {"not UTF-8": 1}


def test_an_empty_file_is_refused_for_training(write):
    assert "no lines" in refusal(Files(write("a.en", ""), write("a.de", "")))
    assert "no lines" in refusal(Files(write("a.tsv", "")))
    assert "no lines" in refusal(Files(write("a.jsonl.gz", gzip.compress(b""))))


@pytest.mark.parametrize("name", ["a.tsv", "a.tab", "a.en-de.TSV", "a.tsv.gz"])
def test_a_table_gives_its_first_two_columns(write, name):
    content = b"one\teins\tmore\ntwo\tzwei\n"
    path = write(name, gzip.compress(content) if name.endswith("gz") else content)
    assert list(read_pairs(Files(path))) == [Pair("one", "eins", 1), Pair("two", "zwei", 2)]


def test_the_columns_of_a_table_can_be_chosen(write):
    path = write("a.tsv", "id\teins\tone\n")
    assert list(read_pairs(Files(path, columns=(3, 2)))) == [Pair("one", "eins", 1)]
    with pytest.raises(DataError, match="there is no column 0"):
        Files(path, columns=(0, 1))


@pytest.mark.parametrize(("columns", "needed"), [((1, 2), 2), ((1, 4), 4), ((1, 1), 2)])
def test_a_table_line_with_too_few_columns_is_refused_with_its_number(write, columns, needed):
    path = write("a.tsv", "a\tb\tc\td\nalone\n")
    assert f"line 2 has 1 column(s) where {needed} are needed" in refusal(Files(path, columns=columns))


@pytest.mark.parametrize("name", ["a.jsonl", "a.ndjson", "a.jsonl.gz"])
def test_json_lines_give_their_fields(write, name):
    content = json.dumps({"target": "zwei 😀", "source": "t\two", "more": 1}).encode()
    path = write(name, gzip.compress(content) if name.endswith("gz") else content)
    assert list(read_pairs(Files(path))) == [Pair("t\two", "zwei 😀", 1)]


def test_the_fields_of_json_lines_can_be_chosen(write):
    path = write("a.jsonl", '{"en": "one", "de": "eins"}\n')
    assert list(read_pairs(Files(path, fields=("en", "de")))) == [Pair("one", "eins", 1)]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "is not JSON"),
        ("", "is not JSON"),
        ("[" * 100_000, "is not JSON (too deep or too large)"),
        ("1" * 10_000, "is not JSON (too deep or too large)"),
        ('["a", "b"]', "is not a JSON object"),
        ('{"source": "a", "other": "b"}', "has no field 'target'; it has 'source', 'other'"),
        ('{"source": "a", "target": null}', "field 'target' is not text"),
        ('{"source": "\\ud800", "target": "b"}', "field 'source' holds half a surrogate pair"),
    ],
)
def test_a_bad_json_line_is_refused_with_its_number(write, line, problem):
    path = write("a.jsonl", '{"source": "a", "target": "b"}\n' + line + "\n")
    message = refusal(Files(path))
    assert f"{path}: line 2" in message
    assert problem in message


def test_one_file_of_unknown_kind_is_refused(write):
    assert "must end in .tsv, .tab, .jsonl, .ndjson" in refusal(Files(write("a.txt", "x\n")))


@pytest.mark.parametrize("change", ["append", "replace", "rewrite", "delete"])
def test_a_file_that_changes_while_it_is_read_is_detected(write, change):
    files = Files(write("a.en", "x\n" * 100), write("a.de", "y\n" * 100))
    pairs = read_pairs(files)
    next(pairs)
    if change == "append":
        with files.source.open("a") as more:
            more.write("x\n")
    elif change == "replace":
        other = write("other", "z\n" * 100)
        state = files.source.stat()
        os.utime(other, ns=(state.st_atime_ns, state.st_mtime_ns))
        other.replace(files.source)
    elif change == "rewrite":
        state = files.source.stat()
        files.source.write_bytes(b"z\n" * 100)
        os.utime(files.source, ns=(state.st_atime_ns, state.st_mtime_ns + 1))
    else:
        files.source.unlink()
    with pytest.raises(DataError, match=r"a\.en: changed while it was read"):
        list(pairs)


def test_a_change_is_told_rather_than_the_unequal_counts_it_causes(write):
    files = Files(write("a.en", "x\n" * 100_000), write("a.de", "y\n" * 100_000))
    pairs = read_pairs(files)
    next(pairs)
    files.target.write_bytes(b"y\n")
    with pytest.raises(DataError, match=r"a\.de: changed while it was read"):
        list(pairs)


def test_a_pipe_can_be_read_like_a_file(tmp_path):
    reading, writing = os.pipe()
    os.write(writing, b"one\n")
    os.close(writing)
    target = tmp_path / "a.de"
    target.write_bytes(b"eins\n")
    try:
        assert list(read_pairs(Files(Path(f"/dev/fd/{reading}"), target))) == [Pair("one", "eins", 1)]
    finally:
        os.close(reading)


def test_a_missing_directory_or_truncated_file_is_refused(write, tmp_path):
    good = write("a.en", "x\n")
    assert "no such file" in refusal(Files(good, tmp_path / "none"))
    assert "is a folder" in refusal(Files(tmp_path, good))
    assert "breaks off" in refusal(Files(write("a.gz", gzip.compress(b"x\n")[:-5]), good))

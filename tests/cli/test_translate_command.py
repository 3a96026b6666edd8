"""`headway translate` and `headway embed` on input that is as it should be."""

import gzip
import json
import sys

import pytest

SOURCE = b"le chat voit la pomme .\nun chien mange tout .\n"


@pytest.fixture
def expected(model_folder):
    from headway.translator import load

    return [str(text) for text in load(model_folder)(SOURCE.decode().splitlines())]


def test_every_line_gets_the_answer_the_library_gives(headway, model_folder, expected):
    assert headway("translate", model_folder, stdin=SOURCE).lines == expected


def test_a_file_goes_to_a_file_and_nothing_to_the_screen(headway, model_folder, expected, tmp_path):
    (tmp_path / "in").write_bytes(SOURCE)
    outcome = headway("translate", model_folder, "--input", tmp_path / "in", "--output", tmp_path / "out")
    assert outcome.lines == []
    assert outcome.err == ""
    assert (tmp_path / "out").read_text().splitlines() == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def test_an_output_that_is_there_is_replaced_and_a_link_stays_a_link(headway, model_folder, expected, tmp_path):
    (tmp_path / "old").write_text("old\n" * 9)
    (tmp_path / "link").symlink_to("old")
    assert headway("translate", model_folder, "--output", tmp_path / "link", stdin=SOURCE).code == 0
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "old").read_text().splitlines() == expected


@pytest.mark.parametrize(
    "content",
    [SOURCE.replace(b"\n", b"\r\n"), SOURCE.removesuffix(b"\n"), b"\xef\xbb\xbf" + SOURCE, gzip.compress(SOURCE)],
    ids=["CRLF", "no final line end", "byte order mark", "gzip"],
)
def test_the_way_lines_are_stored_changes_no_answer(content, headway, model_folder, expected, tmp_path):
    (tmp_path / "in").write_bytes(content)
    assert headway("translate", model_folder, "--input", tmp_path / "in").lines == expected


@pytest.mark.parametrize("buffer", [1, 3])
def test_the_buffer_changes_no_answer(buffer, headway, model_folder, expected):
    assert headway("translate", model_folder, "--buffer", buffer, stdin=SOURCE * 3).lines == expected * 3


def test_nbest_gives_numbered_lists_in_four_fields_best_first(headway, model_folder):
    lines = headway("translate", model_folder, "--nbest", 3, "--buffer", 1, stdin=SOURCE + b"\n").lines
    fields = [line.split(" ||| ") for line in lines]
    assert [number for number, *_ in fields] == ["0"] * 3 + ["1"] * 3 + ["2"]
    assert all(len(each) == 4 and each[2].startswith("F0= ") for each in fields)
    scores = [float(each[3]) for each in fields]
    assert scores[0] >= scores[1] >= scores[2]
    assert fields[-1][1:] == ["", "F0= 0.000000", "0.000000"]


def test_json_lines_keep_every_other_field(headway, model_folder, expected):
    records = [
        {"id": 7, "source": line, "nested": {"é": [None, 1.5]}, "half": "\ud800"}
        for line in SOURCE.decode().splitlines()
    ]
    stdin = "".join(json.dumps(record) + "\n" for record in records).encode()
    answers = [json.loads(line) for line in headway("translate", model_folder, "--json", stdin=stdin).lines]
    assert [answer.pop("translation") for answer in answers] == expected
    assert all(isinstance(answer.pop("score"), float) for answer in answers)
    assert answers == records


def test_json_lines_can_hold_an_nbest_list(headway, model_folder):
    answer = headway("translate", model_folder, "--json", "--nbest", 2, stdin=b'{"source": "le chat"}\n').json
    assert len(answer["nbest"]) == 2
    assert answer["nbest"][0]["text"] == answer["translation"]
    assert answer["nbest"][0]["score"] == answer["score"]


def test_a_json_line_that_is_not_utf8_becomes_an_empty_line_where_such_are_skipped(headway, model_folder):
    stdin = b'{"source": "a"}\n{"source": "\xff"}\n{"source": ""}\n'
    lines = headway("translate", model_folder, "--json", "--invalid", "skip", stdin=stdin).lines
    assert len(lines) == 3
    assert lines[1] == ""
    assert json.loads(lines[2])["translation"] == ""


def test_letters_are_written_as_they_are(headway, model_folder):
    assert "Zoë" in headway("translate", model_folder, "--json", stdin='{"source": "Zoë"}\n'.encode()).out


def test_closed_standard_input_is_refused(headway, model_folder, monkeypatch):
    import headway.cli.files as files

    monkeypatch.setattr(files.sys, "stdin", None)
    from headway.errors import DataError

    with pytest.raises(DataError, match="standard input: closed"):
        files.lines_of(None)
    assert files.sys is sys


def test_embed_gives_a_json_line_a_line_with_a_vector_a_token(headway, model_folder):
    lines = headway("embed", model_folder, stdin="le chat\n\nZoë\n".encode()).lines
    records = [json.loads(line) for line in lines]
    assert len(records) == 3
    assert "".join(records[0]["tokens"]) == "le chat"
    assert records[1] == {"tokens": [], "vectors": []}
    for record in records:
        assert len(record["tokens"]) == len(record["vectors"])
        assert all(len(vector) == 16 for vector in record["vectors"])

from pathlib import Path

import pytest

from headway.config import validated
from headway.data.config import DataConfig
from headway.data.links import linked, parsed
from headway.data.pairs import Files, read_pairs
from headway.errors import ConfigError, DataError

PAIRS = [("a b c", "x y"), ("d", "z"), None, ("e  f", "w")]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "train.align"


def found(path, text):
    path.write_text(text, encoding="utf-8")
    return list(linked(iter(PAIRS), path))


def test_every_pair_comes_with_its_line_and_one_that_is_skipped_uses_its_line_up(path):
    lines = ["0-0 2-1", "", "7-7", "1-0 0-0"]
    assert found(path, "".join(f"{line}\n" for line in lines)) == list(zip(PAIRS, lines, strict=True))
    assert parsed("0-0 2-1 10-3") == [(0, 0), (2, 1), (10, 3)]


def test_without_a_file_there_are_no_links():
    assert list(linked(iter(PAIRS), None)) == [(pair, "") for pair in PAIRS]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("0-0\n0-0\n\n0-0\n0-0\n0-0\n", "has 6 lines for 4 pairs"),
        ("0-0\n0-0\n", "has 2 lines for 4 pairs"),
        ("0-0\n0:0\n\n\n", r"line 2: '0:0' is no link; write source-target"),
        ("0-0 -1-0\n\n\n\n", r"line 1: '-1-0' is no link"),
        ("0-0-0\n\n\n\n", "line 1: '0-0-0' is no link"),
        ("٣-0\n\n\n\n", "line 1: '٣-0' is no link"),
        (f"{'9' * 5000}-0\n\n\n\n", "line 1: '9999"),
        ("0-0 3-0\n\n\n\n", "line 1: links source word 3 of 3; words count from 0"),
        ("\n0-1\n\n\n", "line 2: links target word 1 of 1; words count from 0"),
        ("\n\n\n2-0\n", "line 4: links source word 2 of 2"),
    ],
)
def test_a_bad_line_is_named_with_its_file_in_one_line(path, text, told):
    with pytest.raises(DataError, match=told) as refused:
        found(path, text)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 200 + len(str(path))


def test_a_corpus_is_read_in_step_with_its_alignment(tmp_path, path):
    (tmp_path / "s").write_bytes(b"a b\n\xff\nc\n")
    (tmp_path / "t").write_text("x\ny\nz w\n")
    path.write_text("0-0 1-0\n5-5\n0-1\n")
    files = Files(tmp_path / "s", tmp_path / "t", alignment=path)
    assert [pair.links for pair in read_pairs(files, invalid="skip")] == ["0-0 1-0", "0-1"]
    assert path in files.paths


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"corpora": [{"source": "s", "target": "t"}]}, "alignment is of one corpus"),
        ({"source": "s", "target": "t", "word_dropout": 0.1}, "leave one of them out"),
    ],
)
def test_settings_that_do_not_go_with_an_alignment_are_refused(settings, told):
    with pytest.raises(ConfigError, match=told):
        validated(DataConfig, {**settings, "alignment": "a"}, "recipe.toml")


def test_the_file_of_a_recipe_is_that_of_the_training_text_alone(tmp_path):
    names = {"source": "s", "target": "t", "valid_source": "v", "valid_target": "w", "alignment": "a"}
    config = DataConfig(folder=tmp_path, **{name: Path(file) for name, file in names.items()})
    assert [files.alignment for files in (*config.training(), *config.validation())] == [tmp_path / "a", None]

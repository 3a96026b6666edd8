import gzip
import json
from pathlib import Path

import pytest

from headway.config import validated, write_toml
from headway.data.config import DataConfig
from headway.data.pairs import Files, read_pairs, read_sources
from headway.data.preparation import divide, prepare, reopen
from headway.data.report import survey
from headway.data.tokenizer import TokenizerConfig
from headway.errors import ConfigError, DataError


def quiet(*_):
    pass


@pytest.fixture
def write(tmp_path):
    def made(name, content):
        path = tmp_path / name
        path.write_bytes(gzip.compress(content.encode()) if name.endswith(".gz") else content.encode())
        return path

    return made


@pytest.fixture
def sharded(write, tmp_path):
    """Four pairs in three shards, the middle one empty."""
    for number, words in enumerate(("a b", "", "c d")):
        write(f"train-{number}.en.gz", "".join(f"{word}\n" for word in words.split()))
        write(f"train-{number}.de", "".join(f"{word.upper()}\n" for word in words.split()))
    return tmp_path


def texts(files):
    return [(pair.source, pair.target, pair.line) for pair in read_pairs(files)]


PAIRS = [("a", "A", 1), ("b", "B", 2), ("c", "C", 3), ("d", "D", 4)]


def test_the_shards_of_a_glob_are_read_in_the_order_of_their_names(sharded):
    assert texts(Files(sharded / "train-*.en.gz", sharded / "train-*.de")) == PAIRS
    assert list(read_sources(Files(sharded / "train-?.de"))) == ["A", "B", "C", "D"]


def test_the_shards_of_a_list_are_read_as_they_stand(sharded):
    sides = [tuple(sharded / f"train-{number}.{side}" for number in (2, 0)) for side in ("en.gz", "de")]
    assert [source for source, _, _ in texts(Files(*sides))] == ["c", "d", "a", "b"]


def test_a_list_may_hold_globs(sharded):
    files = Files(
        (sharded / "train-2.en.gz", sharded / "train-[01].en.gz"), (sharded / "train-2.de", sharded / "train-[01].de")
    )
    assert [source for source, _, _ in texts(files)] == ["c", "d", "a", "b"]


def test_unequal_numbers_of_shards_are_refused_with_both(sharded):
    with pytest.raises(DataError, match=r"train-\*\.en\.gz: 3 source files and 1 target files"):
        texts(Files(sharded / "train-*.en.gz", sharded / "train-0.de"))


def test_a_glob_without_a_match_is_refused_and_a_file_that_looks_like_one_is_read(write, tmp_path):
    with pytest.raises(DataError, match=r"none-\*\.en: no file has such a name"):
        texts(Files(tmp_path / "none-*.en", tmp_path / "none-*.de"))
    assert texts(Files(write("a[1]*.tsv", "x\ty\n"))) == [("x", "y", 1)]


def test_errors_name_the_shard_and_the_line_in_it(write, tmp_path):
    write("a-1.tsv", "x\ty\n" * 7)
    write("a-2.tsv", "x\ty\nx y\n")
    with pytest.raises(DataError, match=r"a-2\.tsv: line 2 has 1 column"):
        texts(Files(tmp_path / "a-*.tsv"))


def test_a_shard_of_another_length_than_its_partner_is_refused_even_if_the_sums_agree(write, tmp_path):
    for name, lines in (("a-1.en", 1), ("a-2.en", 2), ("a-1.de", 2), ("a-2.de", 1)):
        write(name, "x\n" * lines)
    with pytest.raises(DataError, match=r"a-1\.en has 1 lines and .*a-1\.de has 2"):
        texts(Files(tmp_path / "a-*.en", tmp_path / "a-*.de"))


def test_shards_without_any_line_are_refused(write, tmp_path):
    write("a-1.tsv", "")
    write("a-2.tsv", "")
    with pytest.raises(DataError, match=r"a-\*\.tsv: no lines"):
        texts(Files(tmp_path / "a-*.tsv"))


def test_the_report_names_shard_and_line(sharded, write):
    write("train-2.de", "C\0\nD\n")
    report = survey(Files(sharded / "train-*.en.gz", sharded / "train-*.de"))
    assert any(f"first line 1 of {sharded / 'train-2.en.gz'}" in warning for warning in report.warnings())
    assert report.to_json()["shards"] == {
        str(sharded / f"train-{n}.en.gz"): before for n, before in enumerate((0, 2, 2))
    }


def config(**settings):
    return validated(DataConfig, settings, "test")


def test_settings_take_a_path_a_glob_or_a_list_and_are_written_as_they_were():
    for source in ("a.en", "train-*.en", ["a.en", "b-*.en"]):
        settings = config(folder="data", source=source, target=source)
        assert f"source = {json.dumps(source)}\n" in write_toml(settings)
        several = [source] if isinstance(source, str) else source
        assert settings.training()[0].name.startswith(f"data/{several[0]}")
    assert config(source="a.en").source == Path("a.en")


@pytest.mark.parametrize("source", [5, [], [5], {"a": 1}, True, [["a"]]])
def test_what_is_no_path_is_refused_by_name(source):
    with pytest.raises(ConfigError, match=r"test: source: should be a path, a glob, or a list of them"):
        config(source=source)


def test_a_sharded_corpus_is_prepared_and_a_new_gone_or_changed_shard_is_noticed(sharded, write, tmp_path):
    settings = config(folder=str(sharded), source="train-*.en.gz", target="train-*.de")
    split = divide(settings, quiet)
    tokenizer = TokenizerConfig(kind="words")
    prepared = prepare(settings, tokenizer, tmp_path / "data", longest=9, split=split, report=quiet)
    assert len(prepared.store) + len(split.valid) == 4
    assert len(split.files) == 6
    assert len(reopen(settings, tmp_path / "data").store) == len(prepared.store)
    extra = [write("train-9.en.gz", "x\n"), write("train-9.de", "X\n")]
    with pytest.raises(DataError, match=r"train-9\.en\.gz: changed since this run began"):
        reopen(settings, tmp_path / "data")
    for path in (*extra, sharded / "train-1.en.gz", sharded / "train-1.de"):
        path.unlink()
    with pytest.raises(DataError, match=r"train-1\.\S+: changed since this run began"):
        reopen(settings, tmp_path / "data")


def test_shards_become_the_store_of_one_file(sharded, write, tmp_path):
    write("train.en", "a\nb\nc\nd\n")
    write("train.de", "A\nB\nC\nD\n")
    stores = []
    for name, source, target in (("one", "train.en", "train.de"), ("many", "train-*.en.gz", "train-*.de")):
        settings = config(folder=str(sharded), source=source, target=target)
        split = divide(settings, quiet)
        prepared = prepare(
            settings, TokenizerConfig(kind="words"), tmp_path / name, longest=9, split=split, report=quiet
        )
        stores.append(prepared.store.manifest["files"])
    assert stores[0] == stores[1]


def test_a_glob_can_be_given_on_the_command_line(headway, train, sharded, tmp_path):
    files = ("--source", sharded / "train-*.en.gz", "--target", sharded / "train-*.de")
    assert headway("check", *files).lines[0] == "pairs: 4"
    outcome = train(source=sharded / "train-*.en.gz", target=sharded / "none-*", out=tmp_path / "run")
    assert "none-*: no file has such a name" in outcome.complaint

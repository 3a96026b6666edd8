import builtins

import pytest

from headway.data import parquet as module
from headway.data.pairs import Files, read_pairs, read_sources
from headway.errors import DataError

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def write(tmp_path):
    def made(columns, name="a.parquet", **options):
        parquet.write_table(pyarrow.table(columns), tmp_path / name, **options)
        return tmp_path / name

    return made


def texts(files, **options):
    return [(pair.source, pair.target, pair.line) for pair in read_pairs(files, **options)]


def refusal(files, **options):
    with pytest.raises(DataError) as refused:
        texts(files, **options)
    assert "\n" not in str(refused.value)
    return str(refused.value)


KINDS = {
    "string": pyarrow.string(),
    "large string": pyarrow.large_string(),
    "string view": pyarrow.string_view(),
    "bytes": pyarrow.binary(),
    "dictionary": pyarrow.dictionary(pyarrow.int32(), pyarrow.string()),
}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_come_in_order_whatever_the_type_of_text(kind, write):
    def column(texts):
        return pyarrow.array(texts).cast(KINDS[kind])

    path = write({"source": column(["one", "", "é 🙂"]), "other": [1, 2, 3], "target": column(["eins", "zwei", "x"])})
    assert texts(Files(path)) == [("one", "eins", 1), ("", "zwei", 2), ("é 🙂", "x", 3)]
    assert list(read_sources(Files(path))) == ["one", "", "é 🙂"]


def test_columns_are_named_by_fields_and_row_groups_and_shards_are_joined(write, tmp_path):
    for shard in (1, 2):
        numbers = [f"{shard}.{row}" for row in range(5)]
        write({"de": [f"d{each}" for each in numbers], "en": numbers}, f"a-{shard}.parquet", row_group_size=2)
    read = texts(Files(tmp_path / "a-*.parquet", fields=("en", "de")))
    assert read == [(f"{n // 5 + 1}.{n % 5}", f"d{n // 5 + 1}.{n % 5}", n + 1) for n in range(10)]


def test_one_column_may_be_both_sides(write):
    assert texts(Files(write({"text": ["a"]}), fields=("text", "text"))) == [("a", "a", 1)]


def test_a_missing_column_names_those_that_are_there(write):
    assert "has no column 'target'; it has 'source', 'translation'" in refusal(
        Files(write({"source": ["a"], "translation": ["b"]}))
    )


def test_a_column_that_is_not_text_is_refused_with_its_type(write):
    assert "column 'target' is of type int64, not text" in refusal(Files(write({"source": ["a"], "target": [5]})))
    assert "column 'target' is of type list<" in refusal(Files(write({"source": ["a"], "target": [["b"]]})))


def test_a_null_is_refused_with_its_row(write):
    path = write({"source": ["a"] * 3000, "target": ["b"] * 2500 + [None] * 500}, row_group_size=700)
    assert f"{path}: row 2501: column 'target' is null" in refusal(Files(path))


def test_a_row_that_is_not_utf8_is_refused_or_skipped(write):
    path = write({"source": [b"a", b"\xff", b"c"], "target": [b"A", b"B", b"C"]})
    assert "row 2: column 'source' is not UTF-8 at byte 1" in refusal(Files(path))
    assert texts(Files(path), invalid="skip") == [("a", "A", 1), ("c", "C", 3)]


def test_a_row_beyond_all_bounds_is_refused(write, monkeypatch):
    monkeypatch.setattr(module, "LONGEST_LINE", 4)
    assert "row 2 is longer than 4 bytes" in refusal(Files(write({"source": ["abcd", "abcde"], "target": ["", ""]})))


@pytest.mark.parametrize("content", [b"", b"PAR1", b"no parquet at all\n", b"\x1f\x8b packed"])
def test_what_is_no_parquet_file_is_refused(content, tmp_path):
    path = tmp_path / "a.parquet"
    path.write_bytes(content)
    assert f"{path}: not a sound Parquet file" in refusal(Files(path))


def test_a_file_that_is_cut_or_not_there_is_refused(write, tmp_path):
    path = write({"source": ["a"] * 100, "target": ["b"] * 100})
    content = path.read_bytes()
    path.write_bytes(content[:-20])
    assert "not a sound Parquet file" in refusal(Files(path))
    path.write_bytes(content[:10] + bytes(30) + content[40:])
    assert str(path) in refusal(Files(path))
    assert "no such file" in refusal(Files(tmp_path / "none.parquet"))


def test_no_rows_are_no_corpus(write):
    empty = pyarrow.array([], pyarrow.string())
    assert "no lines" in refusal(Files(write({"source": empty, "target": empty})))


def test_parquet_has_no_partner_file(write, tmp_path):
    path = write({"source": ["a"], "target": ["b"]})
    (tmp_path / "a.de").write_text("x\n")
    assert f"{path}: Parquet holds both sides" in refusal(Files(path, tmp_path / "a.de"))


def test_without_pyarrow_the_remedy_is_named(write, monkeypatch):
    path, real = write({"source": ["a"], "target": ["b"]}), builtins.__import__

    def without(name, *rest):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    assert "pip install headway[parquet]" in refusal(Files(path))


def test_only_a_part_of_the_file_is_in_memory(tmp_path):
    path = tmp_path / "a.parquet"
    with parquet.ParquetWriter(
        path, pyarrow.schema([("source", "string"), ("target", "string")]), compression="none"
    ) as writer:
        for number in range(40):
            rows = [f"{number} {row} {'x' * 2000}" for row in range(200)]
            writer.write_table(pyarrow.table({"source": rows, "target": rows}), row_group_size=200)
    before = pyarrow.total_allocated_bytes()
    most = max(pyarrow.total_allocated_bytes() for _ in read_pairs(Files(path))) - before
    assert path.stat().st_size > 30_000_000
    assert most < 8_000_000

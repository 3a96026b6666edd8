"""Sentence pairs from a Parquet file, some rows at a time."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headway.data.text import LONGEST_LINE, Invalid, explained
from headway.errors import DataError

_ROWS = 1024  # held at once
_BUFFER = 1 << 20  # bytes read ahead of each column, in place of a whole row group


def read_parquet(path: Path, fields: tuple[str, str], *, invalid: Invalid) -> Iterator[tuple[str, str] | None]:
    """Read two columns of text row by row, in constant memory; None where one is not UTF-8 and `invalid` is skip."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise DataError(f"{path}: pyarrow is missing, which reads Parquet; pip install headway[parquet]") from None
    try:
        with explained(str(path)), path.open("rb") as stream:
            file = pyarrow.parquet.ParquetFile(stream, buffer_size=_BUFFER, pre_buffer=False)
            for name in fields:
                _refuse_unless_text(path, file.schema_arrow, name)
            row = 0
            for batch in file.iter_batches(_ROWS, columns=list(dict.fromkeys(fields)), use_threads=False):
                columns = [batch.column(name).cast(pyarrow.large_binary()) for name in fields]
                for contents in zip(*(column.to_pylist() for column in columns), strict=True):
                    row += 1
                    where = f"{path}: row {row}"
                    texts = [_text(each, where, name, invalid) for each, name in zip(contents, fields, strict=True)]
                    yield None if texts[0] is None or texts[1] is None else (texts[0], texts[1])
    except pyarrow.ArrowException as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"{path}: not a sound Parquet file ({reason}); write it again") from None


def _refuse_unless_text(path: Path, schema: Any, name: str) -> None:
    import pyarrow

    if name not in schema.names:
        there = ", ".join(map(repr, schema.names)) or "none"
        raise DataError(f"{path}: has no column {name!r}; it has {there}: name two by data.fields")
    if schema.names.count(name) > 1:
        raise DataError(f"{path}: has more than one column {name!r}; rename one")
    kind = schema.field(name).type
    text = kind.value_type if pyarrow.types.is_dictionary(kind) else kind
    known = (pyarrow.string(), pyarrow.large_string(), pyarrow.string_view(), pyarrow.binary(), pyarrow.large_binary())
    if text not in known:
        raise DataError(f"{path}: column {name!r} is of type {kind}, not text; name another by data.fields")


def _text(content: bytes | None, where: str, name: str, invalid: Invalid) -> str | None:
    if content is None:
        raise DataError(f"{where}: column {name!r} is null; put a text there or take the row out")
    if len(content) > LONGEST_LINE:
        raise DataError(f"{where} is longer than {LONGEST_LINE} bytes; split it or take it out")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        if invalid == "skip":
            return None
        told = f"column {name!r} is not UTF-8 at byte {error.start + 1}"
        raise DataError(f"{where}: {told}; write the file as UTF-8, or ask for such rows to be skipped") from None

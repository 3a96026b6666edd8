"""Outputs and references side by side, checked before anything is scored."""

from collections.abc import Sequence
from typing import TypeAlias

from headway.errors import DataError

References: TypeAlias = Sequence[str] | Sequence[Sequence[str]]
"""One reference for each output, or several such lists."""


def reference_lists(references: References, outputs: int, name: str = "outputs") -> list[list[str]]:
    """The references as lists of one line for each of the `outputs`; otherwise a `DataError` with both counts."""
    if outputs == 0:
        raise DataError(f"evaluation: there are no {name} to score; give at least one line")
    single = [line for line in references if isinstance(line, str)]
    lists = [list(lines) for lines in references if not isinstance(lines, str)] or [single]
    for number, lines in enumerate(lists, start=1):
        if len(lines) != outputs:
            which = f"reference list {number}" if len(lists) > 1 else "the references"
            raise DataError(f"evaluation: {outputs} {name} but {len(lines)} lines in {which}; give one line for each")
    return lists

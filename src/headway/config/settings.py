"""The base of every configuration in Headway."""

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, field_validator


class Settings(BaseModel):
    """A frozen group of settings: unknown keys and wrong types are refused, field docstrings are the help."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        use_attribute_docstrings=True,
        allow_inf_nan=False,
    )

    @field_validator("*")
    @classmethod
    def _paths_can_be(cls, value: Any) -> Any:
        if isinstance(value, Path) and "\0" in str(value):
            raise ValueError("a path cannot hold NUL")
        return value

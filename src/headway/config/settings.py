"""The base of every configuration in Headway."""

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """A frozen group of settings: unknown keys and wrong types are refused, field docstrings are the help."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        use_attribute_docstrings=True,
        allow_inf_nan=False,
    )

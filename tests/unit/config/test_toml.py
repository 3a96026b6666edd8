"""Recipes in TOML: read, overridden, validated, written."""

import math
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, ValidationError

from headway.config import Settings, override, read_toml, validated, write_toml
from headway.errors import ConfigError


class Inner(Settings):
    """A group."""

    size: int = Field(4, gt=0)
    """How large."""
    rate: float | None = Field(None, gt=0.0)
    """How fast.

    In two lines."""
    kind: Literal["one", "two"] = "one"


class Outer(Settings):
    """All of it."""

    name: str = "x"
    place: Path = Path("here")
    pair: tuple[int, int] = (1, 2)
    good: bool = True
    inner: Inner = Inner()
    maybe: Inner | None = None


def test_what_is_not_given_has_its_default_even_where_that_is_a_path():
    assert validated(Outer, {"name": "y"}, "here") == Outer(name="y")


def test_settings_cannot_be_changed():
    with pytest.raises(ValidationError):
        Outer().name = "y"


@pytest.mark.parametrize(
    ("tree", "told"),
    [
        ({"inner": {"sise": 1}}, "r.toml: unknown key inner.sise; did you mean inner.size?"),
        ({"maybe": {"sise": 1}}, "unknown key maybe.sise; did you mean maybe.size?"),
        ({"iner": {}}, "unknown key iner; did you mean inner?"),
        ({"inner": {"size": "8"}}, 'inner.size: should be a valid integer, not "8"'),
        ({"inner": {"size": True}}, "inner.size: should be a valid integer, not true"),
        ({"inner": {"size": 0}}, "inner.size: should be greater than 0, not 0"),
        ({"inner": {"rate": math.nan}}, "inner.rate: should be a finite number, not NaN"),
        ({"inner": {"rate": math.inf}}, "inner.rate: should be a finite number, not Infinity"),
        ({"inner": {"kind": "three"}}, "inner.kind: should be 'one' or 'two', not \"three\""),
        ({"inner": 3}, "inner: "),
        ({"good": 1}, "good: should be a valid boolean, not 1"),
        ({"pair": [1]}, "pair"),
        ({"name": 5, "good": 1}, "name: should be text, not 5; good: "),
    ],
)
def test_a_wrong_tree_is_told_with_its_key_in_one_line(tree, told):
    with pytest.raises(ConfigError) as caught:
        validated(Outer, tree, "r.toml")
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_setting_is_named():
    class Needy(Settings):
        inner: Inner
        must: int

    with pytest.raises(ConfigError, match="r: inner is missing; must is missing"):
        validated(Needy, {}, "r")


def test_an_override_is_read_as_toml_or_taken_as_text_and_leaves_the_tree_alone():
    tree = {"inner": {"size": 1}}
    laid = override(
        tree, ["inner.size=3", "inner.rate=1e-3", "name=plain text", "pair=[3, 4]", "good=false", 'place="a=b"']
    )
    assert laid == {
        "inner": {"size": 3, "rate": 1e-3}, "name": "plain text", "pair": [3, 4], "good": False, "place": "a=b",
    }  # fmt: skip
    assert tree == {"inner": {"size": 1}}


@pytest.mark.parametrize("assignment", ["name", "=1", ".a=1", "a.=1", "a..b=1", ""])
def test_an_override_without_name_or_value_is_refused(assignment):
    with pytest.raises(ConfigError, match="not of the form"):
        override({}, [assignment])


def test_an_override_inside_a_value_is_refused():
    with pytest.raises(ConfigError, match="name holds a value"):
        override({"name": "x"}, ["name.first=y"])


@given(st.text(max_size=30))
def test_any_text_given_to_a_text_setting_is_taken_or_refused_in_one_line(text):
    try:
        validated(Outer, override({}, [f"name={text}"]), "options")
    except ConfigError as error:
        assert "name" in str(error) or "options" in str(error)


@pytest.mark.parametrize("comments", [True, False])
def test_written_settings_read_back_as_the_same(comments, tmp_path):
    settings = Outer(name='a "quoted" é\\', place=Path("a b"), inner=Inner(rate=3e-5), maybe=Inner(kind="two"))
    text = write_toml(settings, comments=comments)
    (tmp_path / "r.toml").write_text(text, encoding="utf-8")
    assert validated(Outer, read_toml(tmp_path / "r.toml"), "r") == settings


def test_comments_are_the_docstrings_and_open_settings_stand_behind_a_sign():
    assert "# How large.\nsize = 4" in write_toml(Inner(size=4), comments=True)
    text = write_toml(Inner(), comments=True)
    assert "# How large.\n# size = 4" in text
    assert "# How fast.\n# \n# In two lines.\n# rate =" in text

"""Every shape in the package speaks the words of `axes.py`."""

import ast
from pathlib import Path

import jaxtyping
import pytest

import headway
from headway.axes import AXES

PACKAGE = Path(headway.__file__).parent
KINDS = {"Float", "Int", "Bool", "Num", "Shaped", "Inexact", "Integer", "UInt", "UInt8", "Int64", "Float32"}


def shapes(source):
    """Every jaxtyping shape of a module: its line, and its words without their marks."""
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in KINDS):
            continue
        if isinstance(node.slice, ast.Tuple) and len(node.slice.elts) == 2:
            shape = node.slice.elts[1]
            if isinstance(shape, ast.Constant) and isinstance(shape.value, str):
                words = [word.lstrip("*#_?") for word in shape.value.split()]
                yield node.lineno, [word for word in words if word and word != "..." and not word.isdigit()]


def test_every_axis_word_in_the_package_is_in_the_list():
    unknown = [
        f"{path.relative_to(PACKAGE)}:{line}: {word}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for line, words in shapes(path.read_text(encoding="utf-8"))
        for word in words
        if word not in AXES
    ]
    assert unknown == []


def test_the_search_for_shapes_sees_marks_and_numbers():
    found = sorted(shapes('def f(x: Float[Tensor, "*batch #query 3 ... odd"], y: list[int]) -> Bool[Tensor, ""]: ...'))
    assert found == [(1, []), (1, ["batch", "query", "odd"])]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_kinds_looked_for_are_those_of_jaxtyping(kind):
    assert hasattr(jaxtyping, kind)


def test_no_tensor_signature_of_the_package_is_hidden_from_the_search():
    """A kind of jaxtyping that the list above lacks would escape it."""
    imported = {
        alias.name
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module == "jaxtyping"
        for alias in node.names
    }
    assert imported <= KINDS

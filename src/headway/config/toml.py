"""Recipes: TOML in, overrides on top, validated settings out, and back to commented TOML."""

import difflib
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, Tag, ValidationError

from headway.errors import ConfigError

WORDS = {"valid array": "list in square brackets", "a valid string": "text", "an object": "a group of settings"}
"""What pydantic calls things, and what they are in a recipe."""
Model = TypeVar("Model", bound=BaseModel)
DEEPEST = 10
"""Groups and lists within each other, at most."""

LARGEST_RECIPE = 1 << 20
"""Bytes of a recipe; a larger file is refused before it is parsed."""


def read_toml(path: Path) -> dict[str, Any]:
    """Read a recipe; what cannot be read or parsed is a `ConfigError` that names the file."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_RECIPE + 1)
        if len(content) > LARGEST_RECIPE:
            raise ConfigError(f"{path}: larger than {LARGEST_RECIPE} bytes; no recipe is, give another file")
        text = content.decode("utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); give the path of a TOML recipe") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 at byte {error.start}; save the recipe as UTF-8") from None
    try:
        tree = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}; correct it there") from None
    _check_depth(tree, str(path))
    if not tree:
        raise ConfigError(f"{path}: the recipe is empty; 'headway init' writes one to start from")
    return tree


def override(tree: Mapping[str, Any], assignments: Iterable[str]) -> dict[str, Any]:
    """Return `tree` with every `a.b=value` laid over it; a value is read as TOML, or taken as text."""
    result = json.loads(json.dumps(tree, default=str))  # TOML's dates and times
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        keys = name.strip().split(".")
        if not equals or not all(keys):
            raise ConfigError(f"--set {assignment}: not of the form a.b=value")
        place = result
        for key in keys[:-1]:
            place = place.setdefault(key, {})
            if not isinstance(place, dict):
                raise ConfigError(f"--set {assignment}: {key} holds a value, not a group of settings")
        place[keys[-1]] = _value(value.strip())
    _check_depth(result, "--set")
    return dict(result)


def _check_depth(tree: Any, where: str) -> None:
    """Refuse groups within groups before Python gives up on thousands of them."""
    level = [tree]
    for _ in range(DEEPEST):
        inner = [each for group in level for each in (group.values() if isinstance(group, dict) else group)]
        level = [each for each in inner if isinstance(each, dict | list)]
    if level:
        raise ConfigError(f"{where}: groups or lists within each other, over {DEEPEST} deep; no setting needs as many")


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def validated(model: type[Model], tree: Mapping[str, Any], where: str) -> Model:
    """Build `model` from `tree`, or say in one line which key is wrong, where, and which name was probably meant."""
    try:
        return model.model_validate_json(json.dumps(tree, default=str))  # JSON: a list may become a tuple, text a Path
    except ValidationError as error:
        problems = [_problem(model, problem) for problem in error.errors()]
        raise ConfigError(f"{where}: " + "; ".join(problems)) from None


def _problem(model: type[BaseModel], problem: Any) -> str:
    location, group = located(model, [str(part) for part in problem["loc"]])
    name = ".".join(location) or "recipe"
    if problem["type"] == "json_invalid":
        return "a name or a text is not UTF-8; rename the file, or save the text as UTF-8"
    if problem["type"] == "extra_forbidden":
        close = difflib.get_close_matches(location[-1], list(group.model_fields), n=1, cutoff=0.0)
        return f"unknown key {name}" + (f"; did you mean {'.'.join([*location[:-1], close[0]])}?" if close else "")
    if problem["type"] == "missing":
        return f"{name} is missing"
    message = str(problem["msg"]).removeprefix("Value error, ").removeprefix("Input should be ")
    for theirs, ours in WORDS.items():
        message = message.replace(theirs, ours)
    verb = "" if problem["type"] in ("value_error", "architecture") else "should be "
    given = problem["input"]
    shown = "" if isinstance(given, dict) else f", not {json.dumps(given, default=str)[:80]}"
    return f"{name}: {verb}{message[0].lower() + message[1:]}{shown}"


def located(model: type[BaseModel], location: list[str]) -> tuple[list[str], type[BaseModel]]:
    """The place as a recipe writes it, and the group it is in; where there are kinds of a group, pydantic names one."""
    kept: list[str] = []
    kinds: dict[str, type[BaseModel]] = {}
    for place, key in enumerate(location, start=1):
        if key in kinds:
            model, kinds = kinds[key], {}
            continue
        kept.append(key)
        field = model.model_fields.get(key)
        groups = dict(_groups(field.annotation)) if field and place < len(location) else {}
        kinds = groups if len(groups) > 1 else {}
        model = next(iter(groups.values()), model)
    return kept, model


def _groups(kind: Any, tag: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """The groups of settings that a field may hold, by their tags."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield tag, kind
    tags = [each.tag for each in getattr(kind, "__metadata__", ()) if isinstance(each, Tag)]
    for inner in (kind.__origin__,) if tags else getattr(kind, "__args__", ()):
        yield from _groups(inner, tags[0] if tags else tag)


def write_toml(settings: BaseModel, *, comments: bool = False) -> str:
    """The settings as TOML, None left out.

    With `comments`, each field's docstring stands above it, and a field that was not set is itself a comment.
    """
    return "\n".join(_table(settings, [], comments)).strip() + "\n"


def _table(settings: BaseModel, path: list[str], comments: bool) -> list[str]:
    lines: list[str] = []
    nested: list[str] = []
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        note = [f"# {line}" for line in (field.description or "").splitlines()] if comments else []
        open_ = "# " if comments and name not in settings.model_fields_set else ""
        if isinstance(value, BaseModel):
            nested += ["", *note, f"[{'.'.join([*path, name])}]", *_table(value, [*path, name], comments)]
        elif isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
            for each in value:
                nested += ["", *note, f"[[{'.'.join([*path, name])}]]", *_table(each, [*path, name], comments)]
        elif value is not None:
            lines += [*note, f"{open_}{name} = {_literal(value)}"]
        elif comments:
            lines += [*note, f"# {name} ="]
    return lines + nested


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_literal(item) for item in value) + "]"
    return json.dumps(str(value), ensure_ascii=False)

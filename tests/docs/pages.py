"""The pages of the documentation, and what stands in them."""

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for folder in (".", "docs", "docs/decisions", "docs/how-to", "docs/models", "recipes")
    for path in (ROOT / folder).glob("*.md")
)
RECIPES = sorted((ROOT / "recipes").glob("*/recipe.toml"))


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(path: Path, language: str) -> list[str]:
    """The fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def spans(path: Path) -> list[str]:
    """What stands in backticks in running text."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`([^`\n]+)`", text)


def commands(text: str) -> list[list[str]]:
    """The arguments of every line that calls headway, without comments, pipes and redirections."""
    lines = text.replace("\\\n", " ").splitlines()
    found = [shlex.split(line, comments=True) for line in lines if line.strip().startswith("headway ")]
    return [_own(words[1:]) for words in found]


def _own(words: list[str]) -> list[str]:
    ends = [place for place, word in enumerate(words) if word in ("<", ">", "|")]
    return words[: ends[0]] if ends else words

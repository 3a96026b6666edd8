import re
import tomllib

import pytest
from pages import PAGES, ROOT, blocks, name

ARCHITECTURE = ROOT / "ARCHITECTURE.md"
EVERYWHERE = ("src", "tests", "docs", "recipes", "benchmarks", ".ci")
FORBIDDEN = (
    "/" + "work/",
    "/tmp" + "/w",
    "pypi.org" + "/simple",
    "pythonhosted" + ".org",
    "/" + "home/",
    "/" + "root/",
)
"""Paths of somebody's machine, and hosts of package registries; put together here so as not to be found themselves."""


def test_the_layers_are_those_the_build_proves():
    (contract,) = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    (shown,) = blocks(ARCHITECTURE, "layers")
    layers = [re.split(r" {2,}", line, maxsplit=1) for line in shown.splitlines()]
    assert [layer for layer, _ in layers] == [layer.replace("headway.", "") for layer in contract["layers"]]


def test_every_module_of_the_package_has_its_layer():
    (shown,) = blocks(ARCHITECTURE, "layers")
    layers = {word for line in shown.splitlines() for word in re.split(r" {2,}", line, maxsplit=1)[0].split(" | ")}
    modules = {path.stem for path in (ROOT / "src" / "headway").iterdir() if not path.name.startswith("_")}
    assert modules - {"py"} == layers  # py.typed


def listed(tree: str) -> dict[str, str]:
    """Every file of an indented tree with its description."""
    folders, found = [], {}
    for line in tree.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        entry, _, told = line.strip().partition(" ")
        folders[depth:] = [entry]
        if not entry.endswith("/"):
            found["".join(folders)] = told.strip()
    return found


def test_the_tree_is_the_one_on_disk():
    (tree,) = blocks(ARCHITECTURE, "tree")
    shown = listed(tree)
    package = ROOT / "src" / "headway"
    real = {name(path) for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert sorted(real - shown.keys()) == []
    assert sorted(shown.keys() - real) == []
    assert [path for path, told in shown.items() if not told] == []


def test_every_test_named_in_the_documentation_exists():
    written = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    existing = set(re.findall(r"^def (test_\w+)", written, re.MULTILINE))
    named = {
        test for page in PAGES for test in re.findall(r"`(test(?:_[a-z0-9]+){3,})`", page.read_text(encoding="utf-8"))
    }
    assert len(named) > 20
    assert sorted(named - existing) == []


def anchors(path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_relative_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" in link:
            continue
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_page_of_the_docs_is_reached_from_the_readme():
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached and page.suffix == ".md" and page.is_file():
            reached.add(page)
            links = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
            waiting += [(page.parent / link).resolve() for link in links if "://" not in link]
    assert sorted(set(PAGES) - reached) == []


def test_no_file_mentions_a_machine_or_a_registry():
    files = [path for path in ROOT.iterdir() if path.is_file()]
    files += [path for folder in EVERYWHERE for path in (ROOT / folder).rglob("*") if path.is_file()]
    texts = [path for path in files if "__pycache__" not in path.parts and path.suffix not in (".pyc", ".png")]
    assert len(texts) > 150
    found = [
        f"{name(path)}: {pattern}"
        for path in texts
        for pattern in FORBIDDEN
        if pattern in path.read_text(encoding="utf-8", errors="replace")
    ]
    assert found == []

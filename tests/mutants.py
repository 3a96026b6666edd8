"""Would a test notice: changes the source at random places, one at a time, and runs the tests that should see it.

    python tests/mutants.py --count 300 --seed 1 --workers 2 > mutants.jsonl
    python tests/mutants.py --table mutants.jsonl

A mutant is one expression or statement of one module in `src/headway`, changed: a comparison or an operation turned
round, a condition negated, a number one larger, a truth value turned, a call left out. It is caught if a test fails, or
never ends. First come the tests that mirror the module's folder and those that name the module, then the others; the
result of each mutant is one JSON line. Nothing in the working tree is changed. Three hundred take some hours.
"""

import argparse
import ast
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE, TESTS = ROOT / "src" / "headway", ROOT / "tests"
APART = ("gpu", "install", "docs", "reliability", "distributed")
"""Folders of tests that take long, or are not about one module."""
ALL = ("unit", "properties", "parity", "cli", "learning")
"""What runs where the nearest tests pass."""
LONGEST = 3600.0
"""Seconds for the tests of one mutant; those of the unchanged module take a fraction."""
TURNED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One change of one module."""

    path: Path
    line: int
    kind: str
    before: str
    source: str
    """The whole module with the change."""


def places(tree: ast.Module) -> Iterator[tuple[ast.AST, str, Callable[[], None]]]:
    """Every node that can be changed, with the name and the act of the change; annotations and texts are left out."""
    for node in _walk(tree):
        if isinstance(node, ast.Compare) and type(node.ops[0]) in TURNED:
            yield node, "comparison", lambda node=node: node.ops.__setitem__(0, TURNED[type(node.ops[0])]())
        elif isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in TURNED:
            yield node, "operation", lambda node=node: setattr(node, "op", TURNED[type(node.op)]())
        elif isinstance(node, ast.If | ast.While | ast.IfExp):
            yield node.test, "condition", lambda node=node: setattr(node, "test", ast.UnaryOp(ast.Not(), node.test))
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield node, "truth", lambda node=node: setattr(node, "value", not node.value)
        elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            yield node, "number", lambda node=node: setattr(node, "value", node.value + 1)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield node, "call", lambda node=node: setattr(node, "value", ast.Constant(None))


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes that are computed, but for annotations, what is raised, and what only a type checker reads."""
    yield node
    skipped = {"annotation", "returns", "exc", "decorator_list"}
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if name not in skipped and isinstance(child, ast.AST):
                yield from _walk(child)


def draw(count: int, seed: int, chosen: list[Path]) -> list[Mutant]:
    """Random mutants of the modules, each place as likely as any other."""
    texts = {path: path.read_text(encoding="utf-8") for path in chosen}
    every = [(path, number) for path, text in texts.items() for number, _ in enumerate(places(ast.parse(text)))]
    drawn = random.Random(seed).sample(every, min(count, len(every)))
    return [_made(path, texts[path], number) for path, number in drawn]


def _made(path: Path, text: str, number: int) -> Mutant:
    tree = ast.parse(text)
    node, kind, change = list(places(tree))[number]
    before, line = ast.unparse(node), getattr(node, "lineno", 0)
    change()
    return Mutant(path, line, kind, before, ast.unparse(ast.fix_missing_locations(tree)))


def tests_of(path: Path) -> list[str]:
    """The tests that should notice a change of a module."""
    inside = path.relative_to(SOURCE).with_suffix("")
    dotted = ".".join(("headway", *inside.parts)).removesuffix(".__init__")
    folder = TESTS / "unit" / inside.parent
    names = rf"\b{re.escape(dotted)}\b|\bfrom {re.escape(dotted.rpartition('.')[0])} import [^\n]*\b{inside.name}\b"
    named = [each for each in TESTS.rglob("test_*.py") if re.search(names, each.read_text(encoding="utf-8"))]
    if inside.parts[0] == "cli":
        named += (TESTS / "cli").glob(f"test_*{inside.name}*.py")
    mirrored = list(folder.rglob("test_*.py")) if len(inside.parts) > 1 else [TESTS / "unit" / f"test_{inside.name}.py"]
    found = {each for each in (*named, *mirrored) if each.is_file()}
    kept = {each for each in found if each.relative_to(TESTS).parts[0] not in APART} or found
    first = sorted(kept, key=lambda each: (inside.name not in each.name, each))
    return [str(each.relative_to(ROOT)) for each in first]


def judge(mutant: Mutant) -> dict[str, object]:
    """Run the tests on a copy of the source with the change: those nearest to it, and all others if these pass."""
    told = {"module": str(mutant.path.relative_to(SOURCE)), "line": mutant.line, "kind": mutant.kind}
    began, outcome, by = time.monotonic(), "survived", []
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        shutil.copytree(SOURCE, Path(name) / "headway")
        (Path(name) / "headway" / mutant.path.relative_to(SOURCE)).write_text(mutant.source, encoding="utf-8")
        environment = os.environ | {"PYTHONPATH": name, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", f"--basetemp={name}/t"]
        for tests in filter(None, (tests_of(mutant.path), [str(TESTS / each) for each in ALL])):
            try:
                ended = subprocess.run(
                    [*command, *tests],
                    cwd=ROOT,
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=LONGEST,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                outcome, by = "caught", ["time"]
                break
            if ended.returncode:
                outcome, by = "caught", re.findall(r"^(?:FAILED|ERROR) (\S+)", ended.stdout, re.MULTILINE)[:1]
                break
    seconds = round(time.monotonic() - began, 1)
    return {**told, "before": mutant.before[:120], "outcome": outcome, "by": by, "seconds": seconds}


def table(path: Path) -> str:
    """How many mutants of every room were caught, and the survivors."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    rooms = Counter((line["module"].partition("/")[0], line["outcome"]) for line in lines)
    rows = ["| room | mutants | caught |", "| --- | --- | --- |"]
    for room in sorted({room for room, _ in rooms}):
        total = sum(count for (each, _), count in rooms.items() if each == room)
        rows.append(f"| {room} | {total} | {rooms[room, 'caught']} |")
    caught = sum(line["outcome"] == "caught" for line in lines)
    rows += [f"| all | {len(lines)} | {caught} ({100 * caught / len(lines):.1f} %) |", ""]
    left = [line for line in lines if line["outcome"] != "caught"]
    rows += [f"- {each['module']}:{each['line']}: {each['kind']}: `{each['before']}`" for each in left]
    return "\n".join(rows)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--count", type=int, default=300)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--modules", default="**/*.py", help="a glob below src/headway")
    options.add_argument("--table", type=Path, metavar="FILE", help="print a table of these JSON lines, no more")
    given = options.parse_args()
    if given.table is not None:
        print(table(given.table))
        return 0
    chosen = sorted(SOURCE.glob(given.modules))
    with ThreadPoolExecutor(given.workers) as pool:
        for line in pool.map(judge, draw(given.count, given.seed, chosen)):
            print(json.dumps(line, ensure_ascii=False), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

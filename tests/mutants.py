"""Would a test notice: changes the source at random places, one at a time, and runs the tests that should see it.

    python tests/mutants.py --reach REACH                                     # once: which test runs which line
    python tests/mutants.py --count 300 --seed 1 --reach REACH --out mutants.jsonl
    python tests/mutants.py --table tests/mutants.jsonl > docs/mutants.md

A mutant is one expression or statement of one module in `src/headway`, changed: a comparison or an operation turned
round, a condition negated, a number one larger, a truth value turned, a call left out. It is caught if a test fails, or
never ends. REACH is a file; the first command runs all tests under coverage.py (`pip install coverage`) and writes it.
For each mutant the tests that run its statement are tried: those written for its module first, then short before long.
Each result is one JSON line; mutants that the file has already are not tried again, so a run that was stopped goes on.
Nothing in the working tree is changed.
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
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE, TESTS = ROOT / "src" / "headway", ROOT / "tests"
HANGS = 3.0
"""A mutant whose tests take so many times what they took on the unchanged source hangs: it is caught."""
SETTINGS = """
[run]
source = {source}
data_file = {folder}/reach
parallel = true
context = ${{PYTEST_CURRENT_TEST-}}
patch =
    subprocess
    _exit
"""
"""Of coverage.py: processes that a test starts belong to that test."""
HEAD = """# Changes of the source that tests notice

Written by `python tests/mutants.py --table tests/mutants.jsonl`: 300 random changes of one place each (`--count 300
--seed 1`) of the source at 258d83a on 2026-11-20, and whether a test fails. At first 209 were noticed by the tests
nearest to them (25 to 60 seconds of tests each); the other tests, or one written since, notice 62 more. At most a
twentieth may be set aside; the reasons were written into the lines by hand. Five were noticed by `tests/gpu` on an H200
and not by the tests tried on a CPU, so a build without a GPU notices 266 of 285, 93.3 %. The tests have grown by
looking at these very changes: of others, drawn with another seed, they will notice fewer.
"""
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
    column: int
    kind: str
    before: str
    lines: range
    """Of the statement it is part of, without the body of a compound one; none where it is run by an import."""
    source: str
    """The whole module with the change."""

    @property
    def module(self) -> str:
        """The file below `src/headway`."""
        return str(self.path.relative_to(SOURCE))

    @property
    def place(self) -> str:
        """What tells it from all others of one draw."""
        return f"{self.module}:{self.line}:{self.column} {self.kind}"


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
    before, line = ast.unparse(node), node.lineno
    statements = [each for each in ast.walk(tree) if isinstance(each, ast.stmt) and line in _lines(each)]
    functions = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef) and line in _inside(each)]
    lines = min((_lines(each) for each in statements), key=len) if functions else range(0)
    change()
    return Mutant(path, line, node.col_offset, kind, before, lines, ast.unparse(ast.fix_missing_locations(tree)))


def _inside(function: ast.FunctionDef) -> range:
    return range(function.body[0].lineno, function.end_lineno + 1)


def _lines(statement: ast.stmt) -> range:
    body = getattr(statement, "body", None)
    end = body[0].lineno if body and body[0].lineno > statement.lineno else statement.end_lineno + 1
    return range(statement.lineno, end)


class Reach:
    """Which test runs which line, and how long each takes."""

    def __init__(self, path: Path, longest: float) -> None:
        found = json.loads(path.read_text(encoding="utf-8"))
        self.seconds: dict[str, float] = found["seconds"]
        self.lines: dict[str, dict[str, list[int]]] = found["lines"]
        self._longest = longest
        self._names = list(self.seconds)

    def tests(self, mutant: Mutant) -> list[str]:
        """The tests to try on a mutant; of a line that is run when the module is imported, all that use the module."""
        lines = self.lines.get(mutant.module, {})
        found = {test for line in mutant.lines for test in lines.get(str(line), [])}
        if not found:
            found = {test for tests in lines.values() for test in tests}
        near = set(written_for(mutant.path))
        names = (self._names[test] for test in found)
        chosen = sorted(names, key=lambda name: (name.partition("::")[0] not in near, self.seconds[name]))
        total = 0.0
        return [name for name in chosen if (total := total + self.seconds[name]) < self._longest]


def reach(path: Path, workers: int) -> None:
    """Run every test under coverage.py and write which lines each has run."""
    from coverage import CoverageData  # of no use to those who only draw mutants

    with tempfile.TemporaryDirectory(prefix="reach-") as name:
        settings, took = Path(name) / "settings", Path(name) / "seconds"
        settings.write_text(SETTINGS.format(source=SOURCE, folder=name), encoding="utf-8")
        environment = os.environ | {"PYTHONPATH": str(TESTS), "MUTANTS_SECONDS": str(took)}
        coverage = [sys.executable, "-m", "coverage"]
        tests = ["-m", "pytest", "-p", "mutants", "-n", str(workers), "--dist", "worksteal"]
        subprocess.run([*coverage, "run", f"--rcfile={settings}", *tests], cwd=ROOT, env=environment, check=False)
        subprocess.run([*coverage, "combine", "-q", f"--rcfile={settings}"], cwd=ROOT, env=environment, check=True)
        data = CoverageData(str(Path(name) / "reach"))
        data.read()
        seconds = json.loads(took.read_text(encoding="utf-8"))
        numbers = {test: number for number, test in enumerate(seconds)}
        lines: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        for file in data.measured_files():
            for line, contexts in data.contexts_by_lineno(file).items():
                tests = {part.rpartition(" (")[0] or part for each in contexts for part in each.split("|")}
                found = sorted(numbers[test] for test in tests if test in numbers)
                lines[str(Path(file).relative_to(SOURCE))][line] = found
    path.write_text(json.dumps({"seconds": seconds, "lines": lines}), encoding="utf-8")


class Watch:
    """A plugin of pytest: tells coverage.py which test runs, and writes how long those took that passed."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.failed: set[str] = set()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Lines belong to this test from here."""
        from coverage import Coverage  # as above

        if (coverage := Coverage.current()) is not None:
            coverage.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: "pytest.TestReport") -> None:
        """In the process that gathers the results."""
        self.seconds[report.nodeid] += report.duration
        if not report.passed:
            self.failed.add(report.nodeid)

    def pytest_sessionfinish(self, session: "pytest.Session") -> None:
        """Workers leave nothing: their reports have been gathered."""
        if not hasattr(session.config, "workerinput"):
            passed = {name: round(took, 3) for name, took in self.seconds.items() if name not in self.failed}
            Path(os.environ["MUTANTS_SECONDS"]).write_text(json.dumps(passed), encoding="utf-8")


def pytest_configure(config: "pytest.Config") -> None:
    """With `-p mutants`."""
    config.pluginmanager.register(Watch())


@cache
def written_for(path: Path) -> list[str]:
    """The files of tests that mirror a module, or name it."""
    inside = path.relative_to(SOURCE).with_suffix("")
    dotted = ".".join(("headway", *inside.parts)).removesuffix(".__init__")
    names = rf"\b{re.escape(dotted)}\b|\bfrom {re.escape(dotted.rpartition('.')[0])} import [^\n]*\b{inside.name}\b"
    found = [each for each in TESTS.rglob("test_*.py") if re.search(names, each.read_text(encoding="utf-8"))]
    if inside.parts[0] == "cli":
        found += (TESTS / "cli").glob(f"test_*{inside.name}*.py")
    return [str(each.relative_to(ROOT)) for each in found]


def judge(mutant: Mutant, reach: Reach) -> dict[str, object]:
    """Run the tests on a copy of the source with the change, until one fails."""
    began, tests = time.monotonic(), reach.tests(mutant)
    outcome, by = "survived", ""
    if tests:
        usual = 20 + sum(reach.seconds[test] for test in tests)
        outcome, by = _tried(mutant, tests, HANGS * usual)
        if outcome == "not tried":  # the change renames cases of a test: the whole files, then
            outcome, by = _tried(mutant, list(dict.fromkeys(test.partition("::")[0] for test in tests)), HANGS * usual)
    told = {"place": mutant.place, "before": mutant.before[:120], "outcome": outcome, "by": by}
    return {**told, "tests": len(tests), "seconds": round(time.monotonic() - began, 1)}


def _tried(mutant: Mutant, tests: list[str], limit: float) -> tuple[str, str]:
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        shutil.copytree(SOURCE, Path(name) / "headway")
        (Path(name) / "headway" / mutant.module).write_text(mutant.source, encoding="utf-8")
        (Path(name) / "tests").write_text("\n".join(tests), encoding="utf-8")
        environment = os.environ | {"PYTHONPATH": name, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", f"--basetemp={name}/t"]
        try:
            ended = subprocess.run(
                [*command, f"@{name}/tests"],
                cwd=ROOT,
                env=environment,
                capture_output=True,
                text=True,
                timeout=limit,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return "caught", "it never ends"
        return _verdict(ended.returncode, ended.stdout + ended.stderr)


def _verdict(code: int, said: str) -> tuple[str, str]:
    """What the exit code of pytest means; 1 is a test that failed, 2 a module that cannot be imported."""
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", said, re.MULTILINE)
    if code == 0:
        return "survived", ""
    if code in (1, 2) and failed:
        return "caught", failed[0]
    if "while loading conftest" in said or code < 0:
        return "caught", f"pytest ends with {code}"
    return "not tried", said.strip()[-300:]


def _read(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _room(line: dict[str, object]) -> str:
    inside = str(line["place"]).partition(":")[0]
    return inside.rpartition("/")[0] or "(top)"


def table(path: Path) -> str:
    """How many mutants of every room were caught, those set aside with their reasons, and those nobody noticed."""
    lines = _read(path)
    counts = Counter((room, line["outcome"]) for line in lines for room in (_room(line), "all"))
    rows = [HEAD, "| room | mutants | caught | set aside | not caught |", "| --- " * 5 + "|"]
    for room in [*sorted({_room(line) for line in lines}), "all"]:
        found = [counts[room, outcome] for outcome in ("caught", "set aside", "survived")]
        rows.append(f"| {room} | {sum(found)} | {' | '.join(map(str, found))} |")
    caught, _, left = found
    rows += ["", f"Caught: {caught} of the {caught + left} not set aside, {100 * caught / (caught + left):.1f} %."]
    for outcome, title in (("set aside", "Set aside: no input can tell"), ("survived", "Not caught")):
        rows += ["", f"## {title}", ""]
        for line in sorted((line for line in lines if line["outcome"] == outcome), key=lambda each: each["place"]):
            place, _, kind = line["place"].rpartition(" ")
            reason = f": {line['reason']}" if "reason" in line else ""
            rows.append(f"- `{place.rpartition(':')[0]}`, {kind} `{line['before']}`{reason}")
    return "\n".join(rows)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--count", type=int, default=300)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--workers", type=int, default=os.cpu_count())
    options.add_argument("--modules", default="**/*.py", help="a glob below src/headway")
    options.add_argument(
        "--reach", type=Path, metavar="FILE", help="which test runs which line; made if it is not there"
    )
    options.add_argument("--longest", type=float, default=600.0, help="seconds of tests tried on one mutant")
    options.add_argument("--out", type=Path, metavar="FILE", help="JSON lines are added to this file")
    options.add_argument("--table", type=Path, metavar="FILE", help="print a table of these JSON lines, no more")
    given = options.parse_args()
    if given.table is not None:
        print(table(given.table))
        return 0
    if not given.reach.exists():
        reach(given.reach, given.workers)
    if given.out is None:
        return 0
    known = Reach(given.reach, given.longest)
    tried = {line["place"] for line in _read(given.out)} if given.out.exists() else set()
    drawn = draw(given.count, given.seed, sorted(SOURCE.glob(given.modules)))
    left = [each for each in drawn if each.place not in tried]
    with ThreadPoolExecutor(given.workers) as pool, given.out.open("a", encoding="utf-8") as file:
        for line in as_completed(pool.submit(judge, each, known) for each in left):
            file.write(json.dumps(line.result(), ensure_ascii=False) + "\n")
            file.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())

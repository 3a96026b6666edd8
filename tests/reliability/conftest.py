"""What the goals share: counts, the tally of a result, forked processes, and a run small enough to be broken often."""

import os
import random
import re
from pathlib import Path

import pytest
from forks import Forks
from runs import Runs
from tallies import FIGURES, Tally


@pytest.fixture
def tally(request):
    """The result of this test, appended to the file HEADWAY_FIGURES names, whether the test passes or not."""
    goal = re.match(r"test_(g\d+)", request.path.name)[1].upper()
    made = Tally(goal, request.node.originalname.removeprefix("test_").replace("_", " "))
    yield made
    if FIGURES:
        with Path(FIGURES).open("a", encoding="utf-8") as file:
            file.write(made.line() + "\n")


COUNTED = {
    "g9": Tally("G9", "bad data settings and command lines cost one line"),
    "g10": Tally("G10", "hostile model folders execute and change nothing"),
}
"""Goals of which every test is a case."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    goal = re.match(r"test_(g\d+)", item.path.name)
    made = COUNTED.get(goal[1]) if goal else None
    if made and report.when == "call" and "tally" not in item.fixturenames:
        made.count += 1
        made.passed += report.passed
        made.spent += report.duration
    return report


def pytest_sessionfinish():
    if FIGURES:
        with Path(FIGURES).open("a", encoding="utf-8") as file:
            file.writelines(made.line() + "\n" for made in COUNTED.values() if made.count)


@pytest.fixture
def chance():
    """Randomness that differs from run to run only where HEADWAY_SEED says so."""
    return random.Random(os.environ.get("HEADWAY_SEED", "1"))


@pytest.fixture(scope="session")
def forks():
    """The fork server."""
    server = Forks()
    yield server
    server.close()


@pytest.fixture(scope="session")
def small_corpus(tmp_path_factory):
    """A hundred and twenty pairs, the target reversed and in capitals."""
    folder = tmp_path_factory.mktemp("corpus")
    draw = random.Random(3)
    words = ["un", "deux", "trois", "quatre", "cinq", "six", "sept", "huit"]
    sentences = [[draw.choice(words) for _ in range(draw.randint(2, 7))] for _ in range(120)]
    (folder / "source").write_text("".join(" ".join(each) + "\n" for each in sentences))
    (folder / "target").write_text("".join(" ".join(reversed(each)).upper() + "\n" for each in sentences))
    return folder


@pytest.fixture(scope="session")
def unbroken(forks, small_corpus, tmp_path_factory):
    """The folder of a run that nothing happened to; not to be changed."""
    folder = tmp_path_factory.mktemp("unbroken")
    ended = Runs(forks, small_corpus, folder).train(folder / "run")
    assert ended.code == 0, ended.err
    return folder / "run"


@pytest.fixture
def runs(forks, small_corpus, tmp_path):
    """Runs of `headway train` in forked processes."""
    return Runs(forks, small_corpus, tmp_path)

"""For pytest: `--headway-model FOLDER` adds a test for every check, `prove_headway` proves a model inside a test."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # nothing heavy is imported unless a model is to be proved
    from headway.proof import Proof, Subject
    from headway.translator import Translator


class Unproven(AssertionError):  # noqa: N818  # it reads as what it says
    """A check failed; the message says all there is to say."""


class Checks(pytest.Collector):
    """The checks of one model."""

    subject: "Subject"

    def collect(self) -> list["Check"]:
        """A test each."""
        from headway.proof import CHECKS

        return [Check.from_parent(self, name=name) for name in CHECKS]


class Check(pytest.Item):
    """One check of a model."""

    parent: Checks

    def runtest(self) -> None:
        """Look, and fail with what was found."""
        from headway.errors import FolderError
        from headway.proof import look

        try:
            finding = look(self.name, self.parent.subject)
        except FolderError as error:
            raise Unproven(str(error)) from None
        if finding.passed is None:
            pytest.skip(finding.figure)
        if not finding.passed:
            raise Unproven(f"{finding.figure}\ncompared: {finding.compared}")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The finding alone: there is no code of the user's to show."""
        return str(excinfo.value) if isinstance(excinfo.value, Unproven) else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where the model lies, and what was looked at."""
        return self.path, None, f"headway: {self.name}"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add our options."""
    group = parser.getgroup("headway", "proof of a Headway model")
    group.addoption("--headway-model", metavar="FOLDER", help="a model or run folder to prove, a test for each check")
    group.addoption("--headway-text", metavar="FILE", help="sentences to prove it by, one a line")


@pytest.hookimpl(tryfirst=True)  # so that -k and -m choose among our tests too
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add the checks of the model that was named, after all other tests."""
    folder, text = config.getoption("--headway-model"), config.getoption("--headway-text")
    if folder is None:
        if text is not None:
            raise pytest.UsageError("--headway-text: there is no model to prove by it; give --headway-model too")
        return
    from headway.errors import UserError
    from headway.proof import Subject

    checks: Checks = Checks.from_parent(session, name="headway")
    try:
        checks.subject = Subject.of(folder, _lines(text))
    except UserError as error:
        raise pytest.UsageError(str(error)) from None
    items += checks.collect()


def _lines(text: str | None) -> Sequence[str]:
    if text is None:
        return ()
    from headway.data.text import read_lines
    from headway.errors import DataError

    lines = [line for line in read_lines(Path(text)) if line.strip()]
    if not lines:
        raise DataError(f"{text}: every line is blank; give sentences, or leave --headway-text out")
    return lines


@pytest.fixture(scope="session")
def prove_headway() -> Callable[..., "Proof"]:
    """Proves a model folder, a run folder or a translator; options are those of `headway.proof.prove`."""

    def proved(model: "str | Path | Translator", texts: Sequence[str] = (), **options: Any) -> "Proof":
        from headway.proof import prove

        proof = prove(model, texts, **options)
        if not proof.passed:
            raise Unproven("\n".join((proof.complaint(), *proof.lines())))
        return proof

    return proved

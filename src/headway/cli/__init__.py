"""The command line: parse, dispatch, exit codes; one short file a command."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from cyclopts import App, CycloptsError, Parameter, UnknownCommandError, UnusedCliTokensError

import headway
from headway.cli import (
    attention,
    backtranslate,
    bench,
    check,
    demo,
    distill,
    embed,
    evaluate,
    export,
    info,
    init,
    plan,
    positions,
    prove,
    reproduce,
    run,
    sample,
    score,
    shortlist,
    train,
    translate,
)
from headway.cli.options import read
from headway.cli.terminal import speaks
from headway.disk import failure
from headway.errors import HeadwayError, Interrupted, UserError
from headway.runtime.threads import prepare_environment

app = App(
    name="headway",
    help="Sequence-to-sequence models built on attention: from two text files to a model of your own.",
    version=headway.__version__,
    default_parameter=Parameter(converter=read, negative_iterable=()),
)
COMMANDS = (
    demo, check, init, plan, train, distill, backtranslate, translate, run, evaluate, attention, positions, embed,
    info, shortlist, score, sample, prove, export, bench, reproduce,
)  # fmt: skip
for module in COMMANDS:
    app.command(module.command, name=module.__name__.rpartition(".")[2])


LONGEST_COMPLAINT = 2000
"""Characters of an error line; a hostile file could fill the screen with its names."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit: 0 well, 1 a failure, 2 a mistake of the user's, 128 + signal when stopped."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115  # open for as long as the process runs
    prepare_environment(os.environ)  # before a command loads torch
    try:
        command, bound, _ = app.parse_args(arguments, exit_on_error=False, print_error=False)
        command(*bound.args, **bound.kwargs)
        sys.stdout.flush()
        code = 0
    except CycloptsError as error:
        code = complain(_explained(error), 2)
    except HeadwayError as error:
        code = error.exit_code if _said_elsewhere(error) else complain(str(error), error.exit_code)
    except BrokenPipeError:  # the reader has seen enough
        _forget_output()
        code = 1
    except KeyboardInterrupt:
        code = complain("stopped", 130)
    except OSError as error:
        _forget_output()
        line = f"{error.filename or 'output'}: {error.strerror or error}"
        code = complain(line, 1) if failure(error) else complain(f"{line}; check the path and its rights", 2)
    except RuntimeError as error:
        told = _without_memory(error)
        if told is None:
            raise
        code = complain(told, 1)
    sys.exit(code)


def _explained(error: CycloptsError) -> str:
    """What is wrong with the command line, and where help is."""
    told = str(error).strip().rstrip(".")
    if isinstance(error, UnknownCommandError):
        names = [name for name in app if not name.startswith("-")]
        told = f"{told.partition(' Available commands:')[0].rstrip('.')}; choose from {', '.join(names)}"
    elif isinstance(error, UnusedCliTokensError):
        told = f"too many arguments: {' '.join(error.unused_tokens or ())}; leave them out"
    return f"{told}; see --help"


def _without_memory(error: RuntimeError) -> str | None:
    """What to do where torch says that memory ran out; other programs may fill the same GPU."""
    from headway.training.memory import out_of_memory

    if not out_of_memory(error):
        return None
    if "CUDA" in str(error):
        return "too little memory is free on the GPU; stop other programs there, or use --device cpu"
    return f"too little memory ({str(error).splitlines()[0]}); use smaller batches, or a smaller beam"


def _said_elsewhere(error: HeadwayError) -> bool:
    """Whether another of several processes that train together tells the user the same."""
    return not str(error) or (isinstance(error, UserError | Interrupted) and not speaks())


def complain(message: str, code: int) -> int:
    """Say what is wrong in one line on standard error, and hand back the exit code."""
    line = " ".join(message.split())
    # Names come from files: none may move the cursor or colour the terminal.
    shown = "".join(letter if letter.isprintable() else "\ufffd" for letter in line)
    if len(shown) > LONGEST_COMPLAINT:  # what is wrong stands behind the name
        shown = f"{shown[: LONGEST_COMPLAINT // 2]} ... {shown[-LONGEST_COMPLAINT // 2 :]}"
    print(f"headway: {shown}", file=sys.stderr)
    return code


def _forget_output() -> None:
    """Send what standard output still holds nowhere, so that Python does not try to write it again at exit."""
    with suppress(OSError, ValueError):  # not a file of the system's
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

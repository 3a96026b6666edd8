"""The command line: parse, dispatch, exit codes; one short file a command."""

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from cyclopts import App, CycloptsError

import headway
from headway.cli import attention, check, demo, embed, evaluate, info, init, positions, train, translate
from headway.errors import HeadwayError

app = App(
    name="headway",
    help="Sequence-to-sequence models built on attention: from two text files to a model of your own.",
    version=headway.__version__,
)
for module in (demo, check, init, train, translate, evaluate, attention, positions, embed, info):
    app.command(module.command, name=module.__name__.rpartition(".")[2])


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit: 0 well, 1 a failure, 2 a mistake of the user's, 128 + signal when stopped."""
    try:
        app(arguments, exit_on_error=False, print_error=False)
        sys.stdout.flush()
        code = 0
    except CycloptsError as error:
        code = complain(" ".join(str(error).split()) + "; see --help", 2)
    except HeadwayError as error:
        code = complain(str(error), error.exit_code)
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except KeyboardInterrupt:
        code = complain("stopped", 130)
    except OSError as error:
        code = complain(f"{error.filename or 'output'}: {error.strerror}", 1)
    sys.exit(code)


def complain(message: str, code: int) -> int:
    """Say what is wrong in one line on standard error, and hand back the exit code."""
    line = " ".join(message.splitlines())
    print(f"headway: {line}", file=sys.stderr)
    return code

"""The command line: parse, dispatch, exit codes; one short file a command."""

import errno
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from resource import RLIM_INFINITY, RLIMIT_AS, getrlimit
from shutil import get_terminal_size
from types import ModuleType
from typing import NoReturn

from cyclopts import App, CycloptsError, Group, Parameter, UnknownCommandError, UnusedCliTokensError

import headway
from headway.cli import (
    attention,
    backtranslate,
    bench,
    check,
    completion,
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
from headway.errors import ConfigError, HeadwayError, Interrupted, UserError, out_of_memory
from headway.runtime.threads import prepare_environment

app = App(
    name="headway",
    help="Sequence-to-sequence models built on attention: from two text files to a model of your own.",
    version=headway.__version__,
    group_commands=Group("Options", sort_key=9),
    default_parameter=Parameter(converter=read, negative_iterable=()),
)
COMMANDS: dict[str, dict[ModuleType, str]] = {
    "Train": {
        demo: "headway demo",
        init: "headway init recipe.toml --source train.en --target train.de",
        train: "headway train --source train.en --target train.de --out runs/en-de --time 30m",
        distill: "headway distill runs/large --source train.en --out runs/small",
        backtranslate: "headway backtranslate runs/de-en --monolingual news.de --out runs/en-de",
    },
    "Use": {
        translate: "headway translate runs/en-de --input new.en --output new.de",
        run: "headway run runs/en-de",
        score: "headway score runs/en-de --source new.en --target new.de",
        embed: "headway embed runs/en-de --input new.en --output vectors.jsonl",
        sample: "headway sample runs/german --count 5 --prefix 'Es war einmal'",
        shortlist: "headway shortlist runs/en-de --source train.en --target train.de --output shortlist",
        export: "headway export runs/en-de --to ctranslate2 --output exported",
    },
    "Inspect": {
        attention: "headway attention runs/en-de 'The cat sees the dog.' --out attention.html",
        positions: "headway positions --out positions.png",
        reproduce: "headway reproduce bottleneck --out runs/reproduce",
    },
    "Check": {
        check: "headway check --source train.en --target train.de",
        plan: "headway plan --source train.en --target train.de --time 30m",
        bench: "headway bench train --preset tiny",
        evaluate: "headway evaluate runs/en-de --source test.en --reference test.de",
        prove: "headway prove runs/en-de",
        info: "headway info",
        completion: "headway completion bash > ~/.local/share/bash-completion/completions/headway",
    },
}
"""Every command by what it is for, with an example."""
for order, (title, members) in enumerate(COMMANDS.items()):
    group = Group(title, sort_key=order)
    for place, (module, example) in enumerate(members.items()):
        name = module.__name__.rpartition(".")[2]
        app.command(module.command, name=name, group=group, sort_key=place, help_epilogue=f"Example: {example}")

WRITTEN = frozenset({"out", "output", "path", "dry_run"})
"""Arguments with which a command has no result that goes to standard output alone."""
LEAST = 800 << 20
"""Bytes of address space without which PyTorch cannot even be loaded; what fails then may end without a word."""
LONGEST_COMPLAINT = 2000
"""Characters of an error line; a hostile file could fill the screen with its names."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit: 0 well, 1 a failure, 2 a mistake of the user's, 128 + signal when stopped."""
    heard = _prepare_streams()
    prepare_environment(os.environ)  # before a command loads torch
    try:
        _run(list(sys.argv[1:] if arguments is None else arguments), heard)
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
        told = _without_memory(error)
        code = complain(told or _failed(error), 1 if told or failure(error) else 2)
    except Exception as error:
        told = _without_memory(error)
        if told is None:
            raise
        sys.unraisablehook = lambda _: None  # torch asks for memory again as the process ends
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


def _prepare_streams() -> bool:
    """Make the standard streams hold UTF-8 whatever the system says; returns whether there is a standard output.

    The number of one that the caller has closed is taken, or else the next file to be opened would be the stream.
    """
    while (number := os.open(os.devnull, os.O_RDONLY)) <= 2:
        pass
    os.close(number)
    heard = sys.stdout is not None
    for name, errors in (("stdin", "surrogateescape"), ("stdout", "surrogateescape"), ("stderr", "backslashreplace")):
        stream = getattr(sys, name)
        if isinstance(stream, TextIOWrapper):
            with suppress(OSError):  # a program that calls this has read from it, or put something else in its place
                stream.reconfigure(encoding="utf-8", errors=errors)
        elif stream is None and name != "stdin":
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115  # open for as long as the process runs
    columns = min(max(get_terminal_size().columns, 20), 1000)  # where tables can be laid out
    if "COLUMNS" in os.environ or columns != get_terminal_size().columns:
        os.environ["COLUMNS"] = str(columns)
    return heard


def _run(arguments: list[str], heard: bool) -> None:
    """Run one command, after refusing what would make its work useless."""
    for argument in arguments:
        try:
            argument.encode("utf-8")
        except UnicodeEncodeError:  # neither recipes nor safetensors could hold such a name
            raise ConfigError(f"{argument}: is not UTF-8; write it in UTF-8, or rename the file") from None
    command, bound, _ = app.parse_args(arguments, exit_on_error=False, print_error=False)
    if not heard and not bound.arguments.keys() & WRITTEN:
        raise ConfigError("standard output: closed, where the results go; redirect it to a file or to /dev/null")
    allowed, _ = getrlimit(RLIMIT_AS)
    if command != app.help_print and allowed != RLIM_INFINITY and allowed < LEAST:
        told = f"memory: the system allows this process {allowed >> 20} MiB (ulimit -v); PyTorch alone needs"
        raise HeadwayError(f"{told} {LEAST >> 20}; allow it more")
    command(*bound.args, **bound.kwargs)
    sys.stdout.flush()


def _failed(error: OSError) -> str:
    """What the system refused to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        remedy = "; free space, or write elsewhere"
    else:
        remedy = "" if failure(error) else "; check the path and its rights"
    return f"{error.filename or 'standard output'}: {error.strerror or error}{remedy}"


def _without_memory(error: BaseException) -> str | None:
    """What to do where memory ran out; other programs may fill the same GPU."""
    if not out_of_memory(error):
        return None
    if "CUDA" in str(error):
        return "too little memory is free on the GPU; stop other programs there, or use --device cpu"
    detail = (str(error) or type(error).__name__).splitlines()[0]
    return f"too little memory ({detail}); use smaller batches or a smaller beam, or let the process have more"


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
    with suppress(OSError):  # nobody may be there to read it
        print(f"headway: {shown}", file=sys.stderr, flush=True)
    return code


def _forget_output() -> None:
    """Send what standard output still holds nowhere, so that Python does not try to write it again at exit."""
    with suppress(OSError, ValueError):  # not a file of the system's
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

"""A fork server: torch and headway are imported once, every trial is a fork of it, so that a kill costs a moment."""

import atexit
import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


class Forks:
    """Starts trials, functions named `module.function`, each in a process of its own."""

    def __init__(self) -> None:
        # Without pytest's shape checks: these processes are what a user runs.
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(map(str, sys.path))}
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "forks.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def start(self, name: str, folder: Path, /, **arguments: Any) -> "Trial":
        """Start a trial; what it says goes to files in `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        told = {"name": name, "arguments": arguments, "folder": str(folder)}
        return Trial(self, self._ask(told)["pid"], folder)

    def run(self, name: str, folder: Path, /, *, seconds: float = 600.0, **arguments: Any) -> "Ended":
        """Start a trial and wait for its end."""
        return self.start(name, folder, **arguments).wait(seconds)

    def close(self) -> None:
        """End the server; trials that still run are killed by `Trial.wait`."""
        self._process.stdin.close()
        self._process.wait(120)
        self._process.stdout.close()

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        self._process.stdin.write(json.dumps(request, default=str) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


@dataclass(frozen=True)
class Ended:
    """How a trial ended: its exit code (-9 for a kill), when, and what it said."""

    code: int
    at: float
    """Of the monotonic clock."""
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """What it said to a person."""
        return self.err.splitlines()

    @property
    def found(self) -> Any:
        """The JSON it answered with."""
        assert self.code == 0, self.err[-4000:]
        return json.loads(self.out)


@dataclass(frozen=True)
class Trial:
    """A trial that has begun."""

    forks: Forks
    pid: int
    folder: Path

    def wait(self, seconds: float) -> Ended:
        """Its end; one that takes longer is killed, and that is an error."""
        told = self.forks._ask({"pid": self.pid, "seconds": seconds})
        assert told["ended"], f"a trial took more than {seconds} s: {self.said('err')[-4000:]}"
        return Ended(told["code"], told["at"], self.said("out"), self.said("err"))

    def said(self, stream: str) -> str:
        """What it has said so far."""
        path = self.folder / stream
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""  # killed before it began

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)


def serve() -> None:
    """Answer requests until standard input ends."""
    import torch

    torch.set_num_threads(1)
    import points
    import poisons
    import torch._dynamo  # what an optimiser imports as it is made
    import trials

    modules = {module.__name__: module for module in (points, poisons, trials)}
    gc.collect()
    gc.freeze()  # a collection in a fork would copy every page
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    for line in sys.stdin:
        request = json.loads(line)
        if "name" in request:
            pid = os.fork()
            if pid == 0:
                answers.close()
                module, _, name = request["name"].partition(".")
                _child(getattr(modules[module], name), request)
            answer = {"pid": pid}
        else:
            answer = _wait(request["pid"], request["seconds"])
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _child(function: Any, request: dict[str, Any]) -> None:
    """Become the trial; ends the process as Python ends one."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background inherits an ignored one
    for number, name in ((0, os.devnull), (1, "out"), (2, "err")):
        path = Path(request["folder"]) / name
        handle = os.open(path, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(handle, number)
        os.close(handle)
    code: Any = 0
    try:
        answer = function(**request["arguments"])
        if answer is not None:
            json.dump(answer, sys.stdout)
    except SystemExit as ending:
        code = ending.code or 0
    except BaseException:  # noqa: BLE001  # whatever it is, the test shall read it
        traceback.print_exc()
        code = 70
    # As Python ends: threads joined, exit functions called, streams flushed; but without taking all of torch apart.
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush(), sys.stderr.flush()
    os._exit(code)


def _wait(pid: int, seconds: float) -> dict[str, Any]:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return {"ended": True, "code": os.waitstatus_to_exitcode(status), "at": time.monotonic()}
        time.sleep(0.002)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return {"ended": False}


if __name__ == "__main__":
    serve()

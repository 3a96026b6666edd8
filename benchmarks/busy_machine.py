"""Training and decoding on a busy machine, within a CPU quota, and the price of waiting threads that sleep.

    python benchmarks/busy_machine.py                           # about five minutes; the machine must be quiet

The real commands run in processes of their own, one for each case, so that the environment they choose is measured.
Cases take turns: in every round each does the same updates, or translates the same lines, while all others stand still.

    quiet         as Headway chooses, nothing beside it
    busy          the same beside --busy processes that use a core each
    spinning      quiet, with the waiting policy that torch has by default
    one-thread    quiet, with one thread
    quota         as Headway chooses, in a control group with a CPU quota of one core; needs root
    affinity      instead of quota where no control group can be made: on one core only
    busy-spinning beside busy processes with torch's default policy; only with --cases, since it takes very long
    spin-N        quiet, with GOMP_SPINCOUNT=N, and busy-spin-N beside busy processes; only with --cases

First one JSON line a case with what `headway info` says there of threads. Then, for training and for decoding, one line
a case: the median speed over the rounds, lowest and highest; and one line a goal: the median over the rounds of the
ratio of two cases, what is aimed at, and whether it is reached.
"""

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path

from headway.runtime.threads import NUMBER, RECORD, WAITING_NAMES
from peers.origin import show

CASES = ("quiet", "busy", "spinning", "one-thread", "quota")
DEFAULT_SPINS = "300000"
"""What GNU's OpenMP runtime has by default; given as the user's own, Headway leaves it alone."""
GOALS = (
    ("busy", "quiet", 0.40, "beside busy processes"),
    ("quota", "one-thread", 0.80, "with a quota of one core, over one thread on a quiet machine"),
    ("affinity", "one-thread", 0.80, "on one core by affinity, over one thread on a quiet machine"),
    ("quiet", "spinning", 0.98, "waiting threads that sleep, over torch's default, on a quiet machine"),
)
MARGIN = 3
"""Updates between two rounds: the first ones contain the pause."""
QUOTA, PERIOD = 100_000, 100_000
"""Microseconds: one core."""


def environment_of(case: str) -> dict[str, str]:
    """The environment of a case: none of the caller's variables for threads, so that Headway chooses."""
    own = {name: value for name, value in os.environ.items() if name not in (*NUMBER, *WAITING_NAMES, RECORD)}
    if case == "one-thread":
        return own | {"OMP_NUM_THREADS": "1"}
    if case.endswith("spinning"):
        return own | {"GOMP_SPINCOUNT": DEFAULT_SPINS}
    if "spin-" in case:
        return own | {"GOMP_SPINCOUNT": case.rpartition("-")[2]}
    return own


class Command:
    """A headway command in a process of its own, for one case."""

    def __init__(self, case: str, words: list[object], log: Path, group: Path | None) -> None:
        self.case = case
        self.log = log
        with log.open("w") as file:
            self.process = subprocess.Popen(
                [*before(case, group), sys.executable, "-m", "headway", *map(str, words)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                env=environment_of(case),
            )

    def failed(self) -> None:
        sys.exit(f"{self.case}: the command ended with {self.process.wait()}: {self.log.read_text()[-2000:]}")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            with suppress(BrokenPipeError):
                stream.close()


class Training(Command):
    """`headway train`, stopped by SIGSTOP between rounds; the times of its updates are in its metrics.jsonl."""

    unit = "updates_per_second"

    def __init__(self, case, folder, options, group):
        self.updates, self.limit, self.next = options.updates, options.limit, MARGIN
        out = folder / f"run-{case}"
        self.metrics = out / "metrics.jsonl"
        settings = {"model.preset": options.preset, "training.steps": 1_000_000, "training.validate_every": 1_000_000}
        settings |= {"training.log_every": 1, "training.samples": 0, "training.batch_tokens": options.batch_tokens}
        words = ["train", "--source", folder / "source", "--target", folder / "target", "--out", out, "--device", "cpu"]
        words += [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
        super().__init__(case, words, folder / f"{case}.log", group)
        self.wait(self.next, 600.0)
        self.process.send_signal(signal.SIGSTOP)

    def round(self) -> float:
        """Updates per second; the same updates in this round of every case."""
        first = self.next + MARGIN
        self.next = first + self.updates
        self.process.send_signal(signal.SIGCONT)
        try:
            times = self.wait(self.next, self.limit)
        finally:
            self.process.send_signal(signal.SIGSTOP)
        if self.next in times:
            return self.updates / (times[self.next] - times[first])
        done = max(times)  # out of time
        self.next = done
        return max(0, done - first) / self.limit

    def wait(self, step: int, seconds: float) -> dict[int, float]:
        """The times of all updates, as soon as one is done or the time is over."""
        ends = time.monotonic() + seconds
        while True:
            if self.process.poll() is not None:
                self.failed()
            lines = self.metrics.read_text().split("\n")[:-1] if self.metrics.exists() else []
            times = {line["step"]: line["time"] for line in map(json.loads, lines)}
            if step in times or time.monotonic() > ends:
                return times
            time.sleep(0.005)


class Decoding(Command):
    """`headway translate` behind a pipe; it waits for lines between rounds."""

    unit = "lines_per_second"

    def __init__(self, case, folder, options, group):
        self.lines = (folder / "source").read_text(encoding="utf-8").splitlines()[: options.lines]
        self.chunk, self.limit = min(options.chunk, len(self.lines)), options.limit
        words = ["translate", folder / "model", "--buffer", self.chunk, "--device", "cpu"]
        super().__init__(case, words, folder / f"{case}.log", group)
        self.translate(self.lines[: self.chunk])

    def round(self) -> float:
        """Lines per second; the same lines in every round of every case."""
        began, done = time.monotonic(), 0
        for place in range(0, len(self.lines) - self.chunk + 1, self.chunk):
            self.translate(self.lines[place : place + self.chunk])
            done += self.chunk
            if time.monotonic() - began > self.limit:
                break
        return done / (time.monotonic() - began)

    def translate(self, lines: list[str]) -> None:
        try:
            self.process.stdin.write("".join(f"{line}\n" for line in lines).encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            self.failed()
        for _ in lines:
            if not self.process.stdout.readline():
                self.failed()


WORKS = {"training": Training, "decoding": Decoding}


def prepare(folder: Path, options: argparse.Namespace) -> None:
    """The built-in corpus of phrases in two files, and a model of the preset that was never trained."""
    import torch

    from headway.data.demos import DEMOS
    from headway.data.tokenizer import Tokenizer, TokenizerConfig
    from headway.models.transformer import Transformer, TransformerConfig
    from headway.search import DecodingConfig
    from headway.translator import Translator

    pairs = DEMOS["phrases"]().train[: options.pairs]
    for side in ("source", "target"):
        lines = [getattr(pair, side) for pair in pairs]
        (folder / side).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    torch.manual_seed(1)
    tokenizer = Tokenizer.train((pair.source for pair in pairs), TokenizerConfig(vocabulary=1000))
    model = Transformer(TransformerConfig(preset=options.preset), tokenizer.size, tokenizer.size).eval()
    Translator(model, tokenizer, tokenizer, DecodingConfig(longest=options.longest)).save(folder / "model")


@contextmanager
def busy(count: int) -> Iterator[None]:
    """While entered, processes that each use all of a core."""
    processes = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(count)]
    try:
        time.sleep(0.2)  # until they are at it
        yield
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


@contextmanager
def control_group(root: Path = Path("/sys/fs/cgroup")) -> Iterator[Path | str]:
    """A control group with a quota of one core, removed at the end; where none can be made, the reason."""
    place = root / "cpu" if (root / "cpu").is_dir() else root
    folder = place / f"headway-benchmark-{os.getpid()}"
    enabled = place / "cgroup.subtree_control"
    if enabled.exists() and "cpu" not in enabled.read_text().split():
        yield f"{place}: the cpu controller is not enabled"
        return
    try:
        folder.mkdir()
    except OSError as error:
        yield f"{folder}: {error.strerror}"
        return
    try:
        try:
            if (folder / "cpu.max").exists():
                (folder / "cpu.max").write_text(f"{QUOTA} {PERIOD}")
            else:
                (folder / "cpu.cfs_period_us").write_text(str(PERIOD))
                (folder / "cpu.cfs_quota_us").write_text(str(QUOTA))
        except OSError as error:
            yield f"{folder}: {error.strerror}"
        else:
            yield folder
    finally:
        folder.rmdir()


def before(case: str, group: Path | None) -> list[str]:
    """Words before the command of a case: a process that enters its limits and then becomes the command."""
    if case == "quota":
        enter = f"file = open({str(group / 'cgroup.procs')!r}, 'w'); file.write(str(os.getpid())); file.close()"
    elif case == "affinity":
        enter = "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})"
    else:
        return []
    return [sys.executable, "-S", "-c", f"import os, sys; {enter}; os.execv(sys.argv[1], sys.argv[1:])"]


def chosen(case: str, group: Path | None) -> dict[str, str]:
    """What Headway says of threads in the environment of a case."""
    words = [*before(case, group), sys.executable, "-m", "headway", "info"]
    done = subprocess.run(words, check=True, capture_output=True, text=True, env=environment_of(case))
    threads, waiting = done.stdout.splitlines()[-2:]
    return {"case": case, "threads": threads, "waiting": waiting}


def measure(work: str, cases: list[str], folder: Path, group: Path | None, options) -> dict[str, list[float]]:
    """The speed of every case in every round."""
    speeds: dict[str, list[float]] = {case: [] for case in cases}
    order = random.Random(0)
    with ExitStack() as stack:
        commands = []
        for case in cases:
            commands.append(WORKS[work](case, folder, options, group))
            stack.callback(commands[-1].close)
        for number in range(options.rounds + 1):
            for command in order.sample(commands, len(commands)):
                with busy(options.busy) if command.case.startswith("busy") else nullcontext():
                    speed = command.round()
                if number:  # the first round warms up
                    speeds[command.case].append(speed)
    return speeds


def report(work: str, speeds: dict[str, list[float]], busy_processes: int) -> list[dict[str, object]]:
    """A line for every case, then one for every goal whose two cases were measured."""
    lines: list[dict[str, object]] = []
    for case, found in speeds.items():
        line = {"work": work, "case": case, WORKS[work].unit: round(statistics.median(found), 3)}
        line |= {"lowest": round(min(found), 3), "highest": round(max(found), 3), "rounds": len(found)}
        lines.append(line | ({"busy_processes": busy_processes} if case.startswith("busy") else {}))
    goals = [*GOALS]
    goals += [(case, "spinning", 0.98, f"{case}, over torch's default") for case in speeds if case.startswith("spin-")]
    goals += [(case, "quiet", 0.40, case) for case in speeds if case.startswith("busy-")]
    for case, other, least, told in goals:
        if case in speeds and other in speeds:
            ratios = [one / two if two else 0.0 for one, two in zip(speeds[case], speeds[other], strict=True)]
            ratio = statistics.median(ratios)
            line = {"work": work, "goal": told, "ratio": round(ratio, 3), "at_least": least, "met": ratio >= least}
            lines.append(line | {"lowest": round(min(ratios), 3), "highest": round(max(ratios), 3)})
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", nargs="+", choices=WORKS, default=[*WORKS])
    parser.add_argument("--cases", nargs="+", default=[*CASES])
    parser.add_argument("--busy", type=int, default=2, help="busy processes")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=10, help="measured in a round")
    parser.add_argument("--lines", type=int, default=384, help="translated in a round")
    parser.add_argument("--chunk", type=int, default=32, help="lines translated together")
    parser.add_argument("--longest", type=int, default=24, help="tokens of an output at most")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds of a round of one case at most")
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--batch-tokens", type=int, default=2048)
    parser.add_argument("--pairs", type=int, default=4000, help="of the built-in corpus")
    options = parser.parse_args()

    began = time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        group, cases = None, options.cases
        if "quota" in cases:
            group = stack.enter_context(control_group())
            if isinstance(group, str):
                show({"case": "quota", "not_measured": group, "instead": "affinity"})
                cases = ["affinity" if case == "quota" else case for case in cases]
        for case in cases:
            show(chosen(case, group))
        prepare(folder, options)
        for work in options.work:
            for line in report(work, measure(work, cases, folder, group, options), options.busy):
                show(line)
    show({"seconds": round(time.monotonic() - began), "cores": os.cpu_count()})


if __name__ == "__main__":
    main()

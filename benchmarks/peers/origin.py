"""Where a measurement comes from: commit, date, machine and command, in every JSON line of a benchmark."""

import json
import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def _commit() -> str:
    """What HEADWAY_COMMIT says, or else git, with + where files differ from the commit; nothing outside of git."""
    if "HEADWAY_COMMIT" in os.environ:
        return os.environ["HEADWAY_COMMIT"]
    try:
        changed = _git("status", "--porcelain", "--untracked-files=no")
        return _git("rev-parse", "--short", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return ""


COMMIT = _commit()
"""That of the code as it was loaded, however long the benchmark then takes."""


def today() -> str:
    return datetime.now(UTC).date().isoformat()


def machine(device: object = None) -> str:
    """The GPU, or the processor and how many cores it has; without a device that which this process has used."""
    torch = sys.modules.get("torch")
    gpu = str(device).startswith("cuda") if device else torch is not None and torch.cuda.is_initialized()
    if gpu:
        import torch

        if torch.cuda.is_available():
            return f"one {torch.cuda.get_device_name(str(device) if device else None)}"
    return f"{_processor()}, {os.cpu_count()} cores"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def command() -> str:
    """The command line of this process, its script named from the root of the repository."""
    script = Path(sys.argv[0]).resolve()
    name = script.relative_to(ROOT).as_posix() if script.is_relative_to(ROOT) else script.name
    return shlex.join(["python", name, *sys.argv[1:]])


def stamped(line: dict[str, Any], device: object = None) -> dict[str, Any]:
    """The line with where it comes from; what it says of that itself stays. No seeds: the script has its own."""
    found = {"commit": COMMIT, "date": today(), "machine": machine(device), "command": command()}
    found |= {} if "seed" in line else {"seeds": []}
    return line | {name: value for name, value in found.items() if name not in line}


def show(line: dict[str, Any], device: object = None) -> None:
    """Print a measurement as one JSON line."""
    print(json.dumps(stamped(line, device), ensure_ascii=False), flush=True)

"""The wheel in an environment of its own: no undeclared dependency, no compiler."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    """The `headway` command of a clean environment into which only the wheel and what it declares were installed."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", str(folder / "clean")], check=True)
    pip = [str(folder / "clean" / "bin" / "python"), "-m", "pip", "install", "-q", "--no-compile"]
    subprocess.run([*pip, "-c", str(ROOT / "constraints.txt"), str(wheel)], check=True, capture_output=True)
    return folder / "clean" / "bin" / "headway"


def run(command, *arguments, **options):
    # Nothing but the environment's own programs can be found: no compiler among them.
    environment = {"PATH": str(command.parent), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [command, *map(str, arguments)], env=environment, capture_output=True, text=True, check=True, **options
    )


def test_the_installed_command_helps_trains_and_translates(command, tmp_path):
    shown = run(command, "--help").stdout
    assert "train" in shown and "translate" in shown
    lines = [f"{word} {other}" for word in ("one", "two", "three", "four") for other in ("red", "green", "blue")] * 5
    (tmp_path / "source").write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "target").write_text("".join(f"{line.upper()}\n" for line in lines))
    small = ["model.dim=16", "model.heads=2", "model.hidden=32", "model.encoder_layers=1", "model.decoder_layers=1"]
    small += ["tokenizer.vocabulary=300", "training.steps=2"]
    options = [part for setting in small for part in ("--set", setting)]
    run(command, "train", "--source", "source", "--target", "target", "--out", "run", *options, cwd=tmp_path)
    translated = run(command, "translate", "run", cwd=tmp_path, input="one red\n\ntwo blue").stdout
    assert translated.count("\n") == 3
